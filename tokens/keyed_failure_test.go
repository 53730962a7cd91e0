package tokens_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// Issue case 9: the upstream did it, and the store does not take the news.
func TestAnOutcomeThatCanNotBeRecordedIsUnknownNeverFree(t *testing.T) {
	for name, fault := range map[string]tokenstest.Mode{
		"refused": tokenstest.Refuse, "lost": tokenstest.DropAndUnknown, "written, reply lost": tokenstest.WriteAndFail,
	} {
		for _, outcome := range []tokens.Outcome{tokens.Applied, tokens.Declined, tokens.NotSent} {
			t.Run(name+"/"+outcome.String(), func(t *testing.T) {
				p := start(t, tokens.Options{})
				w := p.begin(keyed(7, "k"))
				p.store.FailNext(fault)
				err := p.Record(t.Context(), &w.Attempt, tokens.Settlement{Outcome: outcome, Status: 200})
				wantErr(t, err, tokens.ErrStoreUnavailable)
				p.Settle(&w.Attempt, outcome)
				if fault == tokenstest.Refuse {
					p.deny(keyed(7, "k"), tokens.ErrOutcomeUnknown)
				} else if err := p.Admit(t.Context(), &keyed(7, "k").Attempt); !errors.Is(err, tokens.ErrStoreUnavailable) {
					t.Errorf("after a commit of unknown outcome: %v", err)
				}
				next := keyed(7, "k")
				err = p.crash(tokens.Options{}).Admit(t.Context(), &next.Attempt)
				switch {
				case fault != tokenstest.WriteAndFail:
					wantErr(t, err, tokens.ErrOutcomeUnknown)
				case outcome == tokens.Applied:
					wantErr(t, err, tokens.ErrAlreadyApplied)
				case err != nil:
					t.Error(err)
				}
			})
		}
	}
}

func TestAStartThatCanNotBeMadeDurableSendsNothing(t *testing.T) {
	for _, fault := range []tokenstest.Mode{tokenstest.Refuse, tokenstest.DropAndUnknown, tokenstest.WriteAndFail, tokenstest.LoadFails} {
		p := start(t, tokens.Options{})
		p.Settle(&p.admit(7).Attempt, tokens.Applied)
		p.store.FailNext(fault)
		w := keyed(7, "k")
		wantErr(t, p.Admit(t.Context(), &w.Attempt), tokens.ErrStoreUnavailable)
		if p.inFlight() != 0 {
			t.Errorf("mode %d: an attempt is registered", fault)
		}
		q := p.crash(tokens.Options{})
		if fault == tokenstest.WriteAndFail {
			q.deny(keyed(7, "k"), tokens.ErrOutcomeUnknown)
		} else {
			q.begin(keyed(7, "k"))
		}
	}
}

// A takeover that is committed together with the start of a write vetoes it.
func TestAStartThatIsOvertakenInItsOwnCommitSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.Settle(&p.admit(7).Attempt, tokens.Applied)
		gate := p.store.HoldCommits()
		p.admitLater(keyed(7, "first")) // so that what follows travels together
		gate.Arrived()
		w := keyed(7, "k")
		admitted := p.admitLater(w)
		claimed := background(func() error { _, err := p.Claim(t.Context(), request("b", time.Hour), 0, 0); return err })
		synctest.Wait()
		gate.Open()
		claimed.answered(t, nil, 0)
		admitted.answered(t, nil, 0)
		if w.Gate() || w.cuts.Load() != 1 {
			t.Fatalf("the gate let it through; it was cut %d times", w.cuts.Load())
		}
		// Its record still stands in the way of the successor.
		p.deny(keyed(8, "k"), tokens.ErrWriteInProgress)
		p.finish(w, tokens.Settlement{Outcome: tokens.NotSent})
		p.finish(p.begin(keyed(8, "k")), applied())
		// The first one was registered when the claim came, and vetoed as well.
		if got := p.inFlight(); got != 0 {
			t.Errorf("%d attempts are registered", got)
		}
	})
}

// wantNothingAlive fails if an attempt was left behind under the key: it may be unknown
// or free, but nobody can be working on it.
func wantNothingAlive(t *testing.T, p *process, key string) {
	t.Helper()
	synctest.Wait()
	if p.inFlight() != 0 {
		t.Errorf("%d attempts are registered", p.inFlight())
	}
	w := keyed(7, key)
	if err := p.Admit(t.Context(), &w.Attempt); errors.Is(err, tokens.ErrWriteInProgress) {
		t.Error("an attempt that nobody has is in flight")
	}
}

func TestACallerThatLeavesWhileItsWriteStartsLeavesNoAttemptBehind(t *testing.T) {
	for _, fault := range []tokenstest.Mode{tokenstest.Healthy, tokenstest.Refuse} {
		synctest.Test(t, func(t *testing.T) {
			p := start(t, tokens.Options{})
			p.Settle(&p.admit(7).Attempt, tokens.Applied)
			gate := p.store.HoldCommits()
			if fault != tokenstest.Healthy {
				p.store.FailNext(fault)
			}
			ctx, cancel := context.WithCancel(t.Context())
			w := keyed(7, "k")
			left := background(func() error { return p.Admit(ctx, &w.Attempt) })
			gate.Arrived()
			cancel()
			synctest.Wait()
			gate.Open()
			synctest.Wait()
			if !left.done.Load() {
				t.Fatal("it does not return")
			}
			if left.err == nil {
				// It is admitted all the same, and the caller settles it.
				p.deny(keyed(7, "k"), tokens.ErrWriteInProgress)
				p.finish(w, tokens.Settlement{Outcome: tokens.NotSent})
			}
			wantNothingAlive(t, p, "k")
		})
	}
}

func TestACallerThatLeavesBeforeItsWriteIsDecidedStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.Settle(&p.admit(7).Attempt, tokens.Applied)
		gate := p.store.HoldCommits()
		p.admitLater(keyed(7, "first"))
		gate.Arrived()
		ctx, cancel := context.WithCancel(t.Context())
		w := keyed(7, "k")
		left := background(func() error { return p.Admit(ctx, &w.Attempt) })
		left.waiting(t)
		cancel()
		synctest.Wait()
		gate.Open()
		left.answered(t, context.Canceled, 0)
		if w := p.Known(t.Context(), j1, "k"); w != nil {
			t.Errorf("it was recorded: %+v", w)
		}
	})
}

// On a shared store a start may be decided twice. One that was decided, lost against
// another process, and was left by its caller before the second time, has not begun.
func TestAStartThatLostAConflictAndItsCallerHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startShared(t, tokens.Options{})
		p.Settle(&p.admit(7).Attempt, tokens.Applied)
		gate := p.store.HoldCommits()
		ctx, cancel := context.WithCancel(t.Context())
		w := keyed(7, "k")
		left := background(func() error { return p.Admit(ctx, &w.Attempt) })
		gate.Arrived()
		snap, err := p.mem.Load(t.Context(), j1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.mem.Commit(t.Context(), tokens.Change{Job: j1, Expect: snap.Version, Record: snap.Record}); err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		gate.Open()
		left.answered(t, context.Canceled, 0)
		wantNothingAlive(t, p, "k")
	})
}
