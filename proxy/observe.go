package proxy

import (
	"context"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// observeWait bounds each wait for the store on a route that only observes. A store that
// is merely slow answers long before.
const observeWait = time.Second

// errSlowStore is why an observed write does not wait for the store any longer.
var errSlowStore = fmt.Errorf("%w: it took longer than an observed write waits", tokens.ErrStoreUnavailable)

// byFence reports whether a refusal is the fence's own. Where a route observes only
// those are reported instead: who may not write, and what is ambiguous, too large or too
// much, stays refused.
func (a *answer) byFence() bool {
	switch a.code {
	case wire.CodeFenceRequired, wire.CodeFenceInvalid, wire.CodeStaleGeneration, wire.CodeUnissuedGeneration,
		wire.CodeUnknownJob, wire.CodeLeaseMismatch, wire.CodeLeaseExpired, wire.CodeKeyRequired, wire.CodeKeyReused,
		wire.CodeWriteInProgress, wire.CodeAlreadyApplied, wire.CodeOutcomeUnknown, wire.CodeTakeoverPending,
		wire.CodeStoreUnavailable:
		return true
	}
	return false
}

// unfence lets a write through that would have been refused, as if its route did not
// fence it. What the authority has decided about it stays as it is.
func (ex *exchange) unfence(a *answer) {
	ex.wouldRefuse(a)
	ex.fenced = false
	ex.digest = nil
	ex.pooled = nil // nobody tells when an unfenced body has been read
}

// wouldRefuse counts and logs a refusal that does not happen.
func (ex *exchange) wouldRefuse(a *answer) {
	ex.would = a.code.Name
	ex.rt.metrics.WouldRefuse(ex.would)
	var ended tokens.Ended
	floor := ex.floor()
	if a.refusal != nil {
		ended, floor = a.refusal.Ended, a.refusal.Floor
	}
	ex.p.log.Info("write would be refused", ex.attrs("code", ex.would, "floor", uint64(floor), "ended", string(ended), "remote", ex.r.RemoteAddr)...)
}

// noteOvertaken reports an observed write during which a newer generation took over: it
// would have been cut.
func (ex *exchange) noteOvertaken() {
	if ex.fenced && ex.overtaken.Load() && ex.would == "" {
		ref := ex.p.authority.Overtaken(&ex.attempt)
		ex.wouldRefuse(&answer{code: wire.CodeStaleGeneration, refusal: ref})
	}
}

// floor is the floor of the job that the request names; zero if it names none.
func (ex *exchange) floor() tokens.Generation {
	if ex.attempt.Job.ID == "" {
		return 0
	}
	return ex.p.authority.Floor(ex.attempt.Job)
}

// watch judges the write before its body is received. Where the route observes, a takeover
// does not end the reception, so nothing is left to be told of one.
func (ex *exchange) watch(ctx context.Context) error {
	authority, at := ex.p.authority, &ex.attempt
	if !ex.rt.Observe {
		return authority.Watch(ctx, at)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, observeWait, errSlowStore)
	defer cancel()
	err := authority.Watch(ctx, at)
	authority.Unwatch(at)
	return err
}

// unwatch ends a watch.
func (ex *exchange) unwatch() {
	if !ex.rt.Observe {
		ex.p.authority.Unwatch(&ex.attempt)
	}
}

// register admits the write. Where the route observes it waits for nobody: not for older
// attempts, and not for a store that hangs. An admission that comes too late is undone,
// since by then the write has gone its way without it.
func (ex *exchange) register(ctx context.Context) error {
	authority, at := ex.p.authority, &ex.attempt
	if !ex.rt.Observe {
		return authority.Admit(ctx, at)
	}
	at.TakeoverWait, at.DuplicateWait = 0, 0
	ctx, cancel := context.WithTimeoutCause(ctx, observeWait, errSlowStore)
	admitted := make(chan error, 1)
	go func() { admitted <- authority.Admit(ctx, at) }()
	select {
	case err := <-admitted:
		cancel()
		return err
	case <-ctx.Done():
	}
	go func() {
		defer cancel()
		if <-admitted == nil {
			_ = authority.Record(context.Background(), at, tokens.Settlement{Outcome: tokens.NotSent}) // else the key is unknown
			authority.Settle(at, tokens.NotSent)
		}
	}()
	return context.Cause(ctx)
}

// commit records the outcome of a keyed write, and for an observed one waits only so long.
func (ex *exchange) commit(s tokens.Settlement) error {
	authority, at := ex.p.authority, &ex.attempt
	if !ex.rt.Observe {
		return authority.Record(context.Background(), at, s)
	}
	recorded := make(chan error, 1)
	go func() { recorded <- authority.Record(context.Background(), at, s) }()
	timer := time.NewTimer(observeWait)
	defer timer.Stop()
	select {
	case err := <-recorded:
		return err
	case <-timer.C:
		ex.late = true // it goes on, and nothing may be recorded beside it
		return errSlowStore
	}
}
