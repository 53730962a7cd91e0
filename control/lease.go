package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

func (s *server) claim(r *http.Request) (reply, *wire.Problem) {
	var q wire.ClaimRequest
	if p := read(r, wire.MaxBody, &q); p != nil {
		return reply{}, p
	}
	var c checks
	c.job("job_id", q.JobID)
	c.name("owner", q.Owner)
	c.duration("ttl_ms", q.TTL, s.MinTTL, s.MaxTTL)
	if q.ClaimID != "" {
		c.name("claim_id", q.ClaimID)
	}
	c.duration("wait_ms", q.Wait, 0, s.MaxWait)
	c.duration("settle_ms", q.Settle, 0, s.MaxWait)
	if c.p != nil {
		return reply{}, c.p
	}
	key, p := s.own(r, q.JobID)
	if p != nil {
		return reply{}, p
	}
	t := traceOf(r)
	// The request's context ends when the caller hangs up, and so a claim that
	// nobody waits for any more leaves the queue.
	ctx := r.Context()
	if q.Wait > 0 {
		var stop context.CancelFunc
		ctx, stop = s.whileOwn(r, auth.Worker, key)
		defer stop()
	}
	g, err := s.Authority.Claim(ctx, tokens.ClaimRequest{
		Job: key, Owner: q.Owner, TTL: q.TTL, ClaimID: q.ClaimID, Trace: t.parent,
	}, milliseconds(q.Wait), milliseconds(q.Settle))
	if err != nil && errors.Is(context.Cause(ctx), errLetGo) {
		return reply{}, s.forbidden(r, q.JobID, "what this credential may do was changed while the claim waited")
	}
	if err != nil {
		return reply{}, s.refuse(r, subject{job: q.JobID}, err)
	}
	s.logTakeover(r, key, g, t)
	rep := reply{status: http.StatusCreated, result: "granted", body: claimResponse(q.JobID, g)}
	if g.Repeated {
		rep.status, rep.result = http.StatusOK, "repeated"
	}
	return rep, nil
}

func claimResponse(jobID string, g tokens.Grant) wire.ClaimResponse {
	out := wire.ClaimResponse{
		JobID: jobID, Owner: g.Lease.Owner, Generation: g.Lease.Generation, LeaseID: g.Lease.ID,
		TTL: g.Lease.TTL, ExpiresIn: g.ExpiresIn, LeaseUntil: wire.FormatTime(g.Lease.Until),
	}
	if p := g.Predecessor; p != nil {
		out.Predecessor = &wire.Predecessor{
			Generation: p.Generation, Owner: p.Owner, Ended: p.Ended, InFlight: p.InFlight,
			Writes:     wire.Writes{Applied: p.Writes.Applied, Declined: p.Writes.Declined, Unknown: p.Writes.Unknown},
			Unresolved: writes(p.Unresolved),
		}
	}
	return out
}

// logTakeover logs a claim that took the job from a generation that had not ended by
// itself.
func (s *server) logTakeover(r *http.Request, key tokens.Job, g tokens.Grant, t trace) {
	p := g.Predecessor
	if p == nil || p.Ended != tokens.Superseded || g.Repeated {
		return
	}
	s.Logger.InfoContext(r.Context(), "takeover", "job_id", key.ID, "namespace", key.Namespace,
		"generation", g.Lease.Generation, "owner", g.Lease.Owner, "who", callerOf(r).Name(),
		"old_generation", p.Generation, "old_owner", p.Owner, "in_flight", p.InFlight, "trace_id", t.id)
}

func (s *server) renew(r *http.Request) (reply, *wire.Problem) {
	var q wire.RenewRequest
	if p := read(r, wire.MaxBody, &q); p != nil {
		return reply{}, p
	}
	return s.renewOne(r, q)
}

func (s *server) renewOne(r *http.Request, q wire.RenewRequest) (reply, *wire.Problem) {
	var c checks
	s.checkRef(&c, q.JobID, q.Owner, q.Generation, q.LeaseID)
	ttl := int64(0)
	if q.TTL != nil {
		ttl = *q.TTL
		c.duration("ttl_ms", ttl, s.MinTTL, s.MaxTTL)
	}
	if c.p != nil {
		return reply{}, c.p
	}
	key, p := s.own(r, q.JobID)
	if p != nil {
		return reply{}, p
	}
	ref := tokens.LeaseRef{Job: key, Owner: q.Owner, Generation: q.Generation, LeaseID: q.LeaseID}
	n, err := s.Authority.Renew(r.Context(), ref, ttl)
	if err != nil {
		return reply{}, s.refuse(r, subject{job: q.JobID, generation: q.Generation}, err)
	}
	rep := reply{body: &wire.RenewResponse{ExpiresIn: n.ExpiresIn, LeaseUntil: wire.FormatTime(n.Lease.Until), Lapsed: n.Lapsed}}
	if n.Lapsed {
		rep.result = "lapsed"
	}
	return rep, nil
}

func (s *server) complete(r *http.Request) (reply, *wire.Problem) {
	var q wire.CompleteRequest
	if p := read(r, wire.MaxBody, &q); p != nil {
		return reply{}, p
	}
	var c checks
	s.checkRef(&c, q.JobID, q.Owner, q.Generation, q.LeaseID)
	if n := len(q.Result); n > wire.MaxResult {
		c.fail("result", "has %d bytes; at most %d are allowed, keep the rest elsewhere and its address here", n, wire.MaxResult)
	}
	c.duration("wait_ms", q.Wait, 0, s.MaxWait)
	if c.p != nil {
		return reply{}, c.p
	}
	key, p := s.own(r, q.JobID)
	if p != nil {
		return reply{}, p
	}
	ref := tokens.LeaseRef{Job: key, Owner: q.Owner, Generation: q.Generation, LeaseID: q.LeaseID}
	e, err := s.Authority.Complete(r.Context(), ref, q.Result, milliseconds(q.Wait), traceOf(r).parent)
	return s.ended(r, ref, e, err)
}

func (s *server) release(r *http.Request) (reply, *wire.Problem) {
	var q wire.ReleaseRequest
	if p := read(r, wire.MaxBody, &q); p != nil {
		return reply{}, p
	}
	var c checks
	s.checkRef(&c, q.JobID, q.Owner, q.Generation, q.LeaseID)
	c.duration("wait_ms", q.Wait, 0, s.MaxWait)
	if c.p != nil {
		return reply{}, c.p
	}
	key, p := s.own(r, q.JobID)
	if p != nil {
		return reply{}, p
	}
	ref := tokens.LeaseRef{Job: key, Owner: q.Owner, Generation: q.Generation, LeaseID: q.LeaseID}
	e, err := s.Authority.Release(r.Context(), ref, milliseconds(q.Wait), traceOf(r).parent)
	return s.ended(r, ref, e, err)
}

func (s *server) ended(r *http.Request, ref tokens.LeaseRef, e tokens.Ending, err error) (reply, *wire.Problem) {
	if err != nil {
		return reply{}, s.refuse(r, subject{job: ref.Job.ID, generation: ref.Generation}, err)
	}
	rep := reply{body: wire.EndResponse{
		JobID: ref.Job.ID, Generation: ref.Generation, Floor: e.Floor, InFlight: e.InFlight, Repeated: e.Repeated,
	}}
	if e.Repeated {
		rep.result = "repeated"
	}
	return rep, nil
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
