package leaseclient_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
)

// clocks are a monotonic and a wall clock of which the second can be moved alone.
type clocks struct{ ahead atomic.Int64 }

func (c *clocks) read() (mono, wall time.Time) {
	now := time.Now()
	return now, now.Round(0).Add(time.Duration(c.ahead.Load()))
}

func TestASuspendedMachineFindsItsLeaseLostBeforeItsFirstWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var machine clocks
		l := r.claim(r.client(leaseclient.Config{}.WithClocks(machine.read)), "j")
		data := &line{handler: http.NotFoundHandler()}
		transport := l.Transport(data)
		time.Sleep(5 * time.Second)

		machine.ahead.Add(int64(10 * time.Minute)) // the monotonic clock and the timers have slept
		if _, err := transport.RoundTrip(post(t, l.Context())); !errors.Is(err, leaseclient.ErrExpired) {
			t.Errorf("the first write: %v", err)
		}
		if len(data.calls) != 0 {
			t.Error("a write was sent")
		}
		if l.Context().Err() == nil {
			t.Error("the context has not ended")
		}
	})
}

func TestASuspendedMachineThatDoesNothingEndsItsContextWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var machine clocks
		l := r.claim(r.client(leaseclient.Config{}.WithClocks(machine.read)), "j")
		time.Sleep(5*time.Second + time.Millisecond)
		machine.ahead.Add(int64(23 * time.Second))
		resumed := time.Now()
		<-l.Context().Done()
		if d := time.Since(resumed); d > time.Second {
			t.Errorf("after %v", d)
		}
	})
}

func TestAnAnswerThatComesFirstAfterASuspensionRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var machine clocks
		r.line.set(always(wire.PathRenewLeases, func(_ context.Context, serve func() *http.Response) (*http.Response, error) {
			resp := serve()
			machine.ahead.Add(int64(20 * time.Second)) // suspended while the answer was under way
			return resp, nil
		}))
		l := r.claim(r.client(leaseclient.Config{}.WithClocks(machine.read)), "j")
		for len(r.line.seen(wire.PathRenewLeases)) == 0 {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if !errors.Is(context.Cause(l.Context()), leaseclient.ErrExpired) {
			t.Errorf("%v, %v", l, l.Err())
		}
	})
}

func TestWrongWallClocks(t *testing.T) {
	for _, c := range []struct {
		name         string
		before, step time.Duration
		lost         bool
	}{
		{"an hour behind", -time.Hour, 0, false},
		{"an hour ahead", time.Hour, 0, false},
		{"set back by an hour", 0, -time.Hour, false},
		{"set forward by a second", 0, time.Second, false},
		{"set forward by an hour, as after a suspension", 0, time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var machine clocks
				machine.ahead.Store(int64(c.before))
				l := r.claim(r.client(leaseclient.Config{}.WithClocks(machine.read)), "j")
				time.Sleep(time.Minute + 5*time.Second)
				machine.ahead.Add(int64(c.step))
				time.Sleep(time.Minute)
				if lost := l.State() == leaseclient.Lost; lost != c.lost {
					t.Fatalf("%v, %v", l, l.Err())
				}
				if c.lost {
					return
				}
				// The deadline is as exact as with a right clock.
				r.line.set(func(call, int) fault { return drop })
				want := l.Deadline()
				<-l.Context().Done()
				if d := time.Since(want).Abs(); d > 10*time.Millisecond {
					t.Errorf("ended %v off the deadline", d)
				}
			})
		})
	}
}

func TestADriftingWallClockEndsTheLeaseEarlyNeverLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		start := time.Now()
		drift := func() (mono, wall time.Time) {
			now := time.Now()
			return now, now.Round(0).Add(now.Sub(start) / 20) // 5 % fast
		}
		l := r.claim(r.client(leaseclient.Config{}.WithClocks(drift)), "j")
		time.Sleep(5 * time.Minute)
		if l.State() != leaseclient.Held {
			t.Fatal(l.Err())
		}
		r.line.set(func(call, int) fault { return drop })
		last := r.line.seen(wire.PathRenewLeases)
		<-l.Context().Done()
		if d := time.Since(last[len(last)-1].at); d > 27*time.Second || d < 25*time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}
