package tokens_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestANewerWriteWaitsUntilTheOlderOneIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		older := p.sent(7)
		newer := newWrite(j1, 8)
		admitted := p.admitLater(newer)
		time.Sleep(3 * time.Second)
		admitted.waiting(t)
		if older.cuts.Load() != 0 {
			t.Error("an attempt that was sent whole was cut")
		}
		if got := p.Settle(&older.Attempt, tokens.Applied); got != 8 {
			t.Errorf("settling the older attempt answered floor %d, want 8", got)
		}
		admitted.answered(t, nil, 3*time.Second)
		if newer.Waited != 3*time.Second || !newer.Took || !newer.Gate() {
			t.Errorf("waited %v, took over %v", newer.Waited, newer.Took)
		}
	})
}

func TestANewerWriteWaitsForEveryOlderOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		older := []*write{p.sent(7), p.sent(7), p.sent(7)}
		admitted := p.admitLater(newWrite(j1, 8))
		for _, w := range older {
			admitted.waiting(t)
			time.Sleep(time.Second)
			p.Settle(&w.Attempt, tokens.Applied)
			p.Settle(&w.Attempt, tokens.Applied) // the second counts for nothing
		}
		admitted.answered(t, nil, 3*time.Second)
	})
}

func TestATakeoverIsPendingAfterExactlyTheTakeoverWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		older := p.sent(7)
		newer := newWrite(j1, 8)
		admitted := p.admitLater(newer)
		time.Sleep(10*time.Second - time.Nanosecond)
		admitted.waiting(t)
		time.Sleep(time.Nanosecond)
		admitted.answered(t, tokens.ErrTakeoverPending, 10*time.Second)
		if newer.Waited != 10*time.Second || p.inFlight() != 1 {
			t.Errorf("waited %v; %d attempts are registered", newer.Waited, p.inFlight())
		}
		// The floor has risen all the same, and a later try goes through.
		p.refused(7, tokens.ErrStaleGeneration)
		p.Settle(&older.Attempt, tokens.OutcomeUnknown)
		p.admit(8)
	})
}

func TestAWriteThatMayNotWaitIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.sent(7)
		w := newWrite(j1, 8)
		w.TakeoverWait = 0
		p.admitLater(w).answered(t, tokens.ErrTakeoverPending, 0)
	})
}

func TestWritesOfOneGenerationDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		for range 5 {
			w := newWrite(j1, 7)
			p.admitLater(w).answered(t, nil, 0)
			w.Gate()
		}
	})
}

func TestATakeoverCutsWhatIsBeingSentAndWaitsForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		older := p.sending(7)
		admitted := p.admitLater(newWrite(j1, 8))
		if older.cuts.Load() == 0 {
			t.Fatal("an attempt whose body was not sent whole was not cut")
		}
		if older.Gate() {
			t.Error("the gate is open to an attempt that was cut")
		}
		older.SentWhole() // too late to be waited for
		if ref := p.Overtaken(&older.Attempt); !errors.Is(ref, tokens.ErrStaleGeneration) || ref.Floor != 8 || ref.Ended != tokens.Superseded {
			t.Errorf("its caller is told %+v", ref)
		}
		time.Sleep(time.Second)
		admitted.waiting(t) // until its connection is closed
		p.Settle(&older.Attempt, tokens.OutcomeUnknown)
		admitted.answered(t, nil, time.Second)
	})
}

func TestATakeoverVetoesWhatHasNotPassedTheGateAndDoesNotWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		older := p.admit(7)
		newer := newWrite(j1, 8)
		p.admitLater(newer).answered(t, nil, 0)
		if !newer.Gate() {
			t.Error("the newer attempt was vetoed")
		}
		if older.Gate() {
			t.Error("the gate let the older attempt through beside the newer one")
		}
		if older.cuts.Load() != 1 {
			t.Errorf("the vetoed attempt was told %d times", older.cuts.Load())
		}
		if p.inFlight() != 1 {
			t.Errorf("%d attempts are registered, want the newer one", p.inFlight())
		}
		p.Settle(&older.Attempt, tokens.NotSent)
		if p.inFlight() != 1 {
			t.Error("settling a vetoed attempt took another one off the books")
		}
		p.Settle(&newer.Attempt, tokens.Applied)
	})
}

func TestARouteMayAbortWhatWasSentWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		older := newWrite(j1, 7)
		older.AbortSent = true
		p.admitLater(older).answered(t, nil, 0)
		older.Gate()
		older.SentWhole()
		admitted := p.admitLater(newWrite(j1, 8))
		if older.cuts.Load() == 0 {
			t.Error("it was not cut")
		}
		admitted.waiting(t)
		p.Settle(&older.Attempt, tokens.OutcomeUnknown)
		admitted.answered(t, nil, 0)
	})
}

// Everything that raises the floor overtakes, not only writes.
func TestEveryWayToRaiseTheFloorOvertakes(t *testing.T) {
	for name, raise := range map[string]func(p *process, l tokens.Lease) error{
		"claim": func(p *process, _ tokens.Lease) error {
			time.Sleep(time.Minute)
			_, err := p.Claim(p.t.Context(), request("b", time.Minute), 0, 0)
			return err
		},
		"release": func(p *process, l tokens.Lease) error {
			_, err := p.Release(p.t.Context(), refOf(l), 0, "")
			return err
		},
		"complete": func(p *process, l tokens.Lease) error {
			_, err := p.Complete(p.t.Context(), refOf(l), nil, 0, "")
			return err
		},
		"revoke": func(p *process, _ tokens.Lease) error { _, err := p.Revoke(p.t.Context(), j1, 0, ""); return err },
		"fence":  func(p *process, _ tokens.Lease) error { _, err := p.Fence(p.t.Context(), j1, 50, ""); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, tokens.Options{})
				l := p.claim("a", time.Minute).Lease
				watched := newWrite(j1, l.Generation)
				if err := p.Watch(t.Context(), &watched.Attempt); err != nil {
					t.Fatal(err)
				}
				before, during, after := p.admit(l.Generation), p.sending(l.Generation), p.sent(l.Generation)
				if err := raise(p, l); err != nil {
					t.Fatal(err)
				}
				if before.Gate() || during.Gate() || !after.Gate() {
					t.Error("the gate is not closed to exactly those that were not sent whole")
				}
				if watched.cuts.Load() == 0 || before.cuts.Load() == 0 || during.cuts.Load() == 0 || after.cuts.Load() != 0 {
					t.Errorf("cut: watched %d, before the gate %d, sending %d, sent %d", watched.cuts.Load(), before.cuts.Load(), during.cuts.Load(), after.cuts.Load())
				}
				p.refused(l.Generation, tokens.ErrStaleGeneration)
			})
		})
	}
}

func TestAWriteIsJudgedAfreshAfterItWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		older := p.sent(7)
		eight := p.admitLater(newWrite(j1, 8))
		time.Sleep(time.Second)
		nine := p.admitLater(newWrite(j1, 9))
		eight.answered(t, tokens.ErrStaleGeneration, time.Second)
		nine.waiting(t)
		p.Settle(&older.Attempt, tokens.Applied)
		nine.answered(t, nil, 0)
	})
}

// Waiters of 8 that are let go at once hold 9 up like anybody else.
func TestWritesThatWaitedTogetherAreAdmittedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		older := p.sent(7)
		writes := []*write{newWrite(j1, 8), newWrite(j1, 8), newWrite(j1, 8)}
		var admitted []*later
		for _, w := range writes {
			admitted = append(admitted, p.admitLater(w))
		}
		if p.inFlight() != 1 {
			t.Errorf("%d attempts are registered while they wait", p.inFlight())
		}
		p.Settle(&older.Attempt, tokens.Applied)
		for i, a := range admitted {
			a.answered(t, nil, 0)
			writes[i].Gate()
			writes[i].SentWhole()
		}
		nine := p.admitLater(newWrite(j1, 9))
		for _, w := range writes {
			nine.waiting(t)
			p.Settle(&w.Attempt, tokens.Applied)
		}
		nine.answered(t, nil, 0)
	})
}

func TestAWaitEndsWithItsContextAndRegistersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.sent(7)
		gone := errors.New("the caller has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		w := newWrite(j1, 8)
		admitted := background(func() error { return p.Admit(ctx, &w.Attempt) })
		admitted.waiting(t)
		cancel(gone)
		admitted.answered(t, gone, 0)
		if p.inFlight() != 1 {
			t.Errorf("%d attempts are registered", p.inFlight())
		}
	})
}

func TestAJobHasALimitOfWritesInFlightOrWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{MaxPerJob: 2})
		first := p.sent(7)
		p.sent(7)
		// What is being taken over does not count, or nobody could take it over.
		waiter := p.admitLater(newWrite(j1, 8))
		waiter.waiting(t)
		another := p.admitLater(newWrite(j1, 8))
		another.waiting(t)
		if ref := p.refused(8, tokens.ErrOverloaded); ref.Floor != 8 {
			t.Errorf("the refusal says floor %d", ref.Floor)
		}
		other := newWrite(tokens.Job{ID: "another job"}, 1)
		p.admitLater(other).answered(t, nil, 0)
		p.refused(7, tokens.ErrStaleGeneration) // judged before the limit
		p.SetMaxPerJob(3)
		third := p.admitLater(newWrite(j1, 8))
		third.waiting(t)
		p.refused(8, tokens.ErrOverloaded)
		p.Settle(&first.Attempt, tokens.Applied)
	})
}
