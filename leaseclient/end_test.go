package leaseclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
)

// upstream is a RoundTripper whose answers come when it is told, or when the request ends.
type upstream struct {
	got  chan *http.Request
	send chan *http.Response
}

func newUpstream() *upstream {
	return &upstream{got: make(chan *http.Request, 10), send: make(chan *http.Response, 10)}
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	u.got <- r
	select {
	case resp := <-u.send:
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// write sends a write in the background and returns when it is outstanding.
func (u *upstream) write(t *testing.T, l *leaseclient.Lease) <-chan error {
	t.Helper()
	req := post(t, context.Background())
	done := make(chan error, 1)
	go func() {
		resp, err := l.Transport(u).RoundTrip(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		done <- err
	}()
	<-u.got
	return done
}

func ok() *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("done"))}
}

func TestReleaseWaitsForAnOutstandingWriteAndRenewsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, u := newRig(t), newUpstream()
		l := r.claim(r.client(leaseclient.Config{}), "j")
		written := u.write(t, l)
		released := make(chan error, 1)
		go func() { released <- l.Release(context.Background()) }()
		time.Sleep(5 * time.Minute)
		select {
		case err := <-released:
			t.Fatalf("released before the write was done: %v", err)
		default:
		}
		if _, err := l.Transport(u).RoundTrip(post(t, l.Context())); !errors.Is(err, leaseclient.ErrReleased) {
			t.Errorf("a new write: %v", err)
		}
		if n := len(r.line.seen(wire.PathRenewLeases)); n < 29 || l.Context().Err() != nil {
			t.Errorf("%d renewals, %v", n, l)
		}
		u.send <- ok()
		if err := <-written; err != nil {
			t.Error(err)
		}
		if err := <-released; err != nil {
			t.Error(err)
		}
		if context.Cause(l.Context()) != leaseclient.ErrReleased || l.State() != leaseclient.Lost {
			t.Errorf("afterwards %v, %v", l, context.Cause(l.Context()))
		}
		r.free("j")
		r.still()
		if err := l.Release(context.Background()); err != nil {
			t.Errorf("a second release: %v", err)
		}
	})
}

func TestReleaseWhoseContextEndsCutsTheWriteAndReleasesAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, u := newRig(t), newUpstream()
		l := r.claim(r.client(leaseclient.Config{}), "j")
		written := u.write(t, l)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 writes") {
			t.Errorf("%v", err)
		}
		if err := <-written; !errors.Is(err, leaseclient.ErrReleased) {
			t.Errorf("the write: %v", err)
		}
		synctest.Wait()
		r.free("j")
		r.still()
	})
}

func TestReleaseWithAContextThatHasEndedReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client(leaseclient.Config{})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for name, end := range map[string]func(*leaseclient.Lease) error{
			"released":  func(l *leaseclient.Lease) error { return l.Release(ctx) }, // the usual deferred one
			"completed": func(l *leaseclient.Lease) error { return l.Complete(ctx, nil) },
		} {
			if err := end(r.claim(c, name)); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			r.free(name) // and not completed: nothing of that was sent
		}
	})
}

func TestReleaseDuringARenewalInFlight(t *testing.T) {
	for name, f := range map[string]fault{"that hangs": hang, "that is slow": late(500 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				c := r.client(leaseclient.Config{})
				l := r.claim(c, "j")
				r.line.set(always(wire.PathRenewLeases, f))
				for len(r.line.seen(wire.PathRenewLeases)) == 0 {
					time.Sleep(time.Millisecond)
				}
				start := time.Now()
				if err := l.Release(context.Background()); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d > time.Second {
					t.Errorf("it took %v", d)
				}
				r.free("j")
				r.still()
			})
		})
	}
}

func TestARenewalBrokenOffByAReleaseIsMadeAgainForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.client(leaseclient.Config{})
		a, b := r.claim(c, "a"), r.claim(c, "b")
		r.line.set(func(c call, nth int) fault {
			if c.path == wire.PathRenewLeases && nth == 1 {
				return hang
			}
			return nil
		})
		for len(r.line.seen(wire.PathRenewLeases)) == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := a.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if b.State() != leaseclient.Held || time.Until(b.Deadline()) < 25*time.Second {
			t.Errorf("%v until %v", b, time.Until(b.Deadline()))
		}
	})
}

func TestACompletionWhoseReplyIsLostIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.claim(r.client(leaseclient.Config{}), "j")
		r.line.set(func(c call, nth int) fault {
			if c.path == wire.PathComplete && nth == 1 {
				return dropReply
			}
			return nil
		})
		if err := l.Complete(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		if l.Err() != leaseclient.ErrCompleted || l.Complete(context.Background(), nil) != nil || l.Release(context.Background()) != nil {
			t.Errorf("%v", l.Err())
		}
		r.still()
	})
}

func TestACompletionWithoutAnAnswerCanBeRepeatedAndIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.claim(r.client(leaseclient.Config{}), "j")
		r.line.set(always(wire.PathComplete, dropReply))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := l.Complete(ctx, nil); !errors.Is(err, leaseclient.ErrUnavailable) {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if l.Err() != nil || len(r.line.seen(wire.PathRenewLeases)) != 0 {
			t.Fatalf("%v after %d renewals", l.Err(), len(r.line.seen(wire.PathRenewLeases)))
		}
		// It did take effect, so the release finds the job completed by this very generation.
		if err := l.Release(context.Background()); err != nil || l.Err() != leaseclient.ErrCompleted {
			t.Errorf("%v, %v", err, l.Err())
		}
		r.still()
	})
}

func TestACompletionOfALostJobIsALossAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.claim(r.client(leaseclient.Config{}), "j")
		r.line.set(always(wire.PathRenewLeases, hang))
		time.Sleep(26 * time.Second)
		l2, err := r.authority.Revoke(context.Background(), job("j"), 0, "")
		if err != nil {
			t.Fatal(l2, err)
		}
		r.free("j")
		if err := l.Complete(context.Background(), 1); !errors.Is(err, leaseclient.ErrRevoked) {
			t.Errorf("%v", err)
		}
		if err := l.Complete(context.Background(), strings.Repeat("x", 20<<10)); err == nil || errors.Is(err, leaseclient.ErrLost) {
			t.Errorf("a result that is too large: %v", err)
		}
	})
}
