package leaseclient

import (
	"context"
	"errors"
	"fmt"
)

// Run claims a job, calls f with the lease, and releases the lease when f is done, by return or by panic: after the
// outstanding writes, which are cut when they take longer than Config.Drain. With CompleteOnSuccess the job is completed
// instead if f returns nil. f may complete or release the job itself.
//
// The context that f gets ends with ctx and with the lease; context.Cause tells which. f has to return then: Run waits
// for it, as nothing can end it from outside. When the lease was lost, the error is that loss (ErrLost) together with
// what f returned: whatever f reports about a job that it no longer owns is not worth acting on. Otherwise it is what f
// returned, or how the claim, the completion or the release failed.
func (c *Client) Run(ctx context.Context, job string, f func(ctx context.Context, l *Lease) error, opts ...ClaimOption) (err error) {
	o, err := c.options(opts)
	if err != nil {
		return fmt.Errorf("run job: %w", err)
	}
	l, err := c.Claim(ctx, job, opts...)
	if err != nil {
		return fmt.Errorf("run job: %w", err)
	}
	defer func() {
		// Also when f panics, and then with no answer but the panic.
		if e := c.bounded(ctx, l.Release); e != nil && !errors.Is(err, ErrLost) {
			err = errors.Join(e, err)
		}
	}()
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	if err := f(work, l); err != nil {
		return err
	}
	if o.complete && !errors.Is(l.Err(), ErrReleased) {
		return c.bounded(ctx, func(ctx context.Context) error { return l.Complete(ctx, nil) })
	}
	return nil
}

// bounded runs an ending that goes on when ctx ends, for at most Config.Drain.
func (c *Client) bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Drain)
	defer cancel()
	return f(ctx)
}
