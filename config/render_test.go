package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// sameAfterRedacted reads what Redacted prints and compares.
func sameAfterRedacted(t *testing.T, c *Config) {
	t.Helper()
	printed, err := c.Redacted()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("redacted", printed, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	first, second := *c, *again
	first.origin, second.origin = nil, nil
	if !reflect.DeepEqual(first, second) {
		t.Errorf("got  %+v\nwant %+v\nprinted\n%s", second, first, printed)
	}
}

func TestTheEffectiveConfigurationReadsBackTheSame(t *testing.T) {
	sameAfterRedacted(t, mustParse(t, minimal))
	sameAfterRedacted(t, mustParse(t, `
store: {badger: {dir: "/var/lib/é \"x\" #y: z\\ 🙂"}}
leases: {max_ttl: 1h30m}
defaults: {namespace: "2024", methods: [PUT, TRUE1], body: {max: 1234567}}
routes:
  - {name: "null", path: "/a:b", hosts: [off, "1.2", a.b], upstream: "https://[::1]:8443/@a", namespace: "~x", timeout: 1ms}
  - {name: "-", path: /-, upstream: https://a, namespace: "-a", upstream_tls: {server_name: ".inf", ca_file: "0x10a"}}
`))
}

func TestSecretsAreNotPrinted(t *testing.T) {
	c := mustParse(t, "routes: [{name: a, upstream: \"https://user:hunter2@a/b\"}, {name: b, path: /b, upstream: \"https://hunter2@b\"}]")
	// Engines that do not pass Validate yet must not leak either.
	for _, dsn := range []string{
		"postgres://user:hunter2@h/d?sslmode=require&sslpassword=hunter2", "postgresql://h/d?password=hunter2",
		"host=h password=hunter2 user=u", "host=h password = 'a \\' hunter2' user=u", "hunter2", "PASSWORD=hunter2",
		"postgres://user:hunter2@h:bad port/", "host='password=' password=hunter2", "postgres://u@h/d?PassWord=hunter2",
	} {
		c.Store.Postgres.DSN = dsn
		c.Store.Etcd.Endpoints = []string{"https://u:hunter2@e:2379", "u:hunter2@e"}
		printed, err := c.Redacted()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(printed), "hunter2") {
			t.Errorf("%s gave\n%s", dsn, printed)
		}
		if !strings.Contains(string(printed), "https://REDACTED@a/b") {
			t.Errorf("the rest of an upstream is gone:\n%s", printed)
		}
	}
	if got := redactDSN("host=h password=hunter2 user=u"); got != "host=h password=REDACTED user=u" {
		t.Errorf("got %s", got)
	}
	if got := redactDSN("postgres://user:hunter2@h/d?sslmode=require"); got != "postgres://user:REDACTED@h/d?sslmode=require" {
		t.Errorf("got %s", got)
	}
	if got := redactDSN("postgres:///d"); got != "postgres:///d" {
		t.Errorf("got %s", got)
	}
}

// FuzzParse: reading never panics, every error is Faults, and a configuration
// without secrets reads back from its own print as the same.
func FuzzParse(f *testing.F) {
	sample, err := os.ReadFile(sampleFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample, "")
	f.Add([]byte(minimal), "FENCEPROXY_ROUTES_0_NAMESPACE=x")
	f.Add([]byte("routes: [{name: a, upstream: http://a, methods: [PUT], outcomes: {applied: [500]}}]"), "FENCEPROXY_DRAIN=1s")
	f.Add([]byte("a: &x [*x]\n<<: *x\n? {b}\n: !!c d"), "FENCEPROXY_ROUTES_1_NAME=a")
	f.Add([]byte("listen: |\n  a\n---\n- {"), "FENCEPROXY_")
	f.Fuzz(func(t *testing.T, data []byte, variable string) {
		c, err := Parse("fuzz", data, []string{variable})
		if err != nil {
			faults, ok := err.(Faults)
			if !ok || len(faults) == 0 || c != nil {
				t.Fatalf("Parse = %v, %T %v", c, err, err)
			}
			for _, fault := range faults {
				if strings.Contains(fault.String(), "\n") {
					t.Errorf("the fault %q breaks its line", fault)
				}
			}
			return
		}
		printed, err := c.Redacted()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(printed), redacted) {
			sameAfterRedacted(t, c)
		}
	})
}
