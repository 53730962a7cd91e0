package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWorkerWhoseClaimWasAnsweredIntoTheVoidGetsTheSameLease(t *testing.T) {
	t.Parallel()
	s := open(t)
	wire := newRelay(t, s.proxy.ControlURL())
	w := s.hire("worker", wire.url(), time.Minute)
	wire.drop(true)
	w.order("claim job")
	s.until("two replies are lost", func() bool { _, dropped := wire.seen(); return dropped >= 2 })
	wire.drop(false)
	if got := w.hear(); got.Error != "" || got.Generation != 1 {
		t.Fatalf("%+v", got)
	}
	w.writes("write")
	w.does("release")
	s.claim("job", "next", long)
}

func TestWorkerThatIsCutOffStopsBeforeAnybodyElseBegins(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*relay){
		"no byte passes":   func(r *relay) { r.hang(true) },
		"replies are lost": func(r *relay) { r.drop(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			wire := newRelay(t, s.proxy.ControlURL())
			const ttl = 3 * time.Second
			w := s.hire("cut off", wire.url(), ttl)
			w.claims("job")
			w.writes("before")
			cut(wire)
			if name == "replies are lost" {
				// The server goes on renewing, so nobody else gets the lease; the worker can not know.
				w.loses()
				if got := s.left("job"); got <= 0 {
					t.Errorf("the server did not act on renewals whose replies were lost: %v left", got)
				}
				w.fire()
				s.takeOver("job", "rival", long)
				return
			}
			rival := s.takeOver("job", "rival", long)
			granted := time.Now()
			lost := w.loses()
			if lost.at.After(granted) || lost.Why != "expired" {
				t.Errorf("the loss was known %v after the rival's claim: %+v", lost.at.Sub(granted), lost)
			}
			w.order("write late")
			if got := w.hear(); !got.Lost {
				t.Errorf("%+v", got)
			}
			wire.hang(false) // a late 200 revives nothing
			w.order("state")
			if got := w.hear(); got.State != "lost" {
				t.Errorf("%+v", got)
			}
			s.unseen("late")
			s.forwarded(s.send(write(rival, "rival", "")), 200, "applied")
			if len(w.lost) != 0 {
				t.Error("the loss was told twice")
			}
			t.Logf("lost %v before the rival's claim", granted.Sub(lost.at).Round(time.Millisecond))
		})
	}
}

func TestWorkerOutlivesAnOutageThatIsShorterThanItsLease(t *testing.T) {
	t.Parallel()
	s := open(t)
	wire := newRelay(t, s.proxy.ControlURL())
	w := s.hire("worker", wire.url(), 9*time.Second)
	w.claims("job")
	wire.hang(true)
	s.until("a renewal has failed", func() bool { return w.does("state").State == "uncertain" })
	wire.hang(false)
	s.until("a renewal has succeeded", func() bool { return w.does("state").State == "held" })
	if got := w.does("state"); got.Generation != 1 || len(w.lost) != 0 {
		t.Errorf("%+v", got)
	}
	w.writes("after")
}

func TestWorkerWithAWrongWallClockIsFencedAllTheSame(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"WRONG_WALL=-1h", "WRONG_WALL=1h", "WRONG_DRIFT=0.1", "WRONG_DRIFT=-0.1"} {
		t.Run(wrong, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			wire := newRelay(t, s.proxy.ControlURL())
			const ttl = 3 * time.Second
			w := s.hire("worker", wire.url(), ttl, wrong)
			w.claims("job")
			first := time.Now()
			s.until("it was renewed twice", func() bool { return time.Since(first)+time.Duration(w.does("state").LeftMS)*time.Millisecond > 2*ttl })
			w.writes("held")
			if len(w.lost) != 0 {
				t.Fatal("a wrong clock lost the lease")
			}
			wire.hang(true)
			cut := time.Now()
			lost := w.loses()
			if took := lost.at.Sub(cut); took > ttl {
				t.Errorf("the lease of %v was believed for %v", ttl, took)
			}
			s.takeOver("job", "rival", long)
			if granted := time.Now(); granted.Before(lost.at) {
				t.Error("the rival had the job before the loss was known")
			}
			w.order("raw late")
			if got := w.hear(); got.Reason != "stale-generation" {
				t.Errorf("%+v", got)
			}
			s.unseen("late")
		})
	}
}

// A clock that jumps ahead can not be told from a machine that was suspended.
func TestWorkerWhoseClockJumpsAheadStops(t *testing.T) {
	t.Parallel()
	s := open(t)
	file := filepath.Join(t.TempDir(), "wall")
	w := s.hire("worker", "", 10*time.Second, "WRONG_FILE="+file)
	w.claims("job")
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		// Back first: that ends nothing.
		if err := os.WriteFile(file+".new", fmt.Append(nil, by), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		if by < 0 {
			w.writes("back")
		}
	}
	if lost := w.loses(); lost.Why != "expired" {
		t.Errorf("%+v", lost)
	}
	w.order("write late")
	if got := w.hear(); !got.Lost {
		t.Errorf("%+v", got)
	}
	s.unseen("late")
}
