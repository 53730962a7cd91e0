package proxy

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// sendContext is the context of a fenced write on its way to the upstream. It has no parent, ends
// when it is cancelled, and costs nothing as long as nobody waits for that: only dialling
// does, and senders that share connections. Its zero value is ready.
type sendContext struct {
	mu    sync.Mutex
	cause error         // why it ended
	done  chan struct{} // made when it is asked for
}

var _ context.Context = (*sendContext)(nil)

// cancel ends it; the first cause counts.
func (c *sendContext) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return
	}
	c.cause = cmp.Or(cause, context.Canceled)
	if c.done != nil {
		close(c.done)
	}
}

// causeOf is context.Cause for the contexts of exchanges.
func causeOf(ctx context.Context) error {
	c, ok := ctx.(*sendContext)
	if !ok {
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// Done implements context.Context.
func (c *sendContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.cause != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err implements context.Context.
func (c *sendContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return context.Canceled
	}
	return nil
}

// Deadline implements context.Context. The register keeps the time.
func (*sendContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (*sendContext) Value(any) any { return nil }
