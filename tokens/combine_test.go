package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestWhatQueuesWhileACommitIsUnderWayTravelsInTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		l := p.claim("a", time.Hour).Lease
		_, before := p.store.Counts()
		gate := p.store.HoldCommits()
		var all []*later
		renew := func() error { _, err := p.Renew(t.Context(), refOf(l), 0); return err }
		all = append(all, background(renew))
		gate.Arrived()
		for range 99 {
			all = append(all, background(renew))
		}
		stale := background(func() error { _, err := p.Claim(t.Context(), request("b", time.Hour), 0, 0); return err })
		all[99].waiting(t)
		gate.Open()
		for _, r := range all {
			r.answered(t, nil, 0)
		}
		stale.answered(t, tokens.ErrLeaseHeld, 0)
		if _, after := p.store.Counts(); after != before+2 {
			t.Errorf("100 operations took %d commits, want 2", after-before)
		}
	})
}

// Each operation of a batch sees what those before it decided, and all are answered or
// none.
func TestOperationsOfOneBatchSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		gate := p.store.HoldCommits()
		older := newWrite(j1, 1)
		first := p.admitLater(older)
		gate.Arrived()
		var a, b tokens.Grant
		claim := func(g *tokens.Grant, owner string) *later {
			l := background(func() (err error) { *g, err = p.Claim(t.Context(), request(owner, time.Hour), 0, 0); return err })
			synctest.Wait()
			return l
		}
		won, lost := claim(&a, "a"), claim(&b, "b")
		write := p.admitLater(newWrite(j1, 2))
		gate.Open()
		won.answered(t, nil, 0)
		lost.answered(t, tokens.ErrLeaseHeld, 0)
		write.answered(t, nil, 0)
		if a.Lease.Generation != 2 {
			t.Errorf("granted %+v", a.Lease)
		}
		// The floor rose to 1 and at once to 2: the first write was registered in
		// between and vetoed, or it was too late.
		if !errors.Is(first.err, tokens.ErrStaleGeneration) && (first.err != nil || older.Gate()) {
			t.Errorf("the first write: %v", first.err)
		}
	})
}

// While the store is busy, writes of the floor's own generation go on.
func TestAWriteThatChangesNothingDoesNotWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		l := p.claim("a", time.Hour).Lease
		gate := p.store.HoldCommits()
		renewed := background(func() error { _, err := p.Renew(t.Context(), refOf(l), 0); return err })
		gate.Arrived()
		w := newWrite(j1, l.Generation)
		p.admitLater(w).answered(t, nil, 0)
		p.Settle(&w.Attempt, tokens.Applied)
		gate.Open()
		renewed.answered(t, nil, 0)
	})
}

// Two processes on one shared store: each decision is made on what the other did.
func TestTwoProcessesOnOneStoreShareFloorsAndLeases(t *testing.T) {
	p := startShared(t, tokens.Options{})
	other, err := tokens.NewAuthority(t.Context(), p.store, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var granted [101]atomic.Int32
	var wg sync.WaitGroup
	for _, a := range []*tokens.Authority{p.Authority, other} {
		for w := range 4 {
			wg.Go(func() {
				for granted[100].Load() == 0 {
					g, err := a.Claim(context.Background(), request(fmt.Sprint("w", w), time.Hour), 0, 0)
					if err != nil {
						continue // held
					}
					if n := g.Lease.Generation; n <= 100 && granted[n].Add(1) > 1 {
						t.Errorf("generation %d was granted twice", n)
					}
					_, _ = a.Release(context.Background(), refOf(g.Lease), 0, "")
				}
			})
		}
	}
	wg.Wait()
	for g := 1; g <= 100; g++ {
		if granted[g].Load() != 1 {
			t.Errorf("generation %d was granted %d times", g, granted[g].Load())
		}
	}
}

func TestADecisionThatConflictsIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startShared(t, tokens.Options{})
		gate := p.store.HoldCommits()
		var got tokens.Grant
		claimed := background(func() (err error) {
			got, err = p.Claim(t.Context(), request("a", time.Hour), 0, 0)
			return err
		})
		gate.Arrived()
		// Another replica is faster.
		if _, err := p.mem.Commit(t.Context(), tokens.Change{Job: j1, Record: tokens.Record{Floor: 8, Seen: 7, Issued: 7}}); err != nil {
			t.Fatal(err)
		}
		gate.Open()
		claimed.answered(t, nil, 0)
		if got.Lease.Generation != 8 {
			t.Errorf("granted %d", got.Lease.Generation)
		}
	})
}

// conflicting is a store on which somebody else is always faster.
type conflicting struct{ tokens.Store }

// Commit implements tokens.Store.
func (conflicting) Commit(context.Context, tokens.Change) (tokens.Version, error) {
	return 0, tokens.ErrConflict
}

func TestADecisionThatAlwaysConflictsIsGivenUp(t *testing.T) {
	p := startShared(t, tokens.Options{})
	p.store.Store = conflicting{p.mem}
	p.refused(7, tokens.ErrStoreUnavailable)
	loads, commits := p.store.Counts()
	if loads > 50 || commits > 50 || p.Err() != nil {
		t.Errorf("%d loads, %d commits, %v", loads, commits, p.Err())
	}
}

// A change that another replica made is news to those who wait here, as soon as any
// operation has read it.
func TestAChangeMadeElsewhereWakesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startShared(t, tokens.Options{})
		elsewhere, err := tokens.NewAuthority(t.Context(), p.store, tokens.Options{})
		if err != nil {
			t.Fatal(err)
		}
		read := func() {
			_, err := p.Renew(t.Context(), tokens.LeaseRef{Job: j1}, 1)
			wantErr(t, err, tokens.ErrLeaseLost)
		}
		p.sent(7)
		write := p.admitLater(newWrite(j1, 8))
		if _, err := elsewhere.Fence(t.Context(), j1, 9, ""); err != nil {
			t.Fatal(err)
		}
		write.waiting(t)
		read()
		write.answered(t, tokens.ErrStaleGeneration, 0)

		held, err := elsewhere.Claim(t.Context(), request("a", time.Hour), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		claim := background(func() error {
			_, err := p.Claim(t.Context(), request("b", time.Hour), time.Minute, 0)
			return err
		})
		claim.waiting(t)
		if _, err := elsewhere.Release(t.Context(), refOf(held.Lease), 0, ""); err != nil {
			t.Fatal(err)
		}
		read()
		claim.answered(t, nil, 0)
	})
}
