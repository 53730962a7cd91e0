package leaseclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

const (
	// maxBatch is how many leases one call renews. The server's bound on the body holds at least twice as many.
	maxBatch = 500
	// leastPause is the shortest time between a failed renewal and the next.
	leastPause = 50 * time.Millisecond
)

// batch is one call that renews many leases.
type batch struct {
	leases []*Lease
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when its answers have had their effect
}

// batches makes the calls for the leases that are due. The client's lock is held.
func (c *Client) batches(due []*Lease, now instant) (out []*batch) {
	for len(due) > 0 {
		n := min(len(due), maxBatch)
		b := &batch{leases: due[:n:n], done: make(chan struct{})}
		due = due[n:]
		bound := callTimeout
		for _, l := range b.leases {
			// A hung call must leave time for more: a third of what is left, and never beyond it.
			left := l.left(now)
			bound = min(bound, max(left/3, min(left, leastTimeout)))
			l.renewal.batch = b
			c.replan(l)
		}
		b.ctx, b.cancel = context.WithTimeout(c.base, bound)
		c.busy++
		out = append(out, b)
	}
	return out
}

// renew makes the call of a batch.
func (c *Client) renew(b *batch) {
	defer c.leave()
	defer close(b.done)
	defer b.cancel()
	ctx, span := c.span(b.ctx, "lease renew", attribute.Int("fence.leases", len(b.leases)))
	sent := c.now()
	answers, err := c.postRenew(ctx, b.leases)
	endSpan(span, err)
	if err != nil {
		answers = make([]renewAnswer, len(b.leases))
		for i := range answers {
			answers[i].err = err
		}
	}
	for i, l := range b.leases {
		l.renewed(sent, answers[i])
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range b.leases {
		l.renewal.batch = nil
		if err := answers[i].err; err == nil {
			l.renewal.failures = 0
			l.plan(sent.mono, l.interval())
		} else {
			l.renewal.failures++
			// Soon enough for more attempts, but the last of them are not to follow each other without end.
			l.renewal.due = now.mono.Add(max(min(backoff(l.renewal.failures, err), l.left(now)/3), leastPause))
		}
		c.replan(l)
	}
}

// renewAnswer is what became of one lease: left by the server's clock, or the error.
type renewAnswer struct {
	left time.Duration
	err  error
}

// postRenew makes one attempt to renew leases. The error is for all of them.
func (c *Client) postRenew(ctx context.Context, leases []*Lease) ([]renewAnswer, error) {
	in := wire.RenewLeasesRequest{Leases: make([]wire.RenewRequest, len(leases))}
	for i, l := range leases {
		in.Leases[i] = wire.RenewRequest{JobID: l.jobID, Owner: l.owner, Generation: l.generation, LeaseID: l.secret()}
	}
	var out wire.RenewLeasesResponse
	if err := c.call(ctx, wire.PathRenewLeases, in, &out); err != nil {
		return nil, err
	}
	if len(out.Leases) != len(leases) {
		return nil, fmt.Errorf("read answer: %d leases were renewed of %d", len(out.Leases), len(leases))
	}
	answers := make([]renewAnswer, len(leases))
	for i, a := range out.Leases {
		answers[i] = readRenewal(leases[i], a)
	}
	return answers, nil
}

func readRenewal(l *Lease, a wire.RenewAnswer) renewAnswer {
	switch {
	case a.JobID != l.jobID || a.Generation != l.generation:
		return renewAnswer{err: errors.New("read answer: it is about another lease")}
	case a.Status == http.StatusOK && a.RenewResponse != nil:
		return renewAnswer{left: time.Duration(a.ExpiresIn) * time.Millisecond}
	case a.Problem == nil:
		return renewAnswer{err: fmt.Errorf("read answer: status %d without a reason", a.Status)}
	}
	return renewAnswer{err: &refusal{*a.Problem}}
}

// renewed applies the answer to a renewal that was sent at the given time. Only the server's word that the lease is lost
// ends it: everything else, a wrong credential too, may be right again before the deadline. After the deadline no answer
// has an effect.
func (l *Lease) renewed(sent instant, a renewAnswer) {
	r, code := code(a.err)
	switch {
	case l.expire(l.client.now()):
	case code == wire.CodeLeaseLost.Name:
		l.lose(l.loss(lossReason(r.Reason), nil))
	case a.err != nil:
		l.mu.Lock()
		l.failed = a.err
		l.mu.Unlock()
	default:
		l.extend(term{sent, a.left - l.margin})
	}
}
