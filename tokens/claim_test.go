package tokens_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// TestOfManyConcurrentClaimsOneWins is C24, step 3.
func TestOfManyConcurrentClaimsOneWins(t *testing.T) {
	p := start(t, tokens.Options{})
	var mu sync.Mutex
	var won []tokens.Grant
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			g, err := p.Claim(t.Context(), request("any", time.Minute), 0, 0)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, g)
			} else if !errors.Is(err, tokens.ErrLeaseHeld) {
				t.Errorf("claim: %v", err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 || won[0].Lease.Generation != 1 || won[0].Predecessor != nil {
		t.Fatalf("%d of 200 claims won: %+v", len(won), won)
	}
	if p.Jobs() != 1 || p.Held() != 1 {
		t.Errorf("%d jobs, %d leases", p.Jobs(), p.Held())
	}
}

func TestALeaseIDBeginsWithTheStoreAndIsNeverTheSame(t *testing.T) {
	p := start(t, tokens.Options{})
	seen := make(map[string]bool)
	for range 50 {
		l := p.claim("a", time.Minute).Lease
		if !strings.HasPrefix(l.ID, p.Info().ID+".") || len(l.ID) < len(p.Info().ID)+1+22 {
			t.Fatalf("lease id of %d bytes does not begin with the store's id", len(l.ID))
		}
		if seen[l.ID] {
			t.Fatal("a lease id was drawn twice")
		}
		seen[l.ID] = true
		if _, err := p.Release(t.Context(), refOf(l), 0, ""); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWithoutRandomnessNothingIsGranted(t *testing.T) {
	broken := errors.New("no randomness")
	_, err := tokens.NewAuthority(t.Context(), tokenstest.NewMemory(nil), tokens.Options{Rand: iotest.ErrReader(broken)})
	wantErr(t, err, broken)
	// Its own name takes 16 bytes; then the source fails.
	p := start(t, tokens.Options{Rand: io.MultiReader(io.LimitReader(rand.Reader, 16), iotest.ErrReader(broken))})
	_, err = p.Claim(t.Context(), request("a", time.Minute), 0, 0)
	wantErr(t, err, broken)
	if _, err := p.Job(t.Context(), j1); !errors.Is(err, tokens.ErrJobNotFound) {
		t.Errorf("job: %v", err)
	}
}

func TestARepeatedClaimGetsTheSameLeaseWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		ask := request("a", time.Second)
		ask.ClaimID = "c1"
		first, err := p.Claim(t.Context(), ask, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(400 * time.Millisecond)
		again, err := p.Claim(t.Context(), ask, 0, 0)
		if err != nil || !again.Repeated || again.Lease != first.Lease || again.ExpiresIn != 600 {
			t.Fatalf("repeated: %+v, %v", again, err)
		}
		if _, commits := p.store.Counts(); commits != 1 {
			t.Errorf("repeating a claim cost %d commits", commits-1)
		}
		p = p.crash(tokens.Options{}) // the reply was lost with the process
		again, err = p.Claim(t.Context(), ask, 0, 0)
		if err != nil || !again.Repeated || again.Lease != first.Lease {
			t.Fatalf("repeated after a restart: %+v, %v", again, err)
		}
		time.Sleep(600 * time.Millisecond)
		later, err := p.Claim(t.Context(), ask, 0, 0)
		if err != nil || later.Repeated || later.Lease.Generation != first.Lease.Generation+1 {
			t.Fatalf("repeated after it ran out: %+v, %v", later, err)
		}
	})
}

func TestAHeldLeaseSaysByWhomAndHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.claim("a", time.Second)
		time.Sleep(250 * time.Millisecond)
		_, err := p.Claim(t.Context(), request("b", time.Second), 0, 0)
		var ref *tokens.Refusal
		if !errors.As(err, &ref) || ref.Err != tokens.ErrLeaseHeld || ref.Holder != "a" || ref.HolderGeneration != 1 || ref.ExpiresIn != 750 {
			t.Errorf("refusal %+v", ref)
		}
	})
}

func TestClaimsThatWaitAreServedInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		l := p.claim("first", time.Hour).Lease
		got := make(chan tokens.Lease, 4)
		for _, owner := range []string{"b", "c", "d"} {
			go func() {
				if g, err := p.Claim(t.Context(), request(owner, time.Hour), time.Minute, 0); err == nil {
					got <- g.Lease
				}
			}()
			synctest.Wait()
		}
		for _, want := range []string{"b", "c", "d"} {
			if _, err := p.Release(t.Context(), refOf(l), 0, ""); err != nil {
				t.Fatal(err)
			}
			// One that does not wait gets nothing while others do.
			_, err := p.Claim(t.Context(), request("pushes in", time.Hour), 0, 0)
			wantErr(t, err, tokens.ErrLeaseHeld)
			synctest.Wait()
			select {
			case next := <-got:
				if next.Owner != want || next.Generation != l.Generation+1 {
					t.Fatalf("the lease went to %s under %d, want %s under %d", next.Owner, next.Generation, want, l.Generation+1)
				}
				l = next
			default:
				t.Fatalf("the lease is free and %s waits on", want)
			}
		}
	})
}

func TestAWaitingClaimIsGrantedWhenTheLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.claim("a", time.Second)
		time.Sleep(300 * time.Millisecond)
		granted := background(func() error { _, err := p.Claim(t.Context(), request("b", time.Second), time.Minute, 0); return err })
		granted.waiting(t)
		time.Sleep(700*time.Millisecond - time.Nanosecond)
		granted.waiting(t)
		time.Sleep(time.Nanosecond)
		granted.answered(t, nil, 700*time.Millisecond)
	})
}

func TestAWaitingClaimSeesThatTheHolderRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		l := p.claim("a", time.Second).Lease
		granted := background(func() error { _, err := p.Claim(t.Context(), request("b", time.Second), 3*time.Second, 0); return err })
		for range 5 {
			time.Sleep(500 * time.Millisecond)
			granted.waiting(t)
			if _, err := p.Renew(t.Context(), refOf(l), 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(500 * time.Millisecond)
		granted.answered(t, tokens.ErrLeaseHeld, 3*time.Second)
	})
}

func TestAWaitEndsWhenTheJobIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		l := p.claim("a", time.Hour).Lease
		waits := background(func() error { _, err := p.Claim(t.Context(), request("b", time.Second), time.Minute, 0); return err })
		waits.waiting(t)
		if _, err := p.Complete(t.Context(), refOf(l), []byte(`{"n":1}`), 0, ""); err != nil {
			t.Fatal(err)
		}
		waits.answered(t, tokens.ErrJobCompleted, 0)
	})
}

func TestOneWhoLeavesTheQueueHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		l := p.claim("a", time.Hour).Lease
		gone := errors.New("the caller has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		first := background(func() error { _, err := p.Claim(ctx, request("b", time.Hour), time.Minute, 0); return err })
		first.waiting(t)
		impatient := background(func() error {
			_, err := p.Claim(t.Context(), request("c", time.Hour), time.Second, 0)
			return err
		})
		impatient.waiting(t)
		last := background(func() error { _, err := p.Claim(t.Context(), request("d", time.Hour), time.Minute, 0); return err })
		last.waiting(t)
		cancel(gone)
		first.answered(t, gone, 0)
		time.Sleep(time.Second)
		impatient.answered(t, tokens.ErrLeaseHeld, time.Second)
		last.waiting(t)
		if _, err := p.Release(t.Context(), refOf(l), 0, ""); err != nil {
			t.Fatal(err)
		}
		last.answered(t, nil, time.Second)
	})
}

// A claim that waits must not ask the store again and again.
func TestAWaitingClaimDoesNotPollTheStore(t *testing.T) {
	p := start(t, tokens.Options{})
	l := p.claim("a", time.Hour).Lease
	quiet := watchLoads(t, p.store)
	granted := background(func() error { _, err := p.Claim(quiet.ctx, request("b", time.Hour), time.Hour, 0); return err })
	quiet.until(func() bool { loads, _ := p.store.Counts(); return loads > quiet.before })
	if _, err := p.Release(t.Context(), refOf(l), 0, ""); err != nil {
		t.Fatal(err)
	}
	quiet.until(granted.done.Load)
	if granted.err != nil {
		t.Error(granted.err)
	}
}

// Claims whose callers give up at any moment: nobody reads what is still being decided
// (for the race detector), and whoever stays gets an answer.
func TestClaimsWhoseCallersGiveUpLeaveTheOthersAlone(t *testing.T) {
	p := start(t, tokens.Options{})
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*5*time.Microsecond)
			defer cancel()
			_, err := p.Claim(ctx, request("a", time.Millisecond), 0, 0)
			if err != nil && !errors.Is(err, tokens.ErrLeaseHeld) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("claim: %v", err)
			}
		})
	}
	wg.Wait()
	if _, err := p.Claim(t.Context(), request("b", time.Minute), time.Minute, 0); err != nil {
		t.Error(err)
	}
}

func TestAClaimReportsWhatItsPredecessorDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		a := p.claim("a", time.Second).Lease
		for _, o := range []tokens.Outcome{tokens.Applied, tokens.Applied, tokens.Declined, tokens.NotSent, tokens.OutcomeUnknown} {
			p.Settle(&p.sent(1).Attempt, o)
		}
		last := p.sent(1)
		time.Sleep(time.Second)

		hasty, err := p.Claim(t.Context(), request("b", time.Second), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := hasty.Predecessor; got.Generation != a.Generation || got.Owner != "a" || got.Ended != tokens.Superseded || got.InFlight != 1 ||
			got.Writes.Applied != 2 || got.Writes.Declined != 1 || got.Writes.Unknown != 1 {
			t.Errorf("a report that did not wait: %+v", got)
		}
		time.Sleep(time.Second)

		var patient tokens.Grant
		claimed := background(func() (err error) {
			patient, err = p.Claim(t.Context(), request("c", time.Hour), 0, 5*time.Second)
			return err
		})
		time.Sleep(2 * time.Second)
		claimed.waiting(t)
		p.Settle(&last.Attempt, tokens.Applied)
		claimed.answered(t, nil, 2*time.Second)
		if got := patient.Predecessor; got.Generation != 2 || got.InFlight != 0 {
			t.Errorf("a report that waited: %+v", got)
		}
	})
}

func TestAReportIsGivenUpAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		l := p.claim("a", time.Hour).Lease
		p.sent(1)
		var ending tokens.Ending
		released := background(func() (err error) {
			ending, err = p.Release(t.Context(), refOf(l), 3*time.Second, "")
			return err
		})
		time.Sleep(3 * time.Second)
		released.answered(t, nil, 3*time.Second)
		if ending.InFlight != 1 || ending.Floor != 2 || ending.Repeated {
			t.Errorf("ending %+v", ending)
		}
		again, err := p.Release(t.Context(), refOf(l), 0, "")
		if err != nil || !again.Repeated || again.InFlight != 1 {
			t.Errorf("repeated: %+v, %v", again, err)
		}
	})
}

// The first in line may fail just when its turn has come.
func TestAClaimThatFailsHandsItsTurnOn(t *testing.T) {
	for range 30 { // who looks first is up to the scheduler
		synctest.Test(t, func(t *testing.T) {
			p := start(t, tokens.Options{})
			p.store.FailNext(tokenstest.Refuse)
			gate := p.store.HoldCommits()
			claim := func(owner string) *later {
				return background(func() error {
					_, err := p.Claim(t.Context(), request(owner, time.Hour), time.Minute, 0)
					return err
				})
			}
			first := claim("a")
			gate.Arrived()
			second := claim("b")
			second.waiting(t)
			gate.Open()
			first.answered(t, tokens.ErrStoreUnavailable, 0)
			second.answered(t, nil, 0)
		})
	}
}
