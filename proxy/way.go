package proxy

import (
	"context"
	"sync"
	"time"
)

// way is the context of a fenced write on its way to the upstream. It has no parent, ends
// when it is cancelled, and costs nothing as long as nobody waits for that: only dialling
// does, and senders that share connections. Its zero value is ready.
type way struct {
	mu    sync.Mutex
	ended bool
	done  chan struct{} // made when it is asked for
}

var _ context.Context = (*way)(nil)

// cancel ends it. Why it was ended only the exchange knows.
func (w *way) cancel(error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended && w.done != nil {
		close(w.done)
	}
	w.ended = true
}

// Done implements context.Context.
func (w *way) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = make(chan struct{})
		if w.ended {
			close(w.done)
		}
	}
	return w.done
}

// Err implements context.Context.
func (w *way) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return context.Canceled
	}
	return nil
}

// Deadline implements context.Context. The register keeps the time.
func (*way) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (*way) Value(any) any { return nil }
