package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

func TestAStaleWriteIsRefusedBeforeItsBodyIsRead(t *testing.T) {
	p := start(t, tokens.Options{})
	p.admit(7)
	stale := newWrite(j1, 6)
	wantErr(t, p.Watch(t.Context(), &stale.Attempt), tokens.ErrStaleGeneration)
	p.Unwatch(&stale.Attempt) // was never watched
}

func TestAWatchOfAJobThatMemoryDoesNotKnowAsksTheStore(t *testing.T) {
	p := start(t, tokens.Options{})
	p.admit(7)
	p = p.crash(tokens.Options{})
	stale := newWrite(j1, 6)
	wantErr(t, p.Watch(t.Context(), &stale.Attempt), tokens.ErrStaleGeneration)
	good := newWrite(j1, 7)
	if err := p.Watch(t.Context(), &good.Attempt); err != nil {
		t.Fatal(err)
	}
	p.Unwatch(&good.Attempt)
	p.Unwatch(&good.Attempt)
}

// A watcher raises nothing and holds nobody up; a takeover cuts it, and then its own
// admission finds it stale.
func TestAWatchedBodyIsCutByATakeoverAndNobodyWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.Settle(&p.admit(7).Attempt, tokens.Applied)
		watched := newWrite(j1, 7)
		newest := newWrite(j1, 9)
		for _, w := range []*write{watched, newest} {
			if err := p.Watch(t.Context(), &w.Attempt); err != nil {
				t.Fatal(err)
			}
		}
		if p.inFlight() != 0 {
			t.Error("a watched body counts as in flight")
		}
		p.admit(7) // the watcher of 9 has raised nothing
		p.admitLater(newWrite(j1, 8)).answered(t, nil, 0)
		if watched.cuts.Load() == 0 || newest.cuts.Load() != 0 {
			t.Errorf("cut: 7 %d times, 9 %d times", watched.cuts.Load(), newest.cuts.Load())
		}
		wantErr(t, p.Admit(t.Context(), &watched.Attempt), tokens.ErrStaleGeneration)
		cuts := watched.cuts.Load()
		p.admitLater(newest).answered(t, nil, 0)
		if watched.cuts.Load() != cuts {
			t.Error("a watch went on after its admission")
		}
	})
}

// A route that wants a live lease has its bodies cut like any other.
func TestABodyThatNeedsALiveLeaseIsCutToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		l := p.claim("a", time.Minute).Lease
		w := newWrite(j1, l.Generation)
		w.LiveLease = true
		if err := p.Watch(t.Context(), &w.Attempt); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Revoke(t.Context(), j1, 0, ""); err != nil {
			t.Fatal(err)
		}
		if w.cuts.Load() == 0 {
			t.Error("its generation was revoked and it was not told")
		}
		p.Unwatch(&w.Attempt)
	})
}

func TestALiveLeaseIsJudgedByTheStoresTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		l := p.claim("a", time.Second).Lease
		try := func(want error) {
			t.Helper()
			w := newWrite(j1, l.Generation)
			w.LiveLease = true
			err := p.Admit(t.Context(), &w.Attempt)
			if want == nil && err != nil {
				t.Fatal(err)
			}
			wantErr(t, err, want)
			if err == nil {
				p.Settle(&w.Attempt, tokens.Applied)
			}
		}
		time.Sleep(999 * time.Millisecond)
		try(nil)
		time.Sleep(time.Millisecond)
		try(tokens.ErrLeaseExpired)
		if _, err := p.Renew(t.Context(), refOf(l), 0); err != nil {
			t.Fatal(err)
		}
		try(nil)
	})
}

// A lease that runs out while its write waits for older attempts is judged again.
func TestALiveLeaseIsJudgedAgainAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		a := p.claim("a", time.Second).Lease
		older := p.sent(a.Generation)
		time.Sleep(time.Second)
		b := p.claim("b", time.Second).Lease
		w := newWrite(j1, b.Generation)
		w.LiveLease = true
		admitted := p.admitLater(w)
		admitted.waiting(t)
		time.Sleep(2 * time.Second)
		p.Settle(&older.Attempt, tokens.Applied)
		admitted.answered(t, tokens.ErrLeaseExpired, 2*time.Second)
	})
}

// Writes that wait must not keep each other and the store awake.
func TestWritesThatWaitForALiveLeaseDoNotPollTheStore(t *testing.T) {
	p := start(t, tokens.Options{})
	a := p.claim("a", time.Hour).Lease
	older := p.sent(a.Generation)
	if _, err := p.Release(t.Context(), refOf(a), 0, ""); err != nil {
		t.Fatal(err)
	}
	b := p.claim("b", time.Hour).Lease
	quiet := watchLoads(t, p.store)
	var admitted []*later
	for range 3 {
		w := newWrite(j1, b.Generation)
		w.LiveLease = true
		admitted = append(admitted, background(func() error { return p.Admit(quiet.ctx, &w.Attempt) }))
	}
	quiet.until(func() bool { loads, _ := p.store.Counts(); return loads > quiet.before })
	p.Settle(&older.Attempt, tokens.Applied)
	quiet.until(func() bool { return admitted[0].done.Load() && admitted[1].done.Load() && admitted[2].done.Load() })
}

// Whoever holds its body back until it is told to go on is judged first, and registered
// only by its admission.
func TestAWriteThatIsReadyHasRaisedTheFloorAndIsNotRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		old := p.sent(7)
		ready := newWrite(j1, 8)
		ready.TakeoverWait = 10 * time.Second
		l := background(func() error { return p.Ready(t.Context(), &ready.Attempt) })
		time.Sleep(6 * time.Second)
		l.waiting(t)
		p.refused(7, tokens.ErrStaleGeneration)
		p.Settle(&old.Attempt, tokens.Applied)
		l.answered(t, nil, 6*time.Second)
		if p.inFlight() != 0 {
			t.Error("it is registered")
		}
		if ready.Waited != 6*time.Second {
			t.Errorf("waited %s", ready.Waited)
		}
		p.admitLater(ready).answered(t, nil, 0)
		if ready.Waited != 6*time.Second {
			t.Errorf("waited %s in all", ready.Waited)
		}
	})
}

func TestAReadyWriteIsJudgedByItsKeyWithoutStartingIt(t *testing.T) {
	p := start(t, tokens.Options{})
	first := p.begin(keyed(7, "k"))
	wantErr(t, p.Ready(t.Context(), &keyed(7, "k").Attempt), tokens.ErrWriteInProgress)
	p.finish(first, applied())
	wantErr(t, p.Ready(t.Context(), &keyed(7, "k").Attempt), tokens.ErrAlreadyApplied)
	if err := p.Ready(t.Context(), &keyed(7, "free").Attempt); err != nil {
		t.Fatal(err)
	}
	p.finish(p.begin(keyed(7, "free")), applied()) // it was not taken
}

// Anybody can make up ids of jobs.
func TestARefusedWriteOfAJobThatNobodyKnowsLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		p.admit(7)
		for i := range 1000 {
			w := newWrite(tokens.Job{ID: fmt.Sprintf("made-up-%d", i)}, 3)
			w.IssuedOnly = i%3 == 0
			err := p.Watch(t.Context(), &w.Attempt)
			if w.IssuedOnly {
				wantErr(t, err, tokens.ErrUnknownJob)
				wantErr(t, p.Admit(t.Context(), &w.Attempt), tokens.ErrUnknownJob)
			} else if err != nil {
				t.Fatal(err)
			}
			p.Unwatch(&w.Attempt) // its body never came
		}
		synctest.Wait()
		if n := p.Remembered(); n != 1 {
			t.Errorf("%d jobs are in memory, want the one that there is", n)
		}
		p.admit(8)
	})
}

func TestAControlCallForAJobThatNobodyKnowsLeavesNothingBehind(t *testing.T) {
	p := start(t, tokens.Options{})
	p.admit(7)
	ctx := t.Context()
	for i := range 100 {
		// A job for each call: one that forgets would make up for one that does not.
		job := func(call string) tokens.Job { return tokens.Job{ID: fmt.Sprint(call, i)} }
		ref := func(call string) tokens.LeaseRef {
			return tokens.LeaseRef{Job: job(call), Owner: "o", Generation: 1, LeaseID: "l"}
		}
		_, err := p.Renew(ctx, ref("renew"), 0)
		wantErr(t, err, tokens.ErrLeaseLost)
		_, err = p.Release(ctx, ref("release"), 0, "")
		wantErr(t, err, tokens.ErrLeaseLost)
		_, err = p.Revoke(ctx, job("revoke"), 0, "")
		wantErr(t, err, tokens.ErrJobNotFound)
		_, err = p.Reopen(ctx, job("reopen"))
		wantErr(t, err, tokens.ErrJobNotFound)
		_, err = p.Resolve(ctx, job("resolve"), "k", tokens.VerdictApplied, 1)
		wantErr(t, err, tokens.ErrWriteNotFound)
	}
	for i := range 100 {
		for _, wait := range []time.Duration{0, time.Second} {
			p.store.FailNext(tokenstest.LoadFails)
			_, err := p.Claim(ctx, tokens.ClaimRequest{Job: tokens.Job{ID: fmt.Sprintf("unread-%d", i)}, Owner: "o", TTL: 1000}, wait, 0)
			wantErr(t, err, tokens.ErrStoreUnavailable)
		}
	}
	for limit := time.Now().Add(5 * time.Second); p.Remembered() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d jobs are in memory, want the one that there is", p.Remembered())
		}
	}
}

func TestNoRaceLeavesAMadeUpJobBehind(t *testing.T) {
	p := start(t, tokens.Options{})
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 2000 {
				w := newWrite(tokens.Job{ID: fmt.Sprintf("made-up-%d-%d", worker/2, i)}, 3) // two for each
				w.IssuedOnly = true
				if err := p.Watch(context.Background(), &w.Attempt); !errors.Is(err, tokens.ErrUnknownJob) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	all.Wait()
	for limit := time.Now().Add(5 * time.Second); p.Remembered() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d jobs are still in memory", p.Remembered())
		}
	}
}

func TestAWatchTellsWhetherAnAdmissionWouldHaveToWait(t *testing.T) {
	p := start(t, tokens.Options{RestartLinger: time.Hour})
	watch := func(g tokens.Generation, want bool, when string) {
		t.Helper()
		w := newWrite(j1, g)
		if err := p.Watch(t.Context(), &w.Attempt); err != nil {
			t.Fatal(err)
		}
		p.Unwatch(&w.Attempt)
		if w.Calm != want {
			t.Errorf("%s: calm is %v", when, w.Calm)
		}
	}
	watch(7, false, "the floor has to rise")
	older := p.admit(7)
	older.Gate() // else it would be vetoed, and settled by that
	watch(7, true, "one of the same generation is in flight")
	watch(8, false, "the floor has to rise again")
	newest := newWrite(j1, 8)
	admitted := make(chan error, 1)
	go func() { admitted <- p.Admit(t.Context(), &newest.Attempt) }()
	for p.Floor(j1) != 8 {
		time.Sleep(time.Millisecond) // until the floor has risen
	}
	watch(8, false, "an older one is in flight")
	p.Settle(&older.Attempt, tokens.Applied)
	if err := <-admitted; err != nil {
		t.Fatal(err)
	}
	watch(8, true, "the older one has settled")
	p = p.crash(tokens.Options{RestartLinger: time.Hour})
	watch(8, false, "the process before may have left one in flight")
}
