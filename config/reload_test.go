package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestWhatNeedsARestartIsRefusedAtAReload(t *testing.T) {
	base := "listen: 127.0.0.1:1\n" + minimal
	for _, tt := range []struct{ name, data, want string }{
		{"Nothing", base, ""},
		{"TheDataListener", "listen: 127.0.0.1:2\n" + minimal, "f.yaml:1:9: listen: is 127.0.0.1:1 in the running proxy, and a change needs a restart"},
		{"AKeyThatIsGone", minimal, "f.yaml:1:1: listen: is 127.0.0.1:1 in the running proxy, and a change needs a restart"},
		{"TheControlListener", "control: {listen: 127.0.0.1:3}\n" + base, "f.yaml:1:19: control.listen: is 127.0.0.1:8081 in the running proxy, and a change needs a restart"},
		{"TheStore", "store: {badger: {dir: /x}}\n" + base, "f.yaml:1:23: store.badger.dir: is ./fenceproxy-data in the running proxy, and a change needs a restart"},
		{"AHeader", "headers: {lease: L}\n" + base, "f.yaml:1:18: headers.lease: is Fence-Lease in the running proxy, and a change needs a restart"},
		{"TheHeadLimit", "limits: {max_header: 1KiB}\n" + base, "f.yaml:1:22: limits.max_header: is 64KiB in the running proxy, and a change needs a restart"},
		{"TheLogFormat", "log: {format: text}\n" + base, "f.yaml:1:15: log.format: is json in the running proxy, and a change needs a restart"},
		{"Tracing", "telemetry: {traces: none}\n" + base, "f.yaml:1:21: telemetry.traces: is auto in the running proxy, and a change needs a restart"},
		{"TLSTurnedOn", "tls: {cert_file: c, key_file: k}\n" + base, "f.yaml:1:18: tls.cert_file: turns TLS on or off, which needs a restart"},
		{"Limits", "limits: {max_in_flight: 1, max_in_flight_per_job: 1}\n" + base, ""},
		{"LeasesDrainLevel", "leases: {min_ttl: 2s, max_ttl: 3s, restart_grace: 1s}\ndrain: 1s\nlog: {level: debug}\n" + base, ""},
		{"Routes", base + "  - name: b\n    path: /b\n    upstream: http://127.0.0.1:3001\n", ""},
		{"Defaults", "defaults: {timeout: 1s}\n" + base, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := mustParse(t, tt.data).CheckReload(mustParse(t, base))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestASecretIsNotShownByARefusedReload(t *testing.T) {
	running := mustParse(t, minimal)
	running.Store.Postgres.DSN = "postgres://u:hush@h/d"
	err := mustParse(t, minimal).CheckReload(running)
	if err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v", err)
	}
}

func TestFilesMayChangeAtAReload(t *testing.T) {
	one := "tls: {cert_file: c, key_file: k}\n" + minimal
	two := "tls: {cert_file: d, key_file: e, client_ca_file: a}\n" + minimal
	if err := mustParse(t, two).CheckReload(mustParse(t, one)); err != nil {
		t.Error(err)
	}
}

// A new key has to be put on one of the lists, and its reload to be thought of.
func TestOfEveryKeyItIsKnownWhetherAReloadChangesIt(t *testing.T) {
	live := []string{
		"tls", "control.tls", "auth", "leases", "limits.max_in_flight", "limits.max_in_flight_per_job",
		"drain", "log.level", "defaults", "routes[0]",
	}
	all := Default()
	all.Routes = []Route{newRoute(all.Defaults)}
	walk(reflect.ValueOf(all), "", func(path string, _ field, _ reflect.Value) {
		isLive := slices.ContainsFunc(live, func(listed string) bool { return path == listed || strings.HasPrefix(path, listed+".") })
		if isLive == isFixed(path) {
			t.Errorf("%s: live %v, fixed %v", path, isLive, isFixed(path))
		}
	})
}
