package leaseclient_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
	"github.com/fenceproxy/fenceproxy/tokens"
)

func job(id string) tokens.Job { return tokens.Job{ID: id} }

func TestAPanicInRunLeavesNothingHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, u := newRig(t), newUpstream()
		c := r.client(leaseclient.Config{})
		var written <-chan error
		func() {
			defer func() {
				if v := recover(); v != "the work is broken" {
					t.Errorf("recovered %v", v)
				}
			}()
			_ = c.Run(context.Background(), "j", func(_ context.Context, l *leaseclient.Lease) error {
				written = u.write(t, l)
				panic("the work is broken")
			})
		}()
		if err := <-written; !errors.Is(err, leaseclient.ErrReleased) {
			t.Errorf("its write: %v", err)
		}
		synctest.Wait()
		r.free("j")
		r.still()
	})
}

func TestRunReleasesOrCompletes(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name      string
		opts      []leaseclient.ClaimOption
		f         func(context.Context, *leaseclient.Lease) error
		want      error
		completed bool
	}{
		{"released after success", nil, func(context.Context, *leaseclient.Lease) error { return nil }, nil, false},
		{"released after failure", []leaseclient.ClaimOption{leaseclient.CompleteOnSuccess()}, func(context.Context, *leaseclient.Lease) error { return broken }, broken, false},
		{"completed on success", []leaseclient.ClaimOption{leaseclient.CompleteOnSuccess()}, func(context.Context, *leaseclient.Lease) error { return nil }, nil, true},
		{"completed by the function", nil, func(ctx context.Context, l *leaseclient.Lease) error { return l.Complete(ctx, 1) }, nil, true},
		{"released by the function", []leaseclient.ClaimOption{leaseclient.CompleteOnSuccess()}, func(ctx context.Context, l *leaseclient.Lease) error { return l.Release(ctx) }, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				if err := r.client(leaseclient.Config{}).Run(context.Background(), "j", c.f, c.opts...); !errors.Is(err, c.want) {
					t.Errorf("%v", err)
				}
				_, err := r.rival("j")
				if completed := errors.Is(err, tokens.ErrJobCompleted); completed != c.completed || !completed && err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

func TestRunReportsALossTogetherWithWhatTheFunctionSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.line.set(always(wire.PathRenewLeases, hang))
		broken := errors.New("cancelled half way")
		for _, returned := range []error{broken, nil} {
			err := r.client(leaseclient.Config{}).Run(context.Background(), "j", func(ctx context.Context, _ *leaseclient.Lease) error {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), leaseclient.ErrExpired) {
					t.Errorf("the work ended with %v", context.Cause(ctx))
				}
				return returned
			})
			if !errors.Is(err, leaseclient.ErrLost) || !errors.Is(err, leaseclient.ErrExpired) || returned != nil && !errors.Is(err, broken) {
				t.Errorf("%v", err)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestRunEndsWithItsContextAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := r.client(leaseclient.Config{}).Run(ctx, "j", func(ctx context.Context, l *leaseclient.Lease) error {
			<-ctx.Done()
			if l.Context().Err() != nil {
				t.Error("the lease ended with the caller's context")
			}
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		r.free("j")
	})
}
