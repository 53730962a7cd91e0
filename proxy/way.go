package proxy

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// way is the context of a fenced write on its way to the upstream. It has no parent, ends
// when it is cancelled, and costs nothing as long as nobody waits for that: only dialling
// does, and senders that share connections. Its zero value is ready.
type way struct {
	mu    sync.Mutex
	cause error         // why it ended
	done  chan struct{} // made when it is asked for
}

var _ context.Context = (*way)(nil)

// cancel ends it; the first cause counts.
func (w *way) cancel(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		return
	}
	w.cause = cmp.Or(cause, context.Canceled)
	if w.done != nil {
		close(w.done)
	}
}

// causeOf is context.Cause for the contexts of exchanges.
func causeOf(ctx context.Context) error {
	w, ok := ctx.(*way)
	if !ok {
		return context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// Done implements context.Context.
func (w *way) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = make(chan struct{})
		if w.cause != nil {
			close(w.done)
		}
	}
	return w.done
}

// Err implements context.Context.
func (w *way) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		return context.Canceled
	}
	return nil
}

// Deadline implements context.Context. The register keeps the time.
func (*way) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (*way) Value(any) any { return nil }
