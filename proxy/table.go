package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fenceproxy/fenceproxy/internal/auth"
)

// table is what the proxy serves by: all that a reload changes, as one. A request keeps
// the table that it was found a route in to its end.
type table struct {
	routes routes
	most   int64 // requests being served
	// principals are who may write by these routes; nil if certificates mean nothing.
	principals *auth.Principals
	// users counts the requests that go by the table; retired tells that another
	// has taken its place.
	users   atomic.Int64
	retired atomic.Bool
}

// newTable checks the routes and resolves what is resolved once.
func (p *Proxy) newTable(given []Route, most int, who *auth.Principals) (*table, error) {
	if len(given) == 0 {
		return nil, errors.New("no routes")
	}
	if most == 0 {
		most = 10_000
	}
	rs := make([]*route, 0, len(given))
	for _, r := range given {
		if r.Upstream == nil || r.Sender == nil || !strings.HasPrefix(r.Path, "/") || r.Timeout <= 0 || r.IdleTimeout <= 0 {
			return nil, fmt.Errorf("route %q needs an upstream, a sender, a path and timeouts", r.Name)
		}
		rs = append(rs, &route{
			Route: r,
			base:  strings.TrimSuffix(r.Upstream.EscapedPath(), "/"),
			loose: loosely(r.Path),
		})
	}
	for _, rt := range rs {
		p.metrics.AddRoutes(rt.Name)
		rt.metrics = p.metrics.Route(rt.Name)
		if rt.Observe && rt.Fencing != FencingOff {
			p.log.Warn("route only observes: what its fence would refuse is forwarded", "route", rt.Name)
		}
	}
	return &table{routes: newRoutes(rs), most: int64(most), principals: who}, nil
}

// SetRoutes replaces the routes, the bound on the requests being served (10,000 if zero),
// and who may write, all at once: no request meets a new route with the principals of
// before, which may be nobody. A request goes on by the route that it came in by, to its outcome, if Recheck
// does not cut it; the barrier
// is the job's, so a newer generation waits for it on whatever route. Senders that stay
// keep their connections, those of others are closed as they fall idle. After an error
// nothing has changed.
func (p *Proxy) SetRoutes(given []Route, maxInFlight int, who *auth.Principals) error {
	t, err := p.newTable(given, maxInFlight, who)
	if err != nil {
		return fmt.Errorf("set routes: %w", err)
	}
	old := p.table.Swap(t)
	old.retired.Store(true)
	p.closeUnused(old)
	return nil
}

// enter returns the table of now for one request.
func (p *Proxy) enter() *table {
	for {
		t := p.table.Load()
		t.users.Add(1)
		if p.table.Load() == t {
			return t
		}
		// It was replaced between the two steps, perhaps by one who saw no user.
		p.leave(t)
	}
}

// leave ends a request's use of a table. What the last one leaves behind in connections
// nobody would use again.
func (p *Proxy) leave(t *table) {
	if t.users.Add(-1) == 0 && t.retired.Load() {
		p.closeUnused(t)
	}
}

// closeUnused closes the idle connections of old's senders that the table of now has
// not taken over.
func (p *Proxy) closeUnused(old *table) {
	now := p.table.Load()
	for _, rt := range old.routes {
		if !slices.ContainsFunc(now.routes, func(r *route) bool { return r.Sender == rt.Sender }) {
			rt.Sender.CloseIdle()
		}
	}
}
