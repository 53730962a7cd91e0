package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheEnvironmentWinsOverTheFile(t *testing.T) {
	c := mustParse(t, `listen: 127.0.0.1:1
leases: {min_ttl: 2s}
defaults: {takeover: {wait: 2s}}
routes:
  - {name: a, path: /a, upstream: http://a, methods: [PUT], takeover: {linger: 1s}}
  - {name: b, path: /b, upstream: http://b, takeover: {wait: 3s}}
`,
		"PATH=/bin", "LISTEN=x", "FENCEPROXY_CONTROL=http://127.0.0.1:1", "FENCEPROXY_PROXY=x", "FENCEPROXY_TEST_SEED=1",
		"FENCEPROXY_LISTEN=127.0.0.1:2",
		"FENCEPROXY_LISTEN=127.0.0.1:3",
		"FENCEPROXY_CONTROL_LISTEN=localhost:4",
		"FENCEPROXY_LEASES_MIN_TTL=3s",
		"FENCEPROXY_LIMITS_MAX_HEADER=8KiB",
		"FENCEPROXY_LIMITS_MAX_IN_FLIGHT=7",
		"FENCEPROXY_DEFAULTS_TAKEOVER_WAIT=4s",
		"FENCEPROXY_DEFAULTS_REQUIRE_LEASE=true",
		"FENCEPROXY_DEFAULTS_OUTCOMES_DECLINED=500, 502",
		"FENCEPROXY_ROUTES_0_UPSTREAM=http://other",
		"FENCEPROXY_ROUTES_0_METHODS=",
		"FENCEPROXY_ROUTES_1_HOSTS=x.org,y.org",
	)
	a, b := c.Routes[0], c.Routes[1]
	for _, tt := range []struct {
		key       string
		got, want any
	}{
		{"listen", c.Listen, "127.0.0.1:2"},
		{"control.listen", c.Control.Listen, "localhost:4"},
		{"leases.min_ttl", c.Leases.MinTTL, 3 * time.Second},
		{"limits.max_header", c.Limits.MaxHeader, 8 * KiB},
		{"limits.max_in_flight", c.Limits.MaxInFlight, 7},
		{"routes[0].takeover.wait", a.Takeover.Wait, 4 * time.Second},
		{"routes[0].takeover.linger", a.Takeover.Linger, time.Second},
		{"routes[1].takeover.wait", b.Takeover.Wait, 3 * time.Second},
		{"routes[1].require_lease", b.RequireLease, true},
		{"routes[1].outcomes.declined", b.Outcomes.Declined, []int{500, 502}},
		{"routes[0].upstream", a.Upstream, "http://other"},
		{"routes[0].methods", a.Methods, []string(nil)},
		{"routes[1].hosts", b.Hosts, []string{"x.org", "y.org"}},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s is %v, want %v", tt.key, tt.got, tt.want)
		}
	}
}

func TestAConfigurationCanConsistOfVariablesAlone(t *testing.T) {
	c := mustParse(t, "",
		"FENCEPROXY_ROUTES_0_NAME=a", "FENCEPROXY_ROUTES_0_UPSTREAM=http://a",
		"FENCEPROXY_ROUTES_1_NAME=b", "FENCEPROXY_ROUTES_1_UPSTREAM=http://b", "FENCEPROXY_ROUTES_1_PATH=/b",
		"FENCEPROXY_DEFAULTS_TIMEOUT=3s")
	if len(c.Routes) != 2 || c.Routes[1].Path != "/b" || c.Routes[1].Timeout != 3*time.Second {
		t.Errorf("got %+v", c.Routes)
	}
}

func TestAFaultOfTheEnvironmentNamesTheVariable(t *testing.T) {
	for _, tt := range []struct{ variable, want string }{
		{"FENCEPROXY_LISTNE=x", "FENCEPROXY_LISTNE: sets no key of the configuration (did you mean FENCEPROXY_LISTEN?)"},
		{"FENCEPROXY_STORE=x", "FENCEPROXY_STORE: sets no key of the configuration"},
		{"FENCEPROXY_ROUTES=x", "FENCEPROXY_ROUTES: sets no key of the configuration"},
		{"FENCEPROXY_DEFAULTS_NAME=x", "FENCEPROXY_DEFAULTS_NAME: sets no key of the configuration"},
		{"FENCEPROXY_ROUTES_0_TIMEUOT=1s", "FENCEPROXY_ROUTES_0_TIMEUOT: sets no key of the configuration (did you mean FENCEPROXY_ROUTES_0_TIMEOUT?)"},
		{"FENCEPROXY_ROUTES_7_TIMEUOT=1s", "FENCEPROXY_ROUTES_7_TIMEUOT: sets no key of the configuration (did you mean FENCEPROXY_ROUTES_7_TIMEOUT?)"},
		{"FENCEPROXY_ROUTES_2_TIMEOUT=1s", "FENCEPROXY_ROUTES_2_TIMEOUT: names a route beyond the last: routes are numbered from 0 without a gap"},
		{"FENCEPROXY_DRAIN=10", "FENCEPROXY_DRAIN: 10 has no unit: write a duration as in 10s or 10ms"},
		{"FENCEPROXY_DRAIN=", `FENCEPROXY_DRAIN: "" is not a duration: write one as in 250ms, 10s, 5m or 24h`},
		{"FENCEPROXY_DRAIN=-1s", "FENCEPROXY_DRAIN: -1s is negative"},
		{"FENCEPROXY_LIMITS_MAX_IN_FLIGHT=many", `FENCEPROXY_LIMITS_MAX_IN_FLIGHT: "many" is not a whole number`},
		{"FENCEPROXY_DEFAULTS_WEBSOCKET=yes", `FENCEPROXY_DEFAULTS_WEBSOCKET: "yes" is neither true nor false`},
		{"FENCEPROXY_STORE_ENGINE=etcd", "FENCEPROXY_STORE_ENGINE: not supported by this version yet"},
		{"FENCEPROXY_DEFAULTS_METHODS=PUT,post", `FENCEPROXY_DEFAULTS_METHODS: "post" is not upper case: methods are compared letter for letter`},
		{"FENCEPROXY_ROUTES_0_METHODS=PUT,post", `FENCEPROXY_ROUTES_0_METHODS: "post" is not upper case: methods are compared letter for letter`},
		{"FENCEPROXY_CONTROL_LISTEN=:1", "FENCEPROXY_CONTROL_LISTEN: anyone who reaches it could claim leases: bind to 127.0.0.1 or set auth.file"},
		{"FENCEPROXY_ROUTES_1_PATH=/b", "FENCEPROXY_ROUTES_1_NAME: missing: every route needs a name\n" +
			"environment: FENCEPROXY_ROUTES_1_UPSTREAM: missing: every route needs an upstream, as in http://127.0.0.1:3000"},
		{"FENCEPROXY_DEFAULTS_TIMEOUT=0", "FENCEPROXY_DEFAULTS_TIMEOUT: 0s is not longer than 0"},
	} {
		got := strings.Join(faultLines(t, minimal, tt.variable), "\n")
		if got != "environment: "+tt.want {
			t.Errorf("%s\ngot  %s\nwant environment: %s", tt.variable, got, tt.want)
		}
	}
}

func TestTheValueOfASecretIsInNoFault(t *testing.T) {
	const secret = "hunter2"
	for _, variable := range []string{
		"FENCEPROXY_STORE_POSTGRES_DSN=postgres://u:hunter2@h/d",
		"FENCEPROXY_STORE_POSTGRES_DSN=hunter2\x00",
		"FENCEPROXY_ROUTES_0_UPSTREAM=http://u:hunter2@h:x",
		"FENCEPROXY_ROUTES_0_UPSTREAM=http://u:hunter2@h/?q",
		"FENCEPROXY_ROUTES_0_UPSTREAM=u:hunter2@h",
		"FENCEPROXY_ROUTES_0_UPSTREAM=http://u:hunter2@127.0.0.1:8080",
		"FENCEPROXY_STORE_POSTGRES_PASSWORD=hunter2",
	} {
		got := strings.Join(faultLines(t, minimal, variable), "\n")
		if strings.Contains(got, secret) {
			t.Errorf("%q gave\n%s", variable, got)
		}
	}
	for _, data := range []string{
		"store: {postgres: {dsn: hunter2}}\n" + minimal,
		"store: {postgres: {dsn: [hunter2]}}\n" + minimal,
		"store: {postgres: {dsn: |hunter2}}\n" + minimal,
		"store: {postgres: {dsn: \"hunter2}}\n" + minimal,
		"store: {postgres: hunter2}\n" + minimal,
		"routes: [{name: a, upstream: \"http://u:hunter2@h:99999\"}]",
	} {
		if got := strings.Join(faultLines(t, data), "\n"); strings.Contains(got, secret) {
			t.Errorf("%s\ngave\n%s", data, got)
		}
	}
}

func TestTheVariablesOfAServiceNamedFenceproxyAreNoFault(t *testing.T) {
	mustParse(t, minimal,
		"FENCEPROXY_SERVICE_HOST=10.0.0.1", "FENCEPROXY_SERVICE_PORT=8080", "FENCEPROXY_SERVICE_PORT_HTTP=8080",
		"FENCEPROXY_PORT=tcp://10.0.0.1:8080", "FENCEPROXY_PORT_8080_TCP=tcp://10.0.0.1:8080",
		"FENCEPROXY_PORT_8080_TCP_PROTO=tcp", "FENCEPROXY_PORT_8080_TCP_PORT=8080", "FENCEPROXY_PORT_8080_TCP_ADDR=10.0.0.1",
		"FENCEPROXY_CONTROL_SERVICE_HOST=10.0.0.1", "FENCEPROXY_CONTROL_PORT=tcp://10.0.0.1:8081")
	got := faultLines(t, minimal, "FENCEPROXY_PORT=8080")
	if want := "environment: FENCEPROXY_PORT: sets no key of the configuration"; len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("got %s", got)
	}
}

// Names are made from paths by joining with _, which keys contain as well.
func TestEveryKeyHasAVariableOfItsOwn(t *testing.T) {
	all := Default()
	all.Routes = []Route{newRoute(all.Defaults), newRoute(all.Defaults)}
	pathOf := map[string]string{}
	walk(reflect.ValueOf(all), "", func(path string, _ field, _ reflect.Value) {
		name := envName(path)
		if other, twice := pathOf[name]; twice {
			t.Errorf("%s sets both %s and %s", name, other, path)
		}
		pathOf[name] = path
		if overridesIn([]string{name + "=tcp://x"})[name] == nil {
			t.Errorf("%s, the variable of %s, is taken for somebody else's", name, path)
		}
	})
	for _, name := range []string{
		"FENCEPROXY_STORE_POSTGRES_DSN", "FENCEPROXY_LISTEN", "FENCEPROXY_CONTROL_LISTEN", "FENCEPROXY_LEASES_MIN_TTL",
		"FENCEPROXY_DEFAULTS_TAKEOVER_WAIT", "FENCEPROXY_ROUTES_0_UPSTREAM", "FENCEPROXY_ROUTES_1_IDEMPOTENCY_MAX_REPLY",
	} {
		if pathOf[name] == "" {
			t.Errorf("%s sets no key", name)
		}
	}
}

func TestEveryKeyCanBeSetFromTheEnvironment(t *testing.T) {
	reference := mustParse(t, minimal)
	values := map[string]string{}
	var environ []string
	walk(reflect.ValueOf(reference).Elem(), "", func(path string, f field, v reflect.Value) {
		value := strings.Trim(renderScalarOrList(v), `"`)
		values[path] = value
		environ = append(environ, fmt.Sprintf("%s=%s", envName(path), value))
	})
	got := mustParse(t, "", environ...)
	got.origin, reference.origin = nil, nil
	if !reflect.DeepEqual(got, reference) {
		t.Errorf("got  %+v\nwant %+v", got, reference)
	}
	if len(values) < 80 || !slices.Contains(environ, "FENCEPROXY_DRAIN=30s") {
		t.Errorf("only %d keys were set: %v", len(values), environ)
	}
}

func renderScalarOrList(v reflect.Value) string {
	if v.Kind() != reflect.Slice {
		return renderScalar(v, "")
	}
	texts := make([]string, v.Len())
	for i := range texts {
		texts[i] = renderScalar(v.Index(i), "")
	}
	return strings.Join(texts, ",")
}
