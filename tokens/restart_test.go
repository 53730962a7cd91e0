package tokens_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

func TestAFloorSurvivesARestart(t *testing.T) {
	p := start(t, tokens.Options{})
	p.admit(7)
	p = p.crash(tokens.Options{})
	if p.Floor(j1) != 0 {
		t.Error("a new process says that it knows a floor that it has not read")
	}
	p.refused(6, tokens.ErrStaleGeneration)
	p.admit(7) // nothing of the dead process is in flight
	p.admit(8)
}

func TestTheFirstWritesAfterARestartLetTheDeadOnesLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := tokens.Options{RestartLinger: 3 * time.Second}
		p := start(t, opt)
		p.admitLater(newWrite(j1, 7)).answered(t, nil, 0) // a job that is new has nothing to wait for
		p.admitLater(newWrite(j1, 8)).answered(t, nil, 0)
		time.Sleep(time.Minute)

		p = p.crash(opt)
		time.Sleep(time.Second)
		newer, same := p.admitLater(newWrite(j1, 9)), p.admitLater(newWrite(j1, 9))
		hasty := newWrite(j1, 9)
		hasty.TakeoverWait = time.Second
		pending := p.admitLater(hasty)
		p.admitLater(newWrite(tokens.Job{ID: "new"}, 1)).answered(t, nil, 0)
		p.refused(7, tokens.ErrStaleGeneration)
		time.Sleep(time.Second)
		pending.answered(t, tokens.ErrTakeoverPending, time.Second)
		time.Sleep(time.Second - time.Nanosecond)
		newer.waiting(t)
		time.Sleep(time.Nanosecond)
		newer.answered(t, nil, 2*time.Second)
		same.answered(t, nil, 2*time.Second)
		p.admitLater(newWrite(j1, 9)).answered(t, nil, 0)
	})
}

func TestARestoreKillsEveryGenerationFromBefore(t *testing.T) {
	p := start(t, tokens.Options{})
	l := p.claim("a", time.Hour).Lease
	p.mem.Configure(true, 1)
	p = p.crash(tokens.Options{})
	p.refused(l.Generation, tokens.ErrStaleGeneration)
	p.refused(tokens.EpochSize-1, tokens.ErrStaleGeneration)
	_, err := p.Renew(t.Context(), refOf(l), 0)
	p.lost(err, tokens.Superseded)
	_, err = p.Release(t.Context(), refOf(l), 0, "")
	p.lost(err, tokens.Superseded)
	next := p.claim("b", time.Hour).Lease
	if next.Generation != tokens.EpochSize+1 {
		t.Errorf("the first claim after a restore got %d", next.Generation)
	}
	p.admit(next.Generation)
}

func TestTheAuthorityCountsJobsAndLeases(t *testing.T) {
	p := start(t, tokens.Options{})
	want := func(jobs, held int64) {
		t.Helper()
		if p.Jobs() != jobs || p.Held() != held {
			t.Errorf("%d jobs and %d leases, want %d and %d", p.Jobs(), p.Held(), jobs, held)
		}
	}
	want(0, 0)
	l := p.claim("a", time.Hour).Lease
	want(1, 1)
	if _, err := p.Renew(t.Context(), refOf(l), 0); err != nil {
		t.Fatal(err)
	}
	w := newWrite(tokens.Job{ID: "followed"}, 3)
	if err := p.Admit(t.Context(), &w.Attempt); err != nil {
		t.Fatal(err)
	}
	p.store.FailNext(tokenstest.Refuse)
	if _, err := p.Release(t.Context(), refOf(l), 0, ""); err == nil {
		t.Fatal("a commit that failed was acknowledged")
	}
	want(2, 1)
	p = p.crash(tokens.Options{})
	want(2, 1)
	if _, err := p.Release(t.Context(), refOf(l), 0, ""); err != nil {
		t.Fatal(err)
	}
	want(2, 0)
	for i := range 1500 { // more than a page of the census
		if _, err := p.Fence(t.Context(), tokens.Job{Namespace: "n", ID: fmt.Sprint(i)}, 1, ""); err != nil {
			t.Fatal(err)
		}
	}
	p = p.crash(tokens.Options{})
	want(1502, 0)
}

// Jobs that memory has no room for are forgotten only when nothing of them is under way.
func TestForgettingJobsLosesNoAttemptAndNoFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{MaxCached: 1})
		const jobs = 600
		name := func(i int) tokens.Job { return tokens.Job{ID: fmt.Sprint("job-", i)} }
		var live []*write
		for i := range jobs {
			w := newWrite(name(i), 7)
			if err := p.Admit(t.Context(), &w.Attempt); err != nil {
				t.Fatal(err)
			}
			w.Gate()
			w.SentWhole()
			if i%2 == 0 {
				live = append(live, w)
			} else {
				p.Settle(&w.Attempt, tokens.Applied)
			}
		}
		cached := 0
		for i := range jobs {
			if p.Floor(name(i)) != 0 {
				cached++
			}
		}
		if cached > len(live)+300 {
			t.Errorf("%d of %d jobs are kept though %d are under way", cached, jobs, len(live))
		}
		for i := range jobs {
			w := newWrite(name(i), 6)
			wantErr(t, p.Admit(t.Context(), &w.Attempt), tokens.ErrStaleGeneration)
		}
		for _, older := range live {
			newer := newWrite(older.Job, 8)
			admitted := p.admitLater(newer)
			admitted.waiting(t)
			p.Settle(&older.Attempt, tokens.Applied)
			admitted.answered(t, nil, 0)
			p.Settle(&newer.Attempt, tokens.Applied)
		}
	})
}
