package proxy

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

func TestACurrentWriteIsForwardedWithoutItsFence(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u := newUpstream(t, nil)
		f := newFixture(t, u.URL, sender)
		f.claim("j")
		r := f.request("j", "1", strings.NewReader("amount=1"))
		r.Header.Set("Idempotency-Key", "k1")
		r.Header.Set("X-Forwarded-For", "6.6.6.6")
		r.Header.Set("Forwarded", "for=6.6.6.6")
		got := f.send(r)
		want(t, got, 200, "forwarded", "", "applied")
		if got.Header.Get("Fence-Generation") != "1" || got.Header.Get("Idempotency-Key") != "k1" {
			t.Errorf("got headers %v", got.Header)
		}
		seen := <-u.arrived
		if seen.Header.Get("Fence-Job-Id") != "" || seen.Header.Get("Fence-Generation") != "" {
			t.Errorf("the fence reached the upstream: %v", seen.Header)
		}
		if seen.Header.Get("Idempotency-Key") != "k1" || seen.Header.Get("X-Forwarded-For") != "127.0.0.1" || !strings.HasPrefix(seen.Header.Get("Forwarded"), "for=127.0.0.1;") {
			t.Errorf("upstream saw %v", seen.Header)
		}
		if b := u.bodies[0]; string(b) != "amount=1" || seen.ContentLength != 8 {
			t.Errorf("upstream got %q, length %d", b, seen.ContentLength)
		}
	})
}

func TestAStaleWriteIsRefusedBeforeTheSuccessorsFirstWrite(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL)
	f.claim("j")
	f.takeOver("j")
	got := f.post("j", "1")
	want(t, got, 412, "refused", "stale-generation", "")
	var p wire.Problem
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Fatal(err)
	}
	if p.Type != "urn:fenceproxy:stale-generation" || p.JobID != "j" || p.Generation != 1 || p.Floor != 2 || p.Ended != tokens.Revoked || p.Retry != "never" {
		t.Errorf("got problem %+v", p)
	}
	if got.Header.Get("Fence-Generation") != "2" || got.Header.Get("Retry-After") != "" || got.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got headers %v", got.Header)
	}
	if n, c := u.count(), u.conns.Load(); n != 0 || c != 0 {
		t.Errorf("the upstream saw %d requests on %d connections", n, c)
	}
	want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
}

func TestRefusalsOfTheRules(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL)
	l := f.claim("j")
	for _, c := range []struct {
		name, job, generation, lease string
		status                       int
		reason                       string
	}{
		{"above what was issued", "j", "2", "", 412, "unissued-generation"},
		{"wrong lease id", "j", "1", l.ID + "x", 412, "lease-mismatch"},
		{"lease id on a job that was never claimed", "k", "1", l.ID, 412, "lease-mismatch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := f.request(c.job, c.generation, nil)
			if c.lease != "" {
				r.Header.Set("Fence-Lease", c.lease)
			}
			want(t, f.send(r), c.status, "refused", c.reason, "")
		})
	}
	r := f.request("j", "1", nil)
	r.Header.Set("Fence-Lease", l.ID)
	want(t, f.send(r), 200, "forwarded", "", "applied")
	if u.count() != 1 {
		t.Errorf("upstream saw %d requests, want 1", u.count())
	}
}

func TestRouteOptionsOfTheFence(t *testing.T) {
	u := newUpstream(t, nil)
	for _, c := range []struct {
		name    string
		change  func(*Route)
		prepare func(*fixture, *http.Request)
		status  int
		reason  string
	}{
		{"issued only", func(r *Route) { r.IssuedOnly = true }, nil, 412, "unknown-job"},
		{"lease required and missing", func(r *Route) { r.RequireLease = true }, func(f *fixture, _ *http.Request) { f.claim("j") }, 412, "lease-mismatch"},
		{"lease required and there", func(r *Route) { r.RequireLease = true }, func(f *fixture, r *http.Request) { r.Header.Set("Fence-Lease", f.claim("j").ID) }, 200, ""},
		{"live lease without one", func(r *Route) { r.LiveLease = true }, nil, 412, "lease-expired"},
		{"live lease with one", func(r *Route) { r.LiveLease = true }, func(f *fixture, _ *http.Request) { f.claim("j") }, 200, ""},
		{"key required", func(r *Route) { r.RequireKey = true }, nil, 400, "key-required"},
		{"key required and there", func(r *Route) { r.RequireKey = true }, func(_ *fixture, r *http.Request) { r.Header.Set("Idempotency-Key", "k") }, 200, ""},
		{"fenced methods only", func(r *Route) { r.Methods = []string{"PUT"} }, func(_ *fixture, r *http.Request) { clear(r.Header) }, 200, ""},
		{"body too large", func(r *Route) { r.BodyMax = 3 }, nil, 413, "body-too-large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, u.URL, c.change)
			r := f.request("j", "1", strings.NewReader("amount=1"))
			if c.prepare != nil {
				c.prepare(f, r)
			}
			got := f.send(r)
			if got.err != nil || got.StatusCode != c.status || got.Header.Get("Fence-Reason") != c.reason {
				t.Fatalf("got %v %v %s, want %d %q", got.Response, got.err, got.body, c.status, c.reason)
			}
		})
	}
}

func TestUnfencedRequests(t *testing.T) {
	u := newUpstream(t, nil)
	for _, c := range []struct {
		name    string
		fencing Fencing
		method  string
		header  http.Header
		status  int
		reason  string
	}{
		{"a read", FencingRequired, "GET", nil, 200, ""},
		{"a write", FencingRequired, "POST", nil, 428, "fence-required"},
		{"an unknown method", FencingRequired, "FOO", nil, 428, "fence-required"},
		{"a WebDAV read is a write to us", FencingRequired, "PROPFIND", nil, 428, "fence-required"},
		{"a read that wants to be a write", FencingRequired, "GET", http.Header{"X-Http-Method-Override": {"DELETE"}}, 428, "fence-required"},
		{"a write where fencing is optional", FencingOptional, "POST", nil, 200, ""},
		{"half a fence where fencing is optional", FencingOptional, "POST", http.Header{"Fence-Job-Id": {"j"}}, 400, "fence-invalid"},
		{"an alias where fencing is optional", FencingOptional, "POST", http.Header{"Fence_Job_Id": {"j"}}, 400, "fence-invalid"},
		{"a write where fencing is off", FencingOff, "POST", nil, 200, ""},
		{"an upgrade", FencingOff, "GET", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, 400, "request-invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, u.URL, func(r *Route) { r.Fencing = c.fencing })
			r, err := http.NewRequest(c.method, f.server.URL+"/x", strings.NewReader("b"))
			if err != nil {
				t.Fatal(err)
			}
			for k, v := range c.header {
				r.Header[k] = v
			}
			got := f.send(r)
			if got.err != nil || got.StatusCode != c.status || got.Header.Get("Fence-Reason") != c.reason {
				t.Fatalf("got %v %v %s, want %d %q", got.Response, got.err, got.body, c.status, c.reason)
			}
		})
	}
}

func TestARequestWithoutARouteIsNeverPassedThrough(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL, func(r *Route) { r.Path = "/api" })
	want(t, f.post("j", "1"), 404, "refused", "no-route", "")
	if u.count() != 0 {
		t.Error("the upstream saw it")
	}
}

func TestTheUpstreamsAnswerPassesUnchanged(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		for _, c := range []struct {
			status  int
			outcome string
		}{
			{200, "applied"}, {201, "applied"}, {204, "applied"}, {303, "applied"}, {302, "declined"}, {307, "declined"}, {304, "declined"},
			{400, "declined"}, {408, "unknown"}, {409, "declined"}, {412, "declined"}, {428, "declined"}, {429, "declined"},
			{500, "unknown"}, {502, "unknown"}, {503, "unknown"}, {504, "unknown"},
		} {
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["X-Repeat"] = []string{"a", "b"}
				w.Header()["Content-Type"] = nil
				w.Header().Set("Fence-Decision", "refused")
				w.Header().Set("Fence-Reason", "made-up")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				if c.status != 204 && c.status != 304 {
					_, _ = io.WriteString(w, "body")
				}
			})
			f := newFixture(t, u.URL, sender)
			f.server.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			got := f.post("j", "1")
			want(t, got, c.status, "forwarded", "", c.outcome)
			if len(got.Header["X-Repeat"]) != 2 || got.Header["Content-Type"] != nil || c.status != 204 && c.status != 304 && got.body != "body" {
				t.Errorf("%d: got %v %q", c.status, got.Header, got.body)
			}
			if u.count() != 1 {
				t.Errorf("%d: sent %d times", c.status, u.count())
			}
		}
	})
}

func TestRetryAfterMakesA503Declined(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(503)
	})
	want(t, newFixture(t, u.URL).post("j", "1"), 503, "forwarded", "", "declined")
}

func TestARouteOverridesTheClassOfAStatus(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	f := newFixture(t, u.URL, func(r *Route) { r.Outcomes = map[int]tokens.Outcome{500: tokens.Declined} })
	want(t, f.post("j", "1"), 500, "forwarded", "", "declined")
}

func TestAnOutsideIssuersGenerationRaisesTheFloorBeforeItIsForwarded(t *testing.T) {
	var f *fixture
	u := newUpstream(t, func(http.ResponseWriter, *http.Request) {
		snap, err := f.store.Load(context.Background(), tokens.Job{ID: "j"})
		if err != nil || snap.Record.Floor != 7 {
			t.Errorf("when the write arrived the stored floor was %d (%v), want 7", snap.Record.Floor, err)
		}
	})
	f = newFixture(t, u.URL)
	want(t, f.post("j", "7"), 200, "forwarded", "", "applied")
	want(t, f.post("j", "6"), 412, "refused", "stale-generation", "")
}

func TestWithoutTheStoreNothingIsForwarded(t *testing.T) {
	for name, mode := range map[string]tokenstest.Mode{
		"refused": tokenstest.Refuse, "written but failed": tokenstest.WriteAndFail, "unknown": tokenstest.DropAndUnknown, "hangs": tokenstest.HangDropped,
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, nil)
			f := newFixture(t, u.URL)
			want(t, f.post("j", "7"), 200, "forwarded", "", "applied")
			f.store.FailNext(mode)
			got := f.post("j", "8")
			want(t, got, 503, "refused", "store-unavailable", "")
			if got.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			want(t, f.post("j", "6"), 412, "refused", "stale-generation", "")
			if mode != tokenstest.Refuse {
				want(t, f.post("j", "7"), 503, "refused", "store-unavailable", "")
				want(t, f.post("other", "1"), 503, "refused", "store-unavailable", "")
			}
			if u.count() != 1 {
				t.Errorf("upstream saw %d writes, want 1", u.count())
			}
		})
	}
}

func TestAConnectionRefusedIsNotSent(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		got := newFixture(t, "http://127.0.0.1:1", sender).post("j", "1") // where nobody listens
		want(t, got, 502, "refused", "upstream-unreachable", "not-sent")
	})
}

func TestATimeoutIsUnknown(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		release := make(chan struct{})
		u := newUpstream(t, func(http.ResponseWriter, *http.Request) { <-release })
		defer close(release)
		f := newFixture(t, u.URL, func(r *Route) { r.Timeout = 50 * time.Millisecond })
		want(t, f.post("j", "1"), 504, "refused", "upstream-timeout", "unknown")
	})
}

func TestACallerThatHangsUpDoesNotCancelItsWrite(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		release, cancelled := make(chan struct{}), make(chan bool, 1)
		u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-release
			cancelled <- r.Context().Err() != nil
		})
		f := newFixture(t, u.URL, sender)
		ctx, hangUp := context.WithCancel(context.Background())
		answer := f.start(f.request("j", "1", strings.NewReader("x")).WithContext(ctx))
		<-u.arrived
		hangUp()
		if got := <-answer; got.err == nil {
			t.Fatal("the caller got an answer")
		}
		<-(<-f.contexts).Done() // the server has noticed
		close(release)
		if <-cancelled {
			t.Error("the upstream's request was cancelled")
		}
		eventually(t, "the outcome is counted as applied", func() bool {
			return strings.Contains(f.scrape(), `fenceproxy_outcomes_total{outcome="applied",route="default"} 1`)
		})
	})
}
