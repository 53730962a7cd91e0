package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// routeTo is a route with a sender of its own.
func routeTo(t *testing.T, name, path, upstream string, change ...func(*Route)) Route {
	t.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	r := Route{
		Name: name, Path: path, Upstream: u, Sender: NewSender(u, nil, 64),
		Timeout: 10 * time.Second, IdleTimeout: 10 * time.Second, TakeoverWait: 10 * time.Second, BodyBuffer: 1 << 20,
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func (f *fixture) setRoutes(routes ...Route) {
	f.t.Helper()
	if err := f.proxy.SetRoutes(routes, 0, nil); err != nil {
		f.t.Fatal(err)
	}
}

// held is an upstream whose answers to POSTs wait for a word.
func held(t *testing.T) (u *upstream, release func()) {
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	u = newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it is short
		<-gate
	})
	t.Cleanup(release) // before the upstream is closed
	return u, release
}

func TestAWriteOfARemovedRouteGoesOnAndTheNewerGenerationWaitsForItOnAnother(t *testing.T) {
	slow, release := held(t)
	fast := newUpstream(t, nil)
	f := newFixtureOf(t, Options{Routes: []Route{routeTo(t, "old", "/", slow.URL)}})
	one := f.claim("job")
	older := f.start(f.request("job", fmt.Sprint(one.Generation), strings.NewReader("a")))
	<-slow.arrived

	f.setRoutes(routeTo(t, "new", "/", fast.URL))
	two := f.takeOver("job")
	newer := f.start(f.request("job", fmt.Sprint(two.Generation), strings.NewReader("b")))
	select {
	case <-fast.arrived:
		t.Fatal("the newer write overtook the older one")
	case <-time.After(50 * time.Millisecond): // long enough for a broken barrier to show
	}
	release()
	want(t, <-older, 200, "forwarded", "", "applied")
	<-fast.arrived
	want(t, <-newer, 200, "forwarded", "", "applied")
	if got := f.scrape(); !strings.Contains(got, `fenceproxy_outcomes_total{outcome="applied",route="old"} 1`) ||
		!strings.Contains(got, `fenceproxy_outcomes_total{outcome="applied",route="new"} 1`) {
		t.Errorf("the routes' counts are wrong:\n%s", got)
	}
}

func TestConnectionsOfASenderThatStaysAreKeptAndOthersAreClosed(t *testing.T) {
	kept, dropped := newUpstream(t, nil), newUpstream(t, nil)
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		stays := routeTo(t, "stays", "/stays", kept.URL, sender)
		f := newFixtureOf(t, Options{Routes: []Route{stays, routeTo(t, "goes", "/goes", dropped.URL, sender)}})
		opened := kept.conns.Load()
		for _, path := range []string{"/stays", "/goes"} {
			r := f.request("job", "1", strings.NewReader("x"))
			r.URL.Path = path
			want(t, f.send(r), 200, "forwarded", "", "applied")
		}
		changed := stays
		changed.Timeout = time.Second
		f.setRoutes(changed)
		eventually(t, "the removed route's connection is closed", func() bool { return dropped.open.Load() == 0 })
		r := f.request("job", "1", strings.NewReader("x"))
		r.URL.Path = "/stays"
		want(t, f.send(r), 200, "forwarded", "", "applied")
		if got := kept.conns.Load() - opened; got != 1 {
			t.Errorf("the route that stayed used %d connections, want 1", got)
		}
	})
}

func TestTheConnectionOfARemovedRouteIsClosedWhenItsLastRequestEnds(t *testing.T) {
	next := newUpstream(t, nil)
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u := newUpstream(t, nil)
		f := newFixtureOf(t, Options{Routes: []Route{routeTo(t, "old", "/", u.URL, sender)}})
		// It is found its route, and is not sent yet.
		body, more := io.Pipe()
		pending := f.start(f.request("job", "1", body))
		if _, err := io.WriteString(more, "a"); err != nil {
			t.Fatal(err)
		}
		<-f.contexts
		eventually(t, "the write has its route", func() bool { return f.proxy.table.Load().users.Load() == 1 })
		f.setRoutes(routeTo(t, "new", "/", next.URL))
		f.setRoutes(routeTo(t, "newer", "/", next.URL))
		if err := more.Close(); err != nil {
			t.Fatal(err)
		}
		want(t, <-pending, 200, "forwarded", "", "applied")
		eventually(t, "the connection is closed", func() bool { return u.conns.Load() == 1 && u.open.Load() == 0 })
	})
}

func TestRoutesThatCanNotBeServedChangeNothing(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixtureOf(t, Options{Routes: []Route{routeTo(t, "a", "/", u.URL)}})
	bad := routeTo(t, "b", "/", u.URL)
	bad.Timeout = 0
	for _, routes := range [][]Route{nil, {bad}, {routeTo(t, "c", "/", u.URL), bad}} {
		if err := f.proxy.SetRoutes(routes, 0, nil); err == nil {
			t.Errorf("%d routes were accepted", len(routes))
		}
	}
	want(t, f.post("job", "1"), 200, "forwarded", "", "applied")
	if got := f.scrape(); strings.Contains(got, `route="c"`) || !strings.Contains(got, `fenceproxy_outcomes_total{outcome="applied",route="a"} 1`) {
		t.Errorf("the refused routes left something behind:\n%s", got)
	}
}

func TestTheBoundOnRequestsCanBeChanged(t *testing.T) {
	slow, release := held(t)
	route := routeTo(t, "a", "/", slow.URL)
	f := newFixtureOf(t, Options{Routes: []Route{route}, MaxInFlight: 1})
	first := f.start(f.request("one", "1", strings.NewReader("a")))
	<-slow.arrived
	want(t, f.post("two", "1"), 503, "refused", "overloaded", "")
	if err := f.proxy.SetRoutes([]Route{route}, 2, nil); err != nil {
		t.Fatal(err)
	}
	second := f.start(f.request("two", "1", strings.NewReader("a")))
	<-slow.arrived
	release()
	want(t, <-first, 200, "forwarded", "", "applied")
	want(t, <-second, 200, "forwarded", "", "applied")
}

// Two upstreams take turns in the table. Whatever a reply says of the route it came by
// must fit the upstream that made it, and no request may be lost.
func TestRoutesAreReplacedUnderLoadWithoutALossOrAMixUp(t *testing.T) {
	const reloads, workers = 200, 8
	answer := func(name string) *upstream {
		return newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // it is short
			w.Header().Set("X-Name", name)
			w.Header().Set("X-Base", r.URL.Path)
		})
	}
	a, b := answer("a"), answer("b")
	for _, u := range []*upstream{a, b} {
		u.forgetful.Store(true)
	}
	table := func(name string, u *upstream) []Route { return []Route{routeTo(t, name, "/", u.URL+"/"+name)} }
	one, two := table("a", a), table("b", b)
	f := newFixtureOf(t, Options{Routes: one})
	f.contexts = nil

	stop := make(chan struct{})
	var load, reload sync.WaitGroup
	var done atomic.Int64
	for w := range workers {
		load.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				r := f.request(fmt.Sprintf("job-%d", w), fmt.Sprint(i), strings.NewReader("x"))
				got := f.send(r)
				if got.err != nil || got.StatusCode != 200 || got.Header.Get("X-Base") != "/"+got.Header.Get("X-Name")+"/charge" {
					t.Errorf("write %d of worker %d: %v %+v", i, w, got.err, got.Response)
					return
				}
				done.Add(1)
			}
		})
	}
	for r := range 2 { // at once, as two signals could come
		reload.Go(func() {
			for i := range reloads / 2 {
				routes := one
				if (i+r)%2 == 0 {
					routes = two
				}
				if i%10 == 9 {
					// With senders of their own, as after a change of their settings.
					routes = table(routes[0].Name, map[string]*upstream{"a": a, "b": b}[routes[0].Name])
				}
				if err := f.proxy.SetRoutes(routes, 0, nil); err != nil {
					t.Error(err)
				}
				before := done.Load()
				eventually(t, "writes go on", func() bool { return done.Load() > before || t.Failed() })
			}
		})
	}
	reload.Wait()
	close(stop)
	load.Wait()
	t.Logf("%d writes", done.Load())
	if sum := strings.Count(f.scrape(), `fenceproxy_writes_total{decision="refused",route="a"} 0`); sum != 1 {
		t.Error("a write was refused")
	}
}
