package tokens_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// settled admits and settles one write of j1.
func (p *process) settled(g tokens.Generation) {
	p.t.Helper()
	w := p.sent(g)
	p.Settle(&w.Attempt, tokens.Applied)
}

func (p *process) lost(err error, ended tokens.Ended) {
	p.t.Helper()
	var ref *tokens.Refusal
	if !errors.As(err, &ref) || ref.Err != tokens.ErrLeaseLost || ref.Ended != ended {
		p.t.Fatalf("%v (%+v), want the lease lost as %q", err, ref, ended)
	}
}

// C01: the worker slept past its lease, another took over, and the first wakes up.
func TestAPausedWorkerIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		a := p.claim("a", 30*time.Second).Lease
		p.settled(a.Generation)
		time.Sleep(31 * time.Second)
		b := p.claim("b", 30*time.Second).Lease
		p.settled(b.Generation)
		time.Sleep(14 * time.Second)
		if ref := p.refused(a.Generation, tokens.ErrStaleGeneration); ref.Ended != tokens.Superseded || ref.Floor != b.Generation {
			t.Errorf("refusal %+v", ref)
		}
		_, err := p.Renew(t.Context(), refOf(a), 0)
		p.lost(err, tokens.Superseded)
		if _, err := p.Complete(t.Context(), refOf(b), nil, 0, ""); err != nil {
			t.Fatal(err)
		}
	})
}

// C02: the loser's error handler leaves the winner's record alone.
func TestTheLoserChangesNothingOfTheWinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		a := p.claim("a", time.Second).Lease
		time.Sleep(time.Second)
		b := p.claim("b", time.Minute).Lease
		before, err := p.Job(t.Context(), j1)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Complete(t.Context(), refOf(a), []byte(`"failed"`), 0, "")
		p.lost(err, tokens.Superseded)
		_, err = p.Release(t.Context(), refOf(a), 0, "")
		p.lost(err, tokens.Superseded)
		after, err := p.Job(t.Context(), j1)
		if err != nil {
			t.Fatal(err)
		}
		if *after.Record.Lease != *before.Record.Lease || after.Record.Completed || after.Floor != before.Floor || after.Record.Result != nil {
			t.Errorf("it changed from %+v to %+v", before, after)
		}
		p.settled(b.Generation)
	})
}

// C03: four workers one after the other; only the last may write.
func TestOnlyTheNewestOfManyCopiesMayWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		for g := tokens.Generation(1); g <= 4; g++ {
			if got := p.claim("w", 5*time.Second).Lease.Generation; got != g {
				t.Fatalf("claim %d got generation %d", g, got)
			}
			time.Sleep(5 * time.Second)
		}
		p.refused(2, tokens.ErrStaleGeneration)
		p.settled(4)
		_, before := p.store.Counts()
		for g := tokens.Generation(1); g <= 3; g++ {
			for range 10 {
				p.refused(g, tokens.ErrStaleGeneration)
			}
		}
		if _, after := p.store.Counts(); after != before {
			t.Error("refusing stale writes costs commits")
		}
	})
}

// C10: renewing what somebody else held and gave back.
func TestAFreeJobIsNotStillYours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		a := p.claim("a", 5*time.Second).Lease
		time.Sleep(6 * time.Second)
		b := p.claim("b", 5*time.Second).Lease
		p.settled(b.Generation)
		if _, err := p.Release(t.Context(), refOf(b), 0, ""); err != nil {
			t.Fatal(err)
		}
		_, err := p.Renew(t.Context(), refOf(a), 0)
		p.lost(err, tokens.Superseded)
		p.refused(a.Generation, tokens.ErrStaleGeneration)
		_, err = p.Renew(t.Context(), refOf(b), 0)
		p.lost(err, tokens.Released)
	})
}

// C10, step 5: renew and claim at the edge of a lease. Never both succeed.
func TestRenewAndClaimAtTheEdgeNeverBothWin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		l := p.claim("a", time.Second).Lease
		for round := range 300 {
			time.Sleep(time.Second + time.Duration(round%3-1)*time.Millisecond - 500*time.Microsecond)
			var renewed, claimed error
			var grant tokens.Grant
			var renewal tokens.Renewal
			r := background(func() error { renewal, renewed = p.Renew(t.Context(), refOf(l), 1000); return renewed })
			c := background(func() error {
				grant, claimed = p.Claim(t.Context(), request("b", time.Second), 0, 0)
				return claimed
			})
			synctest.Wait()
			if !r.done.Load() || !c.done.Load() || (renewed == nil) == (claimed == nil) {
				// The claim may have come first and the renewal lost, or the
				// other way round.
				t.Fatalf("round %d: renew %v, claim %v", round, renewed, claimed)
			}
			if claimed == nil {
				_, err := p.Renew(t.Context(), refOf(l), 1000)
				p.lost(err, tokens.Superseded)
				p.refused(l.Generation, tokens.ErrStaleGeneration)
				l = grant.Lease
			} else {
				l = renewal.Lease
			}
		}
	})
}

// C15: a superseded client that claims again does not disturb its successor, and each
// way to lose has its own answer.
func TestASupersededClientGetsNothingByTryingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		a := p.claim("a", time.Second).Lease
		time.Sleep(time.Second)
		b := p.claim("b", time.Minute).Lease
		for range 20 {
			p.refused(a.Generation, tokens.ErrStaleGeneration)
		}
		_, err := p.Claim(t.Context(), request("a", time.Second), 0, 0)
		wantErr(t, err, tokens.ErrLeaseHeld)
		p.settled(b.Generation)
		p.refused(b.Generation+1, tokens.ErrUnissuedGeneration)
		w := newWrite(tokens.Job{ID: "never heard of"}, 1)
		w.IssuedOnly = true
		wantErr(t, p.Admit(t.Context(), &w.Attempt), tokens.ErrUnknownJob)
	})
}

// C45: an operator gets past a dead holder, who is only partitioned.
func TestAnOperatorRevokesAHolderWhoIsOnlyPartitioned(t *testing.T) {
	p := start(t, tokens.Options{})
	a := p.claim("a", 24*time.Hour).Lease
	w := p.sending(a.Generation)
	_, err := p.Revoke(t.Context(), j1, a.Generation+1, "")
	wantErr(t, err, tokens.ErrGenerationMismatch)
	if v, err := p.Job(t.Context(), j1); err != nil || v.State != tokens.StateHeld || v.InFlight != 1 || v.Floor != a.Generation {
		t.Fatalf("a refused revocation changed something: %+v, %v", v, err)
	}
	for range 2 { // the second changes nothing
		v, err := p.Revoke(t.Context(), j1, a.Generation, "trace")
		if err != nil || v.Floor != a.Generation+1 || v.State != tokens.StateFree || v.Record.RaisedBy != "trace" {
			t.Fatalf("revoke: %+v, %v", v, err)
		}
	}
	if w.cuts.Load() == 0 {
		t.Error("what it was sending goes on")
	}
	p.Settle(&w.Attempt, tokens.OutcomeUnknown)
	if ref := p.refused(a.Generation, tokens.ErrStaleGeneration); ref.Ended != tokens.Revoked || ref.RaisedBy != "trace" {
		t.Errorf("refusal %+v", ref)
	}
	_, err = p.Renew(t.Context(), refOf(a), 0)
	p.lost(err, tokens.Revoked)
	if g := p.claim("b", time.Minute).Lease.Generation; g != a.Generation+1 {
		t.Errorf("the next claim got generation %d", g)
	}
	_, err = p.Revoke(t.Context(), tokens.Job{ID: "unknown"}, 0, "")
	wantErr(t, err, tokens.ErrJobNotFound)
}

// C47: a completed job is over until an operator reopens it.
func TestACompletedJobIsNotStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, tokens.Options{})
		a := p.claim("a", time.Minute).Lease
		done, err := p.Complete(t.Context(), refOf(a), []byte(`{"run":55}`), 0, "")
		if err != nil || done.Floor != a.Generation+1 {
			t.Fatalf("%+v, %v", done, err)
		}
		time.Sleep(3 * time.Hour)
		p = p.crash(tokens.Options{})
		_, err = p.Claim(t.Context(), request("c", time.Minute), 0, 0)
		var ref *tokens.Refusal
		if !errors.As(err, &ref) || ref.Err != tokens.ErrJobCompleted || string(ref.Result) != `{"run":55}` {
			t.Fatalf("claim of a completed job: %v, %+v", err, ref)
		}
		if ref := p.refused(a.Generation, tokens.ErrStaleGeneration); ref.Ended != tokens.Completed {
			t.Errorf("refusal %+v", ref)
		}
		again, err := p.Complete(t.Context(), refOf(a), []byte(`{"run":55}`), 0, "")
		if err != nil || !again.Repeated {
			t.Errorf("repeated: %+v, %v", again, err)
		}
		for range 2 {
			if v, err := p.Reopen(t.Context(), j1); err != nil || v.State != tokens.StateFree || v.Record.Result != nil {
				t.Fatalf("reopen: %+v, %v", v, err)
			}
		}
		if g := p.claim("b", time.Minute).Lease.Generation; g != a.Generation+1 {
			t.Errorf("the next claim got generation %d", g)
		}
	})
}

// An outside issuer's job that comes under the lease API goes on above it.
func TestAJobChangesFromAnOutsideIssuerToClaims(t *testing.T) {
	p := start(t, tokens.Options{})
	p.settled(41)
	if v, err := p.Fence(t.Context(), j1, 42, ""); err != nil || v.State != tokens.StateExternal || v.Floor != 42 {
		t.Fatalf("%+v, %v", v, err)
	}
	p.refused(41, tokens.ErrStaleGeneration)
	g := p.claim("a", time.Minute)
	if g.Lease.Generation != 43 || g.Predecessor == nil || g.Predecessor.Generation != 42 {
		t.Errorf("granted %+v after %+v", g.Lease, g.Predecessor)
	}
	p.refused(44, tokens.ErrUnissuedGeneration)
}
