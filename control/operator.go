package control

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

func (s *server) revoke(r *http.Request) (reply, *wire.Problem) {
	var q wire.RevokeRequest
	if p := read(r, wire.MaxBody, &q); p != nil {
		return reply{}, p
	}
	var c checks
	c.job("job_id", q.JobID)
	if q.Expected != 0 {
		c.generation("expected_generation", q.Expected)
	}
	c.reason(q.Reason)
	if c.p != nil {
		return reply{}, c.p
	}
	key, p := s.own(r, q.JobID)
	if p != nil {
		return reply{}, p
	}
	v, err := s.Authority.Revoke(detached(r), key, q.Expected, traceOf(r).parent)
	return s.changed(r, action{name: "revoke", job: key, generation: q.Expected, reason: q.Reason}, v, err)
}

func (s *server) fence(r *http.Request) (reply, *wire.Problem) {
	var q wire.FenceRequest
	if p := read(r, wire.MaxBody, &q); p != nil {
		return reply{}, p
	}
	var c checks
	c.job("job_id", q.JobID)
	c.generation("floor", q.Floor)
	c.reason(q.Reason)
	if c.p != nil {
		return reply{}, c.p
	}
	key, p := s.own(r, q.JobID)
	if p != nil {
		return reply{}, p
	}
	v, err := s.Authority.Fence(detached(r), key, q.Floor, traceOf(r).parent)
	return s.changed(r, action{name: "fence", job: key, floor: q.Floor, reason: q.Reason}, v, err)
}

func (s *server) reopen(r *http.Request) (reply, *wire.Problem) {
	var q wire.ReopenRequest
	if p := read(r, wire.MaxBody, &q); p != nil {
		return reply{}, p
	}
	var c checks
	c.job("job_id", q.JobID)
	c.reason(q.Reason)
	if c.p != nil {
		return reply{}, c.p
	}
	key, p := s.own(r, q.JobID)
	if p != nil {
		return reply{}, p
	}
	v, err := s.Authority.Reopen(detached(r), key)
	return s.changed(r, action{name: "reopen", job: key, reason: q.Reason}, v, err)
}

// detached is the context of an operator's change. It outlives the caller, so that the
// audit line tells what happened; the Authority bounds its time.
func detached(r *http.Request) context.Context { return context.WithoutCancel(r.Context()) }

// action is what an operator asked for.
type action struct {
	name, reason string
	job          tokens.Job
	// generation and floor are those of the request, until the job's own are
	// known.
	generation, floor tokens.Generation
}

// changed answers an operator and writes the audit line, also for an action that was
// refused: somebody tried.
func (s *server) changed(r *http.Request, a action, v tokens.View, err error) (reply, *wire.Problem) {
	result := "ok"
	var (
		p    *wire.Problem
		view wire.JobView
	)
	if err != nil {
		p = s.refuse(r, subject{job: a.job.ID, generation: a.generation}, err)
		result = p.Code
	} else {
		view = jobView(v)
		a.generation, a.floor = view.Generation, view.Floor
		if !callerOf(r).Has(auth.Worker | auth.Viewer) {
			// Who only raises floors is told of the floor, not of the job's holders.
			view.Lease, view.Past, view.Result, view.RaisedAt, view.RaisedBy = nil, []wire.PastView{}, nil, "", ""
		}
	}
	s.Logger.InfoContext(r.Context(), "operator action", "action", a.name, "result", result, "job_id", a.job.ID, "namespace", a.job.Namespace,
		"generation", a.generation, "floor", a.floor, "reason", a.reason, "who", callerOf(r).Name(), "remote", r.RemoteAddr, "trace_id", traceOf(r).id)
	return reply{body: view}, p
}

func (s *server) job(r *http.Request) (reply, *wire.Problem) {
	var c checks
	q := c.query(r, "id")
	c.job("id", q["id"])
	if c.p != nil {
		return reply{}, c.p
	}
	key, p := s.own(r, q["id"])
	if p != nil {
		return reply{}, p
	}
	v, err := s.Authority.Job(r.Context(), key)
	if err != nil {
		return reply{}, s.refuse(r, subject{job: q["id"]}, err)
	}
	return reply{body: jobView(v)}, nil
}

func (s *server) jobs(r *http.Request) (reply, *wire.Problem) {
	var c checks
	q := c.query(r, "prefix", "state", "limit", "cursor")
	if q["prefix"] != "" {
		c.job("prefix", q["prefix"])
	}
	if q["cursor"] != "" {
		c.job("cursor", q["cursor"])
	}
	state := tokens.State(q["state"])
	if state != "" && !slices.Contains(tokens.States(), state) {
		c.fail("state", "is %q; it is one of %v", state, tokens.States())
	}
	limit := c.limit(q["limit"])
	if c.p != nil {
		return reply{}, c.p
	}
	// One more than is shown, so that a cursor is given only if something follows. A
	// prefix of the caller's comes after the other: neither a job nor a cursor is
	// ever that of somebody else.
	var views []tokens.View
	who := callerOf(r)
	for _, prefix := range who.Within(q["prefix"]) {
		more, _, err := s.Authority.List(r.Context(), tokens.ListQuery{
			Namespace: who.Namespace(), Prefix: prefix, After: tokens.Job{Namespace: who.Namespace(), ID: q["cursor"]}, Limit: limit + 1 - len(views),
		}, state)
		if err != nil {
			return reply{}, s.refuse(r, subject{}, err)
		}
		views = append(views, more...)
	}
	var out wire.JobsResponse
	if len(views) > limit {
		views = views[:limit]
		out.Cursor = views[limit-1].Job.ID
	}
	out.Jobs = make([]wire.JobView, len(views))
	for i, v := range views {
		out.Jobs[i] = jobView(v)
	}
	return reply{body: out}, nil
}

// query reads the parameters that an endpoint knows, each at most once.
func (c *checks) query(r *http.Request, known ...string) map[string]string {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		c.fail("query", "can not be read: %v", err)
		return nil
	}
	out := make(map[string]string, len(known))
	for name, v := range values {
		switch {
		case !slices.Contains(known, name):
			c.fail(name, "is not a known parameter; known are %s", strings.Join(known, ", "))
		case len(v) > 1:
			c.fail(name, "is given %d times", len(v))
		default:
			out[name] = v[0]
		}
	}
	return out
}

func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	wire.WriteJSON(w, http.StatusOK, wire.TypeJSON, wire.HealthResponse{Status: "ok"})
}

// ready says whether writes are served, and if not why. The reason may name directories
// and hosts, so where there are principals only they are told.
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	err := s.Ready()
	if err == nil {
		wire.WriteJSON(w, http.StatusOK, wire.TypeJSON, wire.HealthResponse{Status: "ready"})
		return
	}
	code, ok := wire.ForError(err)
	if !ok || code.Status != http.StatusServiceUnavailable {
		code = wire.CodeOverloaded // its title includes shutting down
	}
	p := wire.NewProblem(code, fmt.Sprintf("no writes are served: %v", err))
	if ps := s.Principals.Load(); ps != nil && identify(r, ps) == nil {
		p.Detail = "no writes are served; ask with a credential for the reason"
	}
	p.RetryAfter = storeRetry
	p.Write(w)
}
