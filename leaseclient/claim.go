package leaseclient

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

const (
	// claimPatience bounds how long a claim is tried again without an answer, beyond what it may wait for the lease.
	claimPatience = 30 * time.Second
	// longestTurn is the longest that the server is asked to wait in one call.
	longestTurn = 5 * time.Minute
)

// Claim takes the lease of a job, with a generation higher than any before, and renews it until it is released,
// completed or lost. job is 1 to 256 bytes of printable ASCII without comma, double quote and backslash.
//
// ctx bounds the claim only; the lease's own context has the values of ctx but ends with the lease. A call that fails
// without an answer is tried again under the same name, so a lost reply does not lock its owner out: until ctx ends, and
// for at most 30 s beyond WithWait. A claim given up then releases in the background whatever it may have been granted.
//
// The error is a *HeldError, a *CompletedError, a *RefusedError, ErrUnavailable, ErrClosed, or the cause of ctx. Every
// lease must be ended, by Release, Complete or Close, or it is renewed for as long as the process lives.
func (c *Client) Claim(ctx context.Context, job string, opts ...ClaimOption) (*Lease, error) {
	o, err := c.options(opts)
	if err == nil {
		err = tokens.CheckJobID(job)
	}
	if err != nil {
		return nil, fmt.Errorf("claim lease: %w", err)
	}
	if !c.enterOpen() {
		return nil, fmt.Errorf("claim lease: %w", ErrClosed)
	}
	defer c.leave()
	spanned, span := c.span(ctx, "lease claim", attribute.String("fence.job_id", job))
	bound, cancel := context.WithCancelCause(spanned)
	defer cancel(nil)
	defer context.AfterFunc(c.closing, func() { cancel(ErrClosed) })()

	cl := &claim{c: c, parent: context.WithoutCancel(ctx), options: o, started: c.now()}
	cl.request = wire.ClaimRequest{JobID: job, Owner: c.cfg.Owner, TTL: o.ttl.Milliseconds()}
	l, err := cl.run(bound)
	if l != nil {
		span.SetAttributes(attribute.Int64("fence.generation", int64(l.generation)))
	}
	endSpan(span, err)
	if err != nil {
		return nil, fmt.Errorf("claim lease: %w", err)
	}
	return l, nil
}

// claim is one call of Claim.
type claim struct {
	c       *Client
	parent  context.Context
	options claimOptions
	started instant
	request wire.ClaimRequest
	// open tells that the server may have granted request.ClaimID without our knowing.
	open bool
}

func (cl *claim) run(ctx context.Context) (*Lease, error) {
	for {
		cl.request.ClaimID = rand.Text()
		l, err := cl.granted(ctx)
		if err == nil {
			err = cl.take(ctx, l)
		}
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, ErrLost) && cl.waitLeft() > 0:
			// It fell to somebody else while its reply was under way: stand in line again.
		default:
			return nil, err
		}
	}
}

func (cl *claim) waitLeft() time.Duration { return cl.options.wait - cl.started.elapsed(cl.c.now()) }

// granted asks until the lease is granted or refused.
func (cl *claim) granted(ctx context.Context) (*Lease, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err // before anything can have been granted
	}
	for n := 1; ; n++ {
		turn := min(max(cl.waitLeft(), 0), longestTurn)
		cl.request.Wait = turn.Milliseconds()
		sent := cl.c.now()
		out, err := cl.c.postClaim(ctx, cl.request, turn)
		if err == nil {
			return cl.c.newLease(cl.parent, cl.request, out, sent, cl.options), nil
		}
		r, code := code(err)
		switch {
		case r != nil && r.definite():
			cl.open = false
		case !errors.As(err, &unsentError{}):
			cl.open = true
		}
		switch {
		case code == wire.CodeLeaseHeld.Name && cl.waitLeft() > 0:
			n = 1
		case r != nil && r.definite():
			return nil, refusedClaim(r)
		case cl.started.elapsed(cl.c.now()) > cl.options.wait+claimPatience:
			cl.giveUp()
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if cause := pause(ctx, backoff(n, err)); cause != nil {
			cl.giveUp()
			return nil, fmt.Errorf("%w; last answer: %w", cause, err)
		}
	}
}

// postClaim makes one attempt, for which the server may wait for turn.
func (c *Client) postClaim(ctx context.Context, q wire.ClaimRequest, turn time.Duration) (out wire.ClaimResponse, err error) {
	bound := min(max(time.Duration(q.TTL)*time.Millisecond/3, leastTimeout), callTimeout)
	ctx, cancel := context.WithTimeout(ctx, turn+bound)
	defer cancel()
	if err := c.call(ctx, wire.PathClaim, q, &out); err != nil {
		return out, err
	}
	if out.JobID != q.JobID || out.Generation == 0 || out.LeaseID == "" || out.TTL <= 0 || out.ExpiresIn <= 0 {
		return out, errors.New("read answer: it grants nothing that can be used")
	}
	return out, nil
}

func refusedClaim(r *refusal) error {
	switch r.Code {
	case wire.CodeLeaseHeld.Name:
		held := &HeldError{JobID: r.JobID, Owner: r.Owner, Generation: r.Generation}
		if r.ExpiresIn != nil {
			held.ExpiresIn = time.Duration(*r.ExpiresIn) * time.Millisecond
		}
		return held
	case wire.CodeJobCompleted.Name:
		return &CompletedError{JobID: r.JobID, Result: r.Result}
	}
	return r.public()
}

// giveUp releases in the background what the claim may have been granted: the same claim id is answered with the lease.
func (cl *claim) giveUp() {
	if !cl.open {
		return
	}
	q := cl.request
	q.Wait = 0
	cl.c.background(func(ctx context.Context) {
		for n := 1; ; n++ {
			out, err := cl.c.postClaim(ctx, q, 0)
			if err == nil {
				_ = cl.c.postRelease(ctx, refOf(q, out)) // it runs out by itself
				return
			}
			if r, _ := code(err); r != nil && r.definite() || pause(ctx, backoff(n, err)) != nil {
				return
			}
		}
	})
}

// take makes a granted lease one that is renewed. If it fails the lease is released in the background.
func (cl *claim) take(ctx context.Context, l *Lease) error {
	err := cl.confirm(ctx, l)
	if err == nil && !cl.c.add(l) {
		err = ErrClosed
	}
	if err == nil {
		err = cl.settle(ctx, l)
	}
	if err == nil {
		err = l.arm(cl.options.onLost)
	}
	if err != nil {
		l.abandon(err)
	}
	return err
}

// confirm renews a lease of which little is left for sure, because its grant was long under way: the server may have
// granted it at once and may have made us wait, and the deadline counts from the sending.
func (cl *claim) confirm(ctx context.Context, l *Lease) error {
	enough := (l.ttl - l.margin) / 2
	for n := 1; l.left(cl.c.now()) < enough; n++ {
		sent := cl.c.now()
		call, cancel := context.WithTimeout(ctx, min(max(l.ttl/3, leastTimeout), callTimeout))
		answers, err := cl.c.postRenew(call, []*Lease{l})
		cancel()
		if err == nil {
			err = answers[0].err
		}
		r, code := code(err)
		switch {
		case err == nil:
			l.term = term{sent, answers[0].left - l.margin} // nobody else has it yet
			enough = l.minLeft                              // the network is slow; this is what a renewal gives
			continue
		case code == wire.CodeLeaseLost.Name:
			return l.loss(lossReason(r.Reason), nil)
		case cl.started.elapsed(cl.c.now()) > cl.options.wait+claimPatience:
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if cause := pause(ctx, backoff(n, err)); cause != nil {
			return fmt.Errorf("%w; last answer: %w", cause, err)
		}
	}
	return nil
}

// settle asks again under the same claim id, which changes nothing, for a report that is final. This is a call of its
// own so that the lease is renewed while the server waits.
func (cl *claim) settle(ctx context.Context, l *Lease) error {
	start := cl.c.now()
	for n := 1; l.predecessor != nil && l.predecessor.InFlight > 0; n++ {
		turn := min(cl.options.settle-start.elapsed(cl.c.now()), longestTurn)
		if turn <= 0 {
			return nil
		}
		q := cl.request
		q.Wait, q.Settle = 0, turn.Milliseconds()
		call, cancel := context.WithCancelCause(ctx)
		stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
		out, err := cl.c.postClaim(call, q, turn)
		stop()
		cancel(nil)
		if err == nil && out.Generation != l.generation {
			// Ours had run out unnoticed, and this was a claim.
			cl.c.background(func(ctx context.Context) { _ = cl.c.postRelease(ctx, refOf(q, out)) })
			return l.loss(ErrSuperseded, nil)
		}
		if over := l.Err(); over != nil {
			if cl.open = err != nil; errors.Is(over, ErrExpired) {
				cl.giveUp() // the call may yet arrive, and be a claim
			}
			return over
		}
		switch {
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case err == nil:
			l.predecessor = predecessorOf(out.Predecessor)
		default:
			_ = pause(ctx, backoff(n, err)) // the next round looks at ctx
		}
	}
	return nil
}
