package control

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

func writes(list []tokens.ListedWrite) []wire.Write {
	out := make([]wire.Write, len(list))
	for i, l := range list {
		out[i] = wire.WriteFrom(l)
	}
	return out
}

// writes lists the keyed writes of a job, or the unresolved ones of all jobs.
func (s *server) writes(r *http.Request) (reply, *wire.Problem) {
	var c checks
	q := c.query(r, "job_id", "state", "limit")
	if q["job_id"] != "" {
		c.job("job_id", q["job_id"])
	}
	state := tokens.WriteState(q["state"])
	if state != "" && !slices.Contains(tokens.WriteStates(), state) {
		c.fail("state", "is %q; it is one of %v", state, tokens.WriteStates())
	}
	limit := c.limit(q["limit"])
	if c.p != nil {
		return reply{}, c.p
	}
	query := tokens.WritesQuery{Limit: limit, Open: state == tokens.WriteUnknown || state == tokens.WriteInFlight}
	if q["job_id"] == "" {
		return s.writesOfAll(r, query, state)
	}
	var p *wire.Problem
	if query.Job, p = s.own(r, q["job_id"]); p != nil {
		return reply{}, p
	}
	list, err := s.Authority.Writes(r.Context(), query, state)
	if err != nil {
		return reply{}, s.refuse(r, subject{job: q["job_id"]}, err)
	}
	return reply{body: wire.WritesResponse{Writes: writes(list)}}, nil
}

// writesOfAll lists the writes of all jobs that the caller may see: without principals
// those of every namespace.
func (s *server) writesOfAll(r *http.Request, query tokens.WritesQuery, state tokens.WriteState) (reply, *wire.Problem) {
	who := callerOf(r)
	if who == s.anyone {
		list, err := s.Authority.Writes(r.Context(), query, state)
		if err != nil {
			return reply{}, s.refuse(r, subject{}, err)
		}
		return reply{body: wire.WritesResponse{Writes: writes(list)}}, nil
	}
	var all []tokens.ListedWrite
	limit := query.Limit
	for _, prefix := range who.Within("") {
		query.Limit = limit - len(all)
		more, err := s.Authority.WritesUnder(r.Context(), who.Namespace(), prefix, query, state)
		if err != nil {
			return reply{}, s.refuse(r, subject{}, err)
		}
		all = append(all, more...)
	}
	return reply{body: wire.WritesResponse{Writes: writes(all)}}, nil
}

// limit reads the length of a page.
func (c *checks) limit(v string) int {
	if v == "" {
		return wire.DefaultPage
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > wire.MaxPage {
		c.fail("limit", "is %q; it is a whole number from 1 to %d", v, wire.MaxPage)
	}
	return n
}

// resolve records what an operator found out about a write whose outcome is unknown.
func (s *server) resolve(r *http.Request) (reply, *wire.Problem) {
	var q wire.ResolveRequest
	if p := read(r, wire.MaxBody, &q); p != nil {
		return reply{}, p
	}
	var c checks
	c.job("job_id", q.JobID)
	if what := wire.CheckText(q.Key, wire.MaxName); what != "" {
		c.fail("key", "%s", what)
	}
	if q.Outcome != tokens.VerdictApplied && q.Outcome != tokens.VerdictNotApplied {
		c.fail("outcome", "is %q; it is %q or %q", q.Outcome, tokens.VerdictApplied, tokens.VerdictNotApplied)
	}
	c.reason(q.Reason)
	if c.p != nil {
		return reply{}, c.p
	}
	key, p := s.own(r, q.JobID)
	if p != nil {
		return reply{}, p
	}
	w, err := s.Authority.Resolve(detached(r), key, q.Key, q.Outcome, s.Retention.Milliseconds())
	result := "ok"
	if err != nil {
		p = s.refuse(r, subject{job: q.JobID}, err)
		result = p.Code
	}
	s.Logger.InfoContext(r.Context(), "operator action", "action", "resolve", "result", result, "job_id", key.ID, "namespace", key.Namespace,
		"key", telemetry.HashKey(q.Key), "outcome", string(q.Outcome), "generation", w.Generation, "reason", q.Reason, "who", callerOf(r).Name(), "remote", r.RemoteAddr, "trace_id", traceOf(r).id)
	return reply{body: wire.WriteFrom(tokens.ListedWrite{Job: key, Key: q.Key, Record: w})}, p
}
