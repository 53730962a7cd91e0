package leaseclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// Release gives the job back, so that somebody else can claim it at once. It first waits for the outstanding writes of
// the lease's transports, and meanwhile starts no new one; then it stops the renewals and tells the server, again if
// there is no answer, until ctx ends or the deadline passes.
//
// Whatever it returns, the lease is over then and no renewal leaves the process any more. If ctx ends before the writes
// are done they are cut, and the cause of ctx is returned; if it ends before the server has answered the error is
// ErrUnavailable. In both cases the release goes on in the background for Config.Drain, so that a ctx which has ended
// already gives the job back too. What can not be released runs out by itself.
//
// A second Release, and one after Complete succeeded, returns nil; one of a lost lease returns its *LostError.
func (l *Lease) Release(ctx context.Context) error {
	if err := l.end(ctx, "release", nil); err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

// Complete marks the job as done, with a result of at most 16 KiB as JSON, or none if it is nil. Claims of it are
// refused from then on, until an operator reopens it.
//
// It waits and stops as Release does. If ctx ends before the writes are done nothing is completed: they are cut and the
// lease is released in the background. If there was no answer (ErrUnavailable) the job may or may not be completed. The
// lease is then not renewed any more, but until its deadline Complete or Release may be called again.
//
// A result that can not be encoded changes nothing.
func (l *Lease) Complete(ctx context.Context, result any) error {
	var raw json.RawMessage
	if result != nil {
		var err error
		if raw, err = json.Marshal(result); err != nil {
			return fmt.Errorf("complete job: %w", err)
		}
		if len(raw) > wire.MaxResult {
			return fmt.Errorf("complete job: the result has %d bytes, at most %d are allowed; keep the rest elsewhere and its address here", len(raw), wire.MaxResult)
		}
	}
	if err := l.end(ctx, "complete", raw); err != nil {
		return fmt.Errorf("complete job: %w", err)
	}
	return nil
}

func (l *Lease) end(ctx context.Context, how string, result json.RawMessage) (err error) {
	if err := l.takeTurn(ctx); err != nil {
		return err
	}
	defer func() { <-l.turn }()
	if over := l.Err(); over != nil {
		return l.endedAlready(over, how)
	}
	l.client.enter()
	defer l.client.leave()
	ctx, span := l.client.span(ctx, "lease "+how, attribute.String("fence.job_id", l.jobID), attribute.Int64("fence.generation", int64(l.generation)))
	defer func() { endSpan(span, err) }()

	l.mu.Lock()
	l.ending = true
	l.mu.Unlock()
	select {
	case <-l.drained():
	case <-l.ctx.Done():
		return l.Err()
	case <-ctx.Done():
		return l.cut(ctx)
	}
	if ctx.Err() != nil {
		return l.cut(ctx)
	}
	l.client.rest(ctx, l)
	if err := l.Err(); err != nil {
		return err
	}
	return l.tell(ctx, how, result)
}

// takeTurn waits while somebody else ends the lease. A turn that is free is taken though ctx has ended: a deferred
// Release must not do nothing.
func (l *Lease) takeTurn(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endedAlready says what one more ending of a lease comes to.
func (l *Lease) endedAlready(over error, how string) error {
	if !errors.Is(over, ErrLost) && (how == "release" || errors.Is(over, ErrCompleted)) {
		return nil
	}
	return over
}

// cut ends the lease because ctx has ended, though writes may be outstanding, and releases it once they have returned.
func (l *Lease) cut(ctx context.Context) error {
	l.mu.Lock()
	n := l.writes
	l.mu.Unlock()
	// The batch that may hold this lease is broken off: its other leases are renewed again at once.
	l.client.rest(ctx, l)
	l.finish(ErrReleased)
	l.releaseLater()
	if n == 0 {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%d writes were outstanding: %w", n, context.Cause(ctx))
}

// releaseLater releases in the background, after the writes that were cut have returned.
func (l *Lease) releaseLater() {
	l.client.background(func(ctx context.Context) {
		select {
		case <-l.drained():
		case <-ctx.Done():
			return
		}
		_ = l.client.postRelease(ctx, l.ref()) // it runs out by itself
	})
}

// tell sends the ending until there is an answer.
func (l *Lease) tell(ctx context.Context, how string, result json.RawMessage) error {
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	over, err := ErrReleased, error(nil)
	if how == "complete" {
		over = ErrCompleted
		l.completing = true
		err = l.client.postComplete(call, l.ref(), result)
	} else {
		err = l.client.postRelease(call, l.ref())
	}
	switch r, code := code(err); {
	case err == nil:
		l.finish(over)
	case code == wire.CodeLeaseLost.Name && l.completing && r.Reason == string(tokens.Completed):
		// An earlier Complete took effect, though its answer never came.
		l.finish(ErrCompleted)
	case code == wire.CodeLeaseLost.Name:
		l.lose(l.loss(lossReason(r.Reason), nil))
		return l.Err()
	case r != nil && r.definite():
		l.finish(ErrReleased)
		return r.public()
	case errors.Is(l.Err(), ErrLost):
		return l.Err()
	case how == "release":
		l.finish(ErrReleased)
		l.releaseLater()
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// endTimeout is the longest that one attempt to end a lease may take.
const endTimeout = 5 * time.Second

// ref names a lease in a request.
type ref = wire.ReleaseRequest

func (l *Lease) ref() ref {
	return ref{JobID: l.jobID, Owner: l.owner, Generation: l.generation, LeaseID: l.secret()}
}

func refOf(q wire.ClaimRequest, out wire.ClaimResponse) ref {
	return ref{JobID: q.JobID, Owner: q.Owner, Generation: out.Generation, LeaseID: out.LeaseID}
}

func (c *Client) postRelease(ctx context.Context, r ref) error {
	return c.untilAnswered(ctx, wire.PathRelease, r)
}

func (c *Client) postComplete(ctx context.Context, r ref, result json.RawMessage) error {
	return c.untilAnswered(ctx, wire.PathComplete, wire.CompleteRequest{
		JobID: r.JobID, Owner: r.Owner, Generation: r.Generation, LeaseID: r.LeaseID, Result: result,
	})
}

// untilAnswered repeats a call that may be repeated.
func (c *Client) untilAnswered(ctx context.Context, path string, in any) error {
	for n := 1; ; n++ {
		call, cancel := context.WithTimeout(ctx, endTimeout)
		var out wire.EndResponse
		err := c.call(call, path, in, &out)
		cancel()
		if err == nil {
			return nil
		}
		if r, _ := code(err); r != nil && r.definite() {
			return err
		}
		if cause := pause(ctx, backoff(n, err)); cause != nil {
			return fmt.Errorf("%w; last answer: %w", cause, err)
		}
	}
}
