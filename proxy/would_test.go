package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// observing is a route that only observes at /, and one that enforces at /strict, both on
// the same jobs. The upstream holds back what has X-Slow, and fails what has X-Fail.
type observing struct {
	*fixture
	u       *upstream
	release func()
}

func newObserving(t *testing.T, change ...func(*Route)) *observing {
	release := make(chan struct{})
	u := newUpstream(t, nil)
	u.whole = make(chan struct{}, 100)
	u.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.seen, u.bodies = append(u.seen, r), append(u.bodies, b)
		u.mu.Unlock()
		if r.Header.Get("X-Slow") != "" {
			u.whole <- struct{}{}
			<-release
		}
		if r.Header.Get("X-Fail") != "" {
			w.WriteHeader(500)
		}
	})
	target, err := url.Parse(u.URL)
	if err != nil {
		t.Fatal(err)
	}
	mk := func(name, path string) Route {
		return Route{
			Name: name, Path: path, Upstream: target, Sender: NewSender(target, nil, 64), Timeout: 10 * time.Second,
			IdleTimeout: 10 * time.Second, TakeoverWait: 10 * time.Second, BodyBuffer: 1000, StoreReply: true, MaxReply: 1000,
		}
	}
	seen := mk("seen", "/")
	seen.Observe = true
	for _, c := range change {
		c(&seen)
	}
	o := &observing{fixture: newFixtureOf(t, Options{Routes: []Route{seen, mk("strict", "/strict")}}), u: u}
	done := false
	o.release = func() {
		if !done {
			done = true
			close(release)
		}
	}
	t.Cleanup(o.release)
	return o
}

// held sends a write that stays at the upstream.
func (o *observing) held(r *http.Request) <-chan reply {
	o.t.Helper()
	r.Header.Set("X-Slow", "1")
	a := o.start(r)
	<-o.u.whole
	return a
}

// strict turns a request to the route that enforces.
func strict(r *http.Request) *http.Request {
	r.URL.Path = "/strict"
	return r
}

// wantObserved checks that a write went through, and what it was told it would have got.
func wantObserved(t *testing.T, got reply, code, outcome string) {
	t.Helper()
	want(t, got, 200, "forwarded", "", outcome)
	if would := got.Header.Get("Fence-Would-Refuse"); would != code {
		t.Errorf("Fence-Would-Refuse is %q, want %q", would, code)
	}
}

func TestWhatWouldBeRefusedIsForwardedAndReported(t *testing.T) {
	keyed := func(r *http.Request, key string) *http.Request {
		r.Header.Set("Idempotency-Key", key)
		return r
	}
	for _, c := range []struct {
		code   string
		same   bool // as the one before it
		route  func(*Route)
		before func(o *observing)
		change func(r *http.Request)
	}{
		{code: "fence-required", change: func(r *http.Request) { r.Header.Del("Fence-Job-Id"); r.Header.Del("Fence-Generation") }},
		{code: "fence-invalid", change: func(r *http.Request) { r.Header.Del("Fence-Job-Id") }},
		{code: "stale-generation", before: func(o *observing) { o.claim("j"); o.takeOver("j"); o.takeOver("j") }},
		{code: "unissued-generation", before: func(o *observing) { o.claim("j") }},
		{code: "unknown-job", route: func(r *Route) { r.IssuedOnly = true }},
		{code: "lease-mismatch", route: func(r *Route) { r.RequireLease = true }},
		{code: "lease-expired", route: func(r *Route) { r.LiveLease = true }},
		{code: "key-required", route: func(r *Route) { r.RequireKey = true }},
		{
			code:   "key-reused",
			before: func(o *observing) { o.send(keyed(o.request("j", "2", strings.NewReader("other")), "k")) },
			change: func(r *http.Request) { keyed(r, "k"); r.URL.Path = "/elsewhere" },
		},
		{
			code: "already-applied", same: true,
			before: func(o *observing) { o.send(keyed(o.request("j", "2", strings.NewReader("amount=1")), "k")) },
			change: func(r *http.Request) { keyed(r, "k") },
		},
		{
			code:   "already-applied",
			route:  func(r *Route) { r.OncePerGeneration = true },
			before: func(o *observing) { o.post("j", "2") },
		},
		{
			code: "write-in-progress", same: true,
			route:  func(r *Route) { r.DuplicateWait = time.Hour },
			before: func(o *observing) { o.held(keyed(o.request("j", "2", strings.NewReader("amount=1")), "k")) },
			change: func(r *http.Request) { keyed(r, "k") },
		},
		{
			code: "outcome-unknown", same: true,
			before: func(o *observing) {
				r := keyed(o.request("j", "2", strings.NewReader("amount=1")), "k")
				r.Header.Set("X-Fail", "1")
				o.send(r)
			},
			change: func(r *http.Request) { keyed(r, "k") },
		},
		{code: "takeover-pending", before: func(o *observing) { o.held(strict(o.request("j", "1", nil))) }},
		{code: "store-unavailable", before: func(o *observing) { o.store.FailNext(tokenstest.Refuse) }},
		{code: "store-unavailable", before: func(o *observing) { o.store.HoldCommits() }},
		{code: "store-unavailable", before: func(o *observing) { o.store.HoldCommits() }, change: func(r *http.Request) { keyed(r, "k") }},
		{code: "store-unavailable", before: func(o *observing) { o.store.FailNext(tokenstest.LoadHangs) }},
	} {
		sizes := []int{0, 8, 100_000}
		if c.same {
			sizes = sizes[1:] // without a body it is another request
		}
		for _, size := range sizes {
			t.Run(fmt.Sprint(c.code, "/", size), func(t *testing.T) {
				route := c.route
				if route == nil {
					route = func(*Route) {}
				}
				o := newObserving(t, route)
				if c.before != nil {
					c.before(o)
				}
				o.u.mu.Lock()
				already := len(o.u.bodies)
				o.u.mu.Unlock()
				body := "amount=1"
				if size != len(body) {
					body = strings.Repeat("x", size)
				}
				r := o.request("j", "2", strings.NewReader(body))
				if c.change != nil {
					c.change(r)
				}
				wantObserved(t, o.send(r), c.code, "")
				o.u.mu.Lock()
				bodies := o.u.bodies[already:]
				o.u.mu.Unlock()
				if len(bodies) != 1 || string(bodies[0]) != body {
					t.Errorf("the upstream got %d writes", len(bodies))
				}
				metrics := o.scrape()
				for _, line := range []string{
					`fenceproxy_would_refuse_total{code="` + c.code + `",route="seen"} 1`,
					`fenceproxy_rejections_total{code="` + c.code + `",route="seen"} 0`,
					`fenceproxy_writes_total{decision="refused",route="seen"} 0`,
				} {
					if !strings.Contains(metrics, line+"\n") {
						t.Errorf("missing %s", line)
					}
				}
				if logs := o.logs.String(); !strings.Contains(logs, `"msg":"write would be refused"`) || !strings.Contains(logs, `"code":"`+c.code+`"`) {
					t.Errorf("logged %s", logs)
				}
				if o.store.Pending() > 0 {
					t.Error("the fault did not strike")
				}
			})
		}
	}
}

func TestAnObservedWriteRaisesTheFloorForThoseWhoEnforce(t *testing.T) {
	o := newObserving(t)
	wantObserved(t, o.post("j", "7"), "", "applied")
	want(t, o.send(strict(o.request("j", "6", nil))), 412, "refused", "stale-generation", "")
	got := o.post("j", "6")
	wantObserved(t, got, "stale-generation", "")
	if floor := got.Header.Get("Fence-Generation"); floor != "7" {
		t.Errorf("Fence-Generation is %q, want 7", floor)
	}
	// And it has changed nothing.
	want(t, o.send(strict(o.request("j", "6", nil))), 412, "refused", "stale-generation", "")
	want(t, o.send(strict(o.request("j", "7", nil))), 200, "forwarded", "", "applied")
}

func TestAnObservedKeyIsRecordedAndNotReplayed(t *testing.T) {
	o := newObserving(t)
	wantObserved(t, o.send(o.keyed("j", "7", "k", "b")), "", "applied")
	wantObserved(t, o.send(o.keyed("j", "8", "k", "b")), "already-applied", "")
	if o.u.count() != 2 {
		t.Errorf("the upstream saw %d writes, want both", o.u.count())
	}
	writes, err := o.authority.Writes(t.Context(), tokens.WritesQuery{Job: tokens.Job{ID: "j"}, Limit: 10}, "")
	if err != nil || len(writes) != 1 || writes[0].Record.Generation != 7 || writes[0].Record.State != tokens.WriteApplied {
		t.Errorf("recorded %+v, %v", writes, err)
	}
}

func TestAnObservedWriteIsNotCutByATakeover(t *testing.T) {
	for name, send := range map[string]func(o *observing, finish <-chan struct{}) <-chan reply{
		"received": func(o *observing, finish <-chan struct{}) <-chan reply {
			pr, pw := io.Pipe()
			go func() { <-finish; _, _ = io.WriteString(pw, "rest"); _ = pw.Close() }()
			r := o.request("j", "1", io.MultiReader(strings.NewReader("first "), pr))
			a := o.start(r)
			<-o.contexts
			return a
		},
		"streamed": func(o *observing, finish <-chan struct{}) <-chan reply {
			pr, pw := io.Pipe()
			go func() { <-finish; _, _ = io.WriteString(pw, "rest"); _ = pw.Close() }()
			r := o.request("j", "1", io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), pr))
			a := o.start(r)
			eventually(o.t, "it is admitted", func() bool { return o.inFlight() == 1 })
			return a
		},
		"sent whole": func(o *observing, finish <-chan struct{}) <-chan reply {
			go func() { <-finish; o.release() }()
			return o.held(o.request("j", "1", strings.NewReader("x")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObserving(t, func(r *Route) { r.AbortSent = true })
			o.claim("j")
			finish := make(chan struct{})
			a := send(o, finish)
			o.takeOver("j")
			close(finish)
			got := <-a
			outcome := "applied"
			if name == "received" {
				outcome = "" // it was never admitted
			}
			wantObserved(t, got, "stale-generation", outcome)
			want(t, o.send(strict(o.request("j", "2", nil))), 200, "forwarded", "", "applied")
			if n := o.inFlight(); n != 0 {
				t.Errorf("%d attempts are in flight", n)
			}
		})
	}
}

// inFlight is how many attempts of j the authority knows.
func (f *fixture) inFlight() int {
	f.t.Helper()
	v, err := f.authority.Job(f.t.Context(), tokens.Job{ID: "j"})
	if err != nil {
		f.t.Fatal(err)
	}
	return v.InFlight
}

func TestWhatIsNotTheFencesIsRefusedByARouteThatObserves(t *testing.T) {
	o := newObserving(t, func(r *Route) { r.BodyMax = 10 })
	for code, answer := range map[string]reply{
		"body-too-large": o.send(o.request("j", "1", strings.NewReader("01234567890"))),
		"request-invalid": func() reply {
			r := o.request("j", "1", nil)
			r.URL.Path = "/a/../b"
			return o.send(r)
		}(),
	} {
		if got := answer.Header.Get("Fence-Reason"); got != code || answer.Header.Get("Fence-Would-Refuse") != "" {
			t.Errorf("got %q, want %q", got, code)
		}
	}
	if o.u.count() != 0 {
		t.Error("the upstream saw it")
	}
}

func TestAWriteThatWouldBeRefusedIsNotSentTwiceEither(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		target, executed := dying(t)
		f := newFixture(t, target, sender, func(r *Route) { r.Observe, r.Methods = true, []string{"GET", "POST"} })
		for _, method := range []string{"GET", "POST"} {
			before := executed()
			for range 2 {
				r := f.request("j", "0", nil)
				r.Method = method
				r.Header.Set("Idempotency-Key", "k")
				f.send(r)
			}
			if n := executed() - before; n != 2 {
				t.Errorf("%s: executed %d times, want 2", method, n)
			}
		}
	})
}

func TestARouteThatObservesIsAnnounced(t *testing.T) {
	if logs := newObserving(t).logs.String(); strings.Count(logs, "only observes") != 1 || !strings.Contains(logs, `"route":"seen"`) {
		t.Errorf("logged %s", logs)
	}
}

func TestAnObservedOutcomeDoesNotWaitForAStoreThatHangs(t *testing.T) {
	o := newObserving(t)
	a := o.held(o.keyed("j", "1", "k", "b"))
	gate := o.store.HoldCommits()
	o.release()
	began := time.Now()
	wantObserved(t, <-a, "", "applied")
	if d := time.Since(began); d > 2*observeWait+5*time.Second {
		t.Errorf("the answer took %s", d)
	}
	gate.Open()
}

func TestAnObservedWritePassesTheGateAfterATakeover(t *testing.T) {
	h := &holdSender{held: make(chan *Send, 1), open: make(chan struct{})}
	o := newObserving(t, func(r *Route) { h.Sender = r.Sender; r.Sender = h })
	o.claim("j")
	a := o.start(o.request("j", "1", strings.NewReader("x")))
	b := o.request("j", "1", strings.NewReader("x"))
	b.Header.Set("X-Slow", "1")
	want(t, <-a, 200, "forwarded", "", "applied")
	late := o.start(b)
	<-h.held
	o.takeOver("j")
	close(h.open)
	<-o.u.whole
	o.release()
	wantObserved(t, <-late, "stale-generation", "applied")
}

func TestAnAdmissionThatComesTooLateIsUndone(t *testing.T) {
	o := newObserving(t)
	wantObserved(t, o.post("j", "1"), "", "applied")
	gate := o.store.HoldCommits()
	wantObserved(t, o.send(o.keyed("j", "1", "k", "b")), "store-unavailable", "")
	gate.Open()
	eventually(t, "nothing is in flight", func() bool {
		writes, err := o.authority.Writes(t.Context(), tokens.WritesQuery{Job: tokens.Job{ID: "j"}, Limit: 10}, "")
		return err == nil && len(writes) == 1 && writes[0].Record.State == tokens.WriteNotSent && o.inFlight() == 0
	})
	wantObserved(t, o.send(o.keyed("j", "1", "k", "b")), "", "applied")
}

func TestObservingOpensNoDoor(t *testing.T) {
	u := newUpstream(t, nil)
	f := newDoorFixture(t, u.URL, true, func(r *Route) { r.Observe = true })
	want(t, f.do(f.as("stranger"), "POST", "job", "1", ""), 403, "refused", "forbidden", "")
	want(t, f.do(f.as("c"), "POST", "not-mine", "1", ""), 403, "refused", "forbidden", "")
	if u.conns.Load() != 0 {
		t.Error("the upstream was spoken to")
	}
}
