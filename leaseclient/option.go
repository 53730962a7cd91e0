package leaseclient

import (
	"fmt"
	"time"
)

// ClaimOption changes one claim.
type ClaimOption func(*claimOptions)

type claimOptions struct {
	ttl, wait, settle time.Duration
	onLost            func(error)
	complete          bool
}

// WithTTL is Config.TTL for one lease.
func WithTTL(ttl time.Duration) ClaimOption { return func(o *claimOptions) { o.ttl = ttl } }

// WithWait waits up to d for the lease to fall free. Claims that wait are served first come first served, in turns of
// five minutes.
func WithWait(d time.Duration) ClaimOption { return func(o *claimOptions) { o.wait = d } }

// WithSettle waits up to d, at most five minutes, for the writes of older generations that are still under way, so that
// Predecessor is final: its InFlight is then 0. The lease is renewed meanwhile. When the time is up the lease is
// returned all the same.
func WithSettle(d time.Duration) ClaimOption { return func(o *claimOptions) { o.settle = d } }

// WithOnLost has f called once, in a goroutine of its own, if the lease is lost: not when it is released or completed.
// The lease's context has ended before. Close does not wait for f.
func WithOnLost(f func(cause error)) ClaimOption { return func(o *claimOptions) { o.onLost = f } }

// CompleteOnSuccess has Run complete the job, with no result, when its function returns nil. It has no effect on Claim.
func CompleteOnSuccess() ClaimOption { return func(o *claimOptions) { o.complete = true } }

func (c *Client) options(opts []ClaimOption) (claimOptions, error) {
	o := claimOptions{ttl: c.cfg.TTL}
	for _, f := range opts {
		f(&o)
	}
	if o.wait < 0 || o.settle < 0 {
		return o, fmt.Errorf("wait %v and settle %v must not be negative", o.wait, o.settle)
	}
	return o, c.cfg.checkTTL(o.ttl)
}
