package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/internal/certs"
	"github.com/fenceproxy/fenceproxy/internal/certs/certstest"
)

func TestAReloadTakesOverRoutesAndBounds(t *testing.T) {
	r := newRig(t).start()
	if got := r.post(http.DefaultClient, r.dataURL(), "j"); got.body != "/a/x" {
		t.Fatalf("got %q", got.body)
	}
	short := `{"job_id":"k","owner":"o","ttl_ms":1500}`
	if got := r.call("/v1/lease/claim", short); got.StatusCode != 201 {
		t.Fatalf("got %d %s", got.StatusCode, got.body)
	}
	r.configure(r.route("b"), "leases: {min_ttl: 2s}", "drain: 1s", "log: {level: debug}", "limits: {max_in_flight: 7, max_in_flight_per_job: 3}")
	r.reload()
	if got := r.post(http.DefaultClient, r.dataURL(), "j"); got.body != "/b/x" {
		t.Errorf("got %q", got.body)
	}
	if got := r.call("/v1/lease/claim", short); got.StatusCode != 400 || !strings.Contains(got.body, "ttl_ms") {
		t.Errorf("got %d %s", got.StatusCode, got.body)
	}
	if got := r.d.cfg.Load().Drain; got != time.Second {
		t.Errorf("the drain takes %s", got)
	}
	r.d.log.Debug("seen")
	logs := r.logs.String()
	if !strings.Contains(logs, `"msg":"seen"`) || !strings.Contains(logs, `"msg":"reloaded","routes":1,"added":["b"],"removed":["a"]`) {
		t.Error("the log does not tell of the reload, or its level has not changed")
	}
	if got := r.metric(`fenceproxy_config_reloads_total{result="ok"}`); got != "1" {
		t.Errorf("the metrics count %s reloads", got)
	}
}

func TestAReloadIsTakenOverAsAWholeOrNotAtAll(t *testing.T) {
	r := newRig(t).start()
	for name, tt := range map[string]struct {
		routes string
		top    []string
		says   []string
	}{
		"a fault in the file":      {r.route("b", "timeout: never"), nil, []string{"fenceproxy.yaml:7:14: routes[0].timeout"}},
		"a file that is missing":   {strings.Replace(r.route("b", "upstream_tls: {ca_file: DIR/gone.pem}"), "http:", "https:", 1), []string{"log: {level: debug}"}, []string{"gone.pem"}},
		"what needs a restart":     {r.route("b"), []string{"headers: {lease: Other}", "log: {level: debug}"}, []string{"headers.lease: is Fence-Lease in the running proxy, and a change needs a restart"}},
		"another listener":         {r.route("b"), []string{"control: {listen: 127.0.0.1:1}"}, []string{"control.listen: is 127.0.0.1:0 in the running proxy"}},
		"several faults, all told": {strings.Replace(r.route("b", "upstream_tls: {ca_file: DIR/gone.pem}"), "http:", "https:", 1), []string{"headers: {lease: Other}"}, []string{"gone.pem", "headers.lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{T: t, dir: r.dir, file: r.file, up: r.up, d: r.d}
			r.configure(tt.routes, tt.top...)
			err := r.d.reload(r.load)
			if err == nil {
				t.Fatal("the reload was accepted")
			}
			for _, say := range tt.says {
				if !strings.Contains(err.Error(), say) {
					t.Errorf("%q does not say %q", err, say)
				}
			}
			if got := r.post(http.DefaultClient, r.dataURL(), "j"); got.body != "/a/x" {
				t.Errorf("the route is another: %q", got.body)
			}
			if r.d.cfg.Load().Log.Level != "info" || r.d.log.Enabled(t.Context(), -4) {
				t.Error("the level has changed")
			}
		})
	}
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	r.refused("fenceproxy.yaml", "the running configuration stays")
	if got := r.metric(`fenceproxy_config_reloads_total{result="refused"}`); got != "6" {
		t.Errorf("the metrics count %s refused reloads", got)
	}
	r.configure(r.route("c"))
	r.reload()
	if got := r.post(http.DefaultClient, r.dataURL(), "j"); got.body != "/c/x" {
		t.Errorf("after the faults were mended: %q", got.body)
	}
}

func TestADrainingProxyIsNotReloaded(t *testing.T) {
	r := newRig(t).start()
	if !r.d.proxy.Drain(t.Context()) {
		t.Fatal("nothing was under way")
	}
	r.configure(r.route("b"))
	r.refused("the proxy is draining")
}

func TestARouteKeepsItsConnectionsWhileItsWayToTheUpstreamIsTheSame(t *testing.T) {
	r := newRig(t)
	pool := func(before *senders, routes string) *senders {
		t.Helper()
		r.configure(routes)
		cfg, err := r.load()
		if err != nil {
			t.Fatal(err)
		}
		m := &material{upstreams: []*certs.Client{{}}}
		m.upstreams[0].Digest[0] = byte(len(cfg.Routes[0].UpstreamTLS.ServerName))
		out := newSenders(before)
		if _, err := proxyRoutes(cfg, m, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	secure := func(more ...string) string { return strings.Replace(r.route("a", more...), "http:", "https:", 1) }
	first := pool(nil, secure())
	for name, tt := range map[string]struct {
		routes string
		same   bool
	}{
		"other options":  {secure("timeout: 1s", "path: /y", "fencing: optional"), true},
		"another path":   {strings.Replace(secure(), "/a\n", "/z\n", 1), true},
		"another host":   {strings.Replace(secure(), "127.0.0.1", "127.0.0.2", 1), false},
		"another scheme": {r.route("a"), false},
		"other trust":    {secure("upstream_tls: {server_name: x}"), false},
		"another name":   {strings.Replace(secure(), "name: a", "name: b", 1), false},
	} {
		next := pool(first, tt.routes)
		for key, sender := range next.now {
			if same := first.now[key] == sender; same != tt.same {
				t.Errorf("%s: the same sender %v, want %v", name, same, tt.same)
			}
		}
		if len(next.now) != 1 {
			t.Errorf("%s: %d senders", name, len(next.now))
		}
	}
}

// Two at once, as two signals could be: each is whole.
func TestReloadsAtOnceUnderLoad(t *testing.T) {
	r := newRig(t).start()
	files := map[string]loader{}
	for _, name := range []string{"a", "b"} {
		r.configure(r.route(name))
		cfg, err := r.load()
		if err != nil {
			t.Fatal(err)
		}
		files[name] = func() (*config.Config, error) { c := *cfg; return &c, nil }
	}
	var load, reload sync.WaitGroup
	var stop atomic.Bool
	for range 4 {
		load.Go(func() {
			for !stop.Load() {
				if got := r.post(http.DefaultClient, r.dataURL(), "j"); got.StatusCode != 200 || got.body != "/a/x" && got.body != "/b/x" {
					t.Errorf("got %d %q", got.StatusCode, got.body)
					return
				}
			}
		})
	}
	for _, load := range files {
		reload.Go(func() {
			for range 100 {
				if err := r.d.reload(load); err != nil {
					t.Error(err)
				}
			}
		})
	}
	reload.Wait()
	stop.Store(true)
	load.Wait()
	if got := r.metric(`fenceproxy_config_reloads_total{result="ok"}`); got != "200" {
		t.Errorf("%s reloads, want 200", got)
	}
}

func TestAReloadTakesOtherPrincipals(t *testing.T) {
	r := newRig(t)
	list := func(token string) {
		t.Helper()
		sum := sha256.Sum256([]byte(token))
		certstest.WriteFile(t, filepath.Join(r.dir, "auth.yaml"), fmt.Appendf(nil, "principals: [{name: a, token_sha256: %x, roles: [worker]}]\n", sum))
	}
	claims := func(token string) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, "http://"+r.d.controlAddr()+"/v1/lease/claim", strings.NewReader(`{"job_id":"j","owner":"o","ttl_ms":60000,"claim_id":"c"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		return r.do(http.DefaultClient, req).StatusCode
	}
	list("first")
	r.configure(r.route("a"), "auth: {file: DIR/auth.yaml}")
	r.start()
	if got := claims("first"); got != 201 {
		t.Fatalf("got %d", got)
	}
	certstest.WriteFile(t, filepath.Join(r.dir, "auth.yaml"), []byte("principals: [{name: a}]\n"))
	r.refused("auth.yaml:1:14: principals[0].roles")
	if got := claims("first"); got != 200 {
		t.Errorf("after a refused reload: %d", got)
	}
	list("second")
	if got := claims("second"); got != 401 {
		t.Errorf("before the reload: %d", got)
	}
	r.reload()
	if first, second := claims("first"), claims("second"); first != 401 || second != 200 {
		t.Errorf("after the reload: %d for the old token, %d for the new one", first, second)
	}
}
