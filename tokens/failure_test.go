package tokens_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

func TestARaisedFloorIsDurableBeforeTheWriteIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		var durable atomic.Uint64
		p.store.OnCommit = func(c tokens.Change, _ tokens.Version) { durable.Store(uint64(c.Record.Floor)) }
		gate := p.store.HoldCommits()
		admitted := p.admitLater(newWrite(j1, 7))
		gate.Arrived()
		admitted.waiting(t)
		if p.inFlight() != 0 || p.Floor(j1) != 0 {
			t.Errorf("before the commit: %d attempts, floor %d", p.inFlight(), p.Floor(j1))
		}
		gate.Open()
		admitted.answered(t, nil, 0)
		if durable.Load() != 7 {
			t.Errorf("admitted with floor %d on the disk", durable.Load())
		}
		_, before := p.store.Counts()
		p.admit(7)
		if _, after := p.store.Counts(); after != before {
			t.Error("a write of the same generation was committed")
		}
	})
}

func TestAClaimRaisesTheFloorBeforeItAnswers(t *testing.T) {
	p := start(t, tokens.Options{})
	old := p.sent(7)
	var durable atomic.Uint64
	p.store.OnCommit = func(c tokens.Change, _ tokens.Version) { durable.Store(uint64(c.Record.Floor)) }
	if g := p.claim("a", time.Minute); g.Lease.Generation != 8 || durable.Load() != 8 || p.Floor(j1) != 8 {
		t.Errorf("claimed %d with floor %d on the disk and %d in memory", g.Lease.Generation, durable.Load(), p.Floor(j1))
	}
	p.refused(7, tokens.ErrStaleGeneration)
	p.Settle(&old.Attempt, tokens.Applied)
}

func TestARefusedCommitAdmitsNothingAndIsOver(t *testing.T) {
	p := start(t, tokens.Options{})
	p.store.FailNext(tokenstest.Refuse)
	p.refused(7, tokens.ErrStoreUnavailable)
	if p.inFlight() != 0 || p.Err() != nil {
		t.Errorf("%d attempts are registered; %v", p.inFlight(), p.Err())
	}
	p.admit(7)
	p.store.FailNext(tokenstest.Refuse)
	_, err := p.Claim(t.Context(), request("a", time.Minute), 0, 0)
	wantErr(t, err, tokens.ErrStoreUnavailable)
	if p.Floor(j1) != 7 {
		t.Errorf("a claim that failed left the floor at %d", p.Floor(j1))
	}
	p.admit(7)
	if g := p.claim("a", time.Minute).Lease.Generation; g != 8 {
		t.Errorf("the claim after it got %d", g)
	}
}

func TestALoadThatFailsAdmitsNothingAndIsOver(t *testing.T) {
	p := start(t, tokens.Options{})
	p.store.FailNext(tokenstest.LoadFails)
	p.refused(7, tokens.ErrStoreUnavailable)
	p.admit(7)
	p.store.FailNext(tokenstest.LoadFails)
	p.refused(8, tokens.ErrStoreUnavailable)
	p.admit(7)
	if p.inFlight() != 2 {
		t.Errorf("%d attempts are registered", p.inFlight())
	}
}

// unknowns are the ways in which nobody knows whether a commit was written.
func unknowns() map[string]tokenstest.Mode {
	return map[string]tokenstest.Mode{
		"written, reply lost": tokenstest.WriteAndFail, "request lost": tokenstest.DropAndUnknown,
		"written, hangs": tokenstest.HangWritten, "not written, hangs": tokenstest.HangDropped,
		"an error of no kind": tokenstest.Bare,
	}
}

func TestAnUnknownOutcomeClosesTheAuthorityUntilARestart(t *testing.T) {
	for name, mode := range unknowns() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := start(t, tokens.Options{CommitTimeout: 2 * time.Second})
				other := tokens.Job{ID: "other"}
				w := newWrite(other, 3)
				p.admitLater(w).answered(t, nil, 0)
				p.sent(7)
				p.store.FailNext(mode)
				took := time.Duration(0)
				if mode == tokenstest.HangWritten || mode == tokenstest.HangDropped {
					took = 2 * time.Second
				}
				failed := p.admitLater(newWrite(j1, 8))
				time.Sleep(took)
				failed.answered(t, tokens.ErrStoreUnavailable, took)
				if p.inFlight() != 1 {
					t.Errorf("%d attempts are registered", p.inFlight())
				}
				p.wantClosed(t)
				p.refused(7, tokens.ErrStoreUnavailable) // it may be stale by now
				p.refused(6, tokens.ErrStaleGeneration)  // and this one is for sure
				w2 := newWrite(other, 3)
				wantErr(t, p.Admit(t.Context(), &w2.Attempt), tokens.ErrStoreUnavailable)
				w2 = newWrite(other, 2)
				wantErr(t, p.Admit(t.Context(), &w2.Attempt), tokens.ErrStaleGeneration)
				p.Settle(&w.Attempt, tokens.Applied) // settling needs no store

				p = p.crash(tokens.Options{})
				p.admit(8)
				p.refused(7, tokens.ErrStaleGeneration)
			})
		})
	}
}

// wantClosed fails unless everything that needs the store is refused.
func (p *process) wantClosed(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	_, claimErr := p.Claim(ctx, request("a", time.Minute), 0, 0)
	_, renewErr := p.Renew(ctx, tokens.LeaseRef{Job: j1}, 1)
	_, releaseErr := p.Release(ctx, tokens.LeaseRef{Job: j1}, 0, "")
	_, completeErr := p.Complete(ctx, tokens.LeaseRef{Job: j1}, nil, 0, "")
	_, revokeErr := p.Revoke(ctx, j1, 0, "")
	_, fenceErr := p.Fence(ctx, j1, 99, "")
	_, reopenErr := p.Reopen(ctx, j1)
	for name, err := range map[string]error{
		"err": p.Err(), "claim": claimErr, "renew": renewErr, "release": releaseErr, "complete": completeErr,
		"revoke": revokeErr, "fence": fenceErr, "reopen": reopenErr,
	} {
		if !errors.Is(err, tokens.ErrStoreUnavailable) {
			t.Errorf("%s: %v, want ErrStoreUnavailable", name, err)
		}
	}
}

// What queued behind the commit whose outcome is unknown may not be served either: it
// would be decided on a record that is perhaps not on the disk.
func TestWhatQueuedBehindAnUnknownOutcomeIsRefusedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.store.FailNext(tokenstest.WriteAndFail)
		gate := p.store.HoldCommits()
		ask := request("a", time.Minute)
		ask.ClaimID = "c1"
		claim := func() error { _, err := p.Claim(t.Context(), ask, 0, 0); return err }
		first := background(claim)
		gate.Arrived()
		repeat := background(claim) // would be answered with the lease that is perhaps not durable
		write := p.admitLater(newWrite(j1, 1))
		repeat.waiting(t)
		gate.Open()
		first.answered(t, tokens.ErrStoreUnavailable, 0)
		repeat.answered(t, tokens.ErrStoreUnavailable, 0)
		write.answered(t, tokens.ErrStoreUnavailable, 0)
		if _, commits := p.store.Counts(); commits != 1 {
			t.Errorf("%d commits, want no other after the unknown one", commits)
		}
	})
}

func TestASharedStoreIsReadAgainAfterAnUnknownOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		mode  tokenstest.Mode
		stale bool
	}{"written": {tokenstest.WriteAndFail, true}, "not written": {tokenstest.DropAndUnknown, false}} {
		t.Run(name, func(t *testing.T) {
			p := startShared(t, tokens.Options{})
			older := p.sending(7)
			p.store.FailNext(c.mode)
			p.refused(8, tokens.ErrStoreUnavailable)
			if p.Err() != nil {
				t.Fatalf("it is closed: %v", p.Err())
			}
			if c.stale {
				p.refused(7, tokens.ErrStaleGeneration)
			} else {
				p.admit(7)
			}
			if cut := older.cuts.Load() > 0; cut != c.stale {
				t.Errorf("the older attempt was cut: %v, want %v", cut, c.stale)
			}
		})
	}
}

func TestACommitThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.store.FailNext(tokenstest.LoadHangs)
		failed := p.admitLater(newWrite(j1, 7))
		time.Sleep(5 * time.Second) // the default
		failed.answered(t, tokens.ErrStoreUnavailable, 5*time.Second)
		if p.Err() != nil {
			t.Errorf("a load that hung closed the authority: %v", p.Err())
		}
		p.admit(7)
	})
}

func TestASickStoreAdmitsNothingButRefusesWhatMemoryKnows(t *testing.T) {
	p := start(t, tokens.Options{})
	w := p.sent(7)
	sick := errors.New("the disk is full")
	p.store.SetErr(sick)
	p.refused(6, tokens.ErrStaleGeneration)
	p.refused(7, tokens.ErrStoreUnavailable)
	p.refused(8, sick)
	p.wantClosed(t)
	stranger := newWrite(tokens.Job{ID: "stranger"}, 1)
	wantErr(t, p.Watch(t.Context(), &stranger.Attempt), tokens.ErrStoreUnavailable)
	p.Settle(&w.Attempt, tokens.Applied)
	p.store.SetErr(nil)
	p.admit(7)
}

func TestACallerThatLeavesHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		gate := p.store.HoldCommits()
		gone := errors.New("the caller has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		first, second := newWrite(j1, 7), newWrite(j1, 7)
		leaves := background(func() error { return p.Admit(ctx, &first.Attempt) })
		gate.Arrived()
		stays := p.admitLater(second)
		cancel(gone)
		leaves.answered(t, gone, 0)
		stays.waiting(t)
		gate.Open()
		stays.answered(t, nil, 0)
		if p.inFlight() != 1 {
			t.Errorf("%d attempts are registered", p.inFlight())
		}
	})
}

// A store that was restored by hand, or failed over to a replica that was behind.
func TestAFloorThatFellInTheStoreIsNotBelieved(t *testing.T) {
	p := startShared(t, tokens.Options{})
	w := p.sent(8)
	behind := tokenstest.NewMemory(nil)
	if _, err := behind.Commit(t.Context(), tokens.Change{Job: j1, Record: tokens.Record{Floor: 5, Seen: 5}}); err != nil {
		t.Fatal(err)
	}
	p.store.Store = behind
	_, err := p.Renew(t.Context(), tokens.LeaseRef{Job: j1}, 1) // reads the record
	wantErr(t, err, tokens.ErrStoreUnavailable)
	p.refused(7, tokens.ErrStaleGeneration)
	if p.Floor(j1) != 8 {
		t.Errorf("the floor in memory is %d", p.Floor(j1))
	}
	p.Settle(&w.Attempt, tokens.Applied)
}
