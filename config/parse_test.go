package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// minimal is a valid file; tests put their lines before or after it.
const minimal = "routes:\n  - name: a\n    upstream: http://127.0.0.1:3000\n"

func mustParse(t *testing.T, data string, environ ...string) *Config {
	t.Helper()
	c, err := Parse("f.yaml", []byte(data), environ)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// faultLines parses what must not parse and returns one line per fault.
func faultLines(t *testing.T, data string, environ ...string) []string {
	t.Helper()
	c, err := Parse("f.yaml", []byte(data), environ)
	var faults Faults
	if !errors.As(err, &faults) || c != nil {
		t.Fatalf("Parse = %v, %v; want nil and Faults", c, err)
	}
	return strings.Split(faults.Error(), "\n")
}

func TestAFileWithOneRouteIsCompletedByTheDefaults(t *testing.T) {
	got := mustParse(t, minimal)
	want := Default()
	want.Routes = []Route{newRoute(want.Defaults)}
	want.Routes[0].Name, want.Routes[0].Upstream = "a", "http://127.0.0.1:3000"
	got.origin = nil
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

func TestDefaultsLieUnderEachRouteKeyByKey(t *testing.T) {
	c := mustParse(t, `
routes:
  - name: own
    path: /own
    upstream: http://a
    timeout: 5s
    methods: [PUT]
    takeover: {linger: 2s}
    idempotency: {key: optional}
    outcomes: {declined: [500]}
    body: {max: 10}
    require_lease: false
  - name: plain
    upstream: http://b
defaults:
  timeout: 30s
  idle_timeout: 20s
  methods: [POST, PATCH]
  takeover: {wait: 1s, linger: 1s, sent: abort}
  idempotency: {key: required}
  outcomes: {applied: [409], declined: [404]}
  body: {buffer: 2MiB, max: 3MiB}
  require_lease: true
`)
	own, plain := c.Routes[0], c.Routes[1]
	if !reflect.DeepEqual(plain.RouteOptions, c.Defaults) {
		t.Errorf("a route without options has %+v, want the defaults %+v", plain.RouteOptions, c.Defaults)
	}
	want := c.Defaults
	want.Timeout = 5 * time.Second
	want.Methods = []string{"PUT"}
	want.Takeover.Linger = 2 * time.Second
	want.Idempotency.Key = KeyOptional
	want.Outcomes.Declined = []int{500}
	want.Body.Max = 10
	want.RequireLease = false
	if !reflect.DeepEqual(own.RouteOptions, want) {
		t.Errorf("got  %+v\nwant %+v", own.RouteOptions, want)
	}
	if want.Takeover.Wait != time.Second || want.Body.Buffer != 2*MiB {
		t.Errorf("the defaults were not read: %+v", want)
	}
	plain.Methods[0] = "changed"
	if c.Defaults.Methods[0] != "POST" {
		t.Error("a route shares the memory of a list with the defaults")
	}
}

func TestSizesAndDurationsAreReadWithTheirUnits(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "65536": 65536, "64KiB": 64 * KiB, "1 MiB": MiB, `"7B"`: 7, "2GiB": 2 * GiB, "1TiB": TiB,
	} {
		if c := mustParse(t, "defaults: {body: {max: "+text+"}}\n"+minimal); c.Routes[0].Body.Max != want {
			t.Errorf("%s is %d, want %d", text, c.Routes[0].Body.Max, want)
		}
	}
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond} {
		if c := mustParse(t, "drain: "+text+"\n"+minimal); c.Drain != want {
			t.Errorf("%s is %s, want %s", text, c.Drain, want)
		}
	}
}

func TestForUpstreamHasOneRouteForEveryPath(t *testing.T) {
	c, err := ForUpstream("http://127.0.0.1:3000", []string{"FENCEPROXY_DEFAULTS_TIMEOUT=5s", "FENCEPROXY_ROUTES_0_NAME=renamed"})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Routes) != 1 {
		t.Fatalf("got %d routes, want 1", len(c.Routes))
	}
	r := c.Routes[0]
	if r.Name != "renamed" || r.Path != "/" || r.Upstream != "http://127.0.0.1:3000" || r.Timeout != 5*time.Second {
		t.Errorf("got %+v", r)
	}
	_, err = ForUpstream("127.0.0.1:3000", nil)
	if want := "command line: --upstream: is not a URL"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = ForUpstream("", nil)
	if err == nil || !strings.HasPrefix(err.Error(), "command line: --upstream: missing") {
		t.Errorf("an empty upstream gave %v", err)
	}
}

func TestLoadTellsAMissingFileFromAFaultyOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fenceproxy.yaml")
	var faults Faults
	if _, err := Load(path, nil); !errors.Is(err, os.ErrNotExist) || errors.As(err, &faults) {
		t.Errorf("a missing file gave %v", err)
	}
	if err := os.WriteFile(path, []byte("lisen: x\n"+minimal), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path, nil)
	if !errors.As(err, &faults) {
		t.Fatalf("a faulty file gave %v", err)
	}
	want := Faults{{File: path, Line: 1, Column: 1, Key: "lisen", Message: "unknown key (did you mean listen?)"}}
	if !reflect.DeepEqual(faults, want) {
		t.Errorf("got %+v, want %+v", faults, want)
	}
}

func TestAChangedConfigCanBeValidatedAgain(t *testing.T) {
	c := mustParse(t, minimal)
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Control.Listen = "0.0.0.0:8081"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "control.listen: anyone who reaches it could claim leases") {
		t.Errorf("got %v", err)
	}
	empty := Default()
	if err := empty.Validate(); err == nil || err.Error() != "routes: at least one route is needed" {
		t.Errorf("the defaults alone gave %v", err)
	}
}

func TestAllFaultsAreReportedAtOnceInTheOrderOfTheFile(t *testing.T) {
	got := faultLines(t, `listn: x
drain: 10
limits: {max_in_flight: 0}
routes:
  - name: A
    upsteam: http://a
    takeover: {wiat: 1s}
  - name: b
    path: b
    upstream: ftp://b
`, "FENCEPROXY_LOG_LEVEL=loud", "FENCEPROXY_LOG_LEVLE=info")
	want := []string{
		`environment: FENCEPROXY_LOG_LEVLE: sets no key of the configuration (did you mean FENCEPROXY_LOG_LEVEL?)`,
		`environment: FENCEPROXY_LOG_LEVEL: "loud" is not one of debug, info, warn, error`,
		`f.yaml:1:1: listn: unknown key (did you mean listen?)`,
		`f.yaml:2:8: drain: 10 has no unit: write a duration as in 10s or 10ms`,
		`f.yaml:3:25: limits.max_in_flight: 0 admits nothing: at least 1`,
		`f.yaml:5:11: routes[0].name: "A" is not a route name: 1 to 64 of a-z, 0-9, _ and -`,
		`f.yaml:6:5: routes[0].upsteam: unknown key (did you mean upstream?)`,
		`f.yaml:7:16: routes[0].takeover.wiat: unknown key (did you mean wait?)`,
		`f.yaml:9:11: routes[1].path: "b" does not begin with /`,
		`f.yaml:10:15: routes[1].upstream: is not an absolute http or https URL, as in http://127.0.0.1:3000`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAFaultUnderDefaultsIsReportedOnceAndThere(t *testing.T) {
	got := faultLines(t, `defaults: {timeout: 0s, methods: [post]}
routes:
  - {name: a, path: /a, upstream: http://a}
  - {name: b, path: /b, upstream: http://b}
`)
	want := []string{
		`f.yaml:1:21: defaults.timeout: 0s is not longer than 0`,
		`f.yaml:1:35: defaults.methods[0]: "post" is not upper case: methods are compared letter for letter`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
