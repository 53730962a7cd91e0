package tokens_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestALeaseThatRanOutWhileTheProxyWasDownIsKeptForAGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := tokens.Options{RestartGrace: 5 * time.Second}
		p := start(t, opt)
		l := p.claim("a", time.Second).Lease
		p.Settle(&p.admit(1).Attempt, tokens.Applied)
		time.Sleep(time.Minute)
		p = p.crash(opt)
		claim := func() error { _, err := p.Claim(t.Context(), request("b", time.Second), 0, 0); return err }
		time.Sleep(5*time.Second - time.Millisecond)
		wantErr(t, claim(), tokens.ErrLeaseHeld)
		if r, err := p.Renew(t.Context(), refOf(l), 0); err != nil || !r.Lapsed || r.ExpiresIn != 1000 {
			t.Fatalf("its holder may renew it: %+v, %v", r, err)
		}
		time.Sleep(time.Millisecond)
		wantErr(t, claim(), tokens.ErrLeaseHeld) // renewed
		time.Sleep(time.Second)
		if err := claim(); err != nil { // and run out while the process was up: no grace
			t.Fatal(err)
		}
	})
}

func TestTheGraceEndsAndOneThatRanOutBeforeTheCrashHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := tokens.Options{RestartGrace: 5 * time.Second}
		p := start(t, opt)
		p.claim("a", time.Second)
		time.Sleep(time.Minute)
		p = p.crash(opt)
		var got tokens.Grant
		claimed := background(func() (err error) {
			got, err = p.Claim(t.Context(), request("b", time.Second), time.Minute, 0)
			return err
		})
		time.Sleep(5 * time.Second)
		claimed.answered(t, nil, 5*time.Second)
		if got.Lease.Generation != 2 {
			t.Errorf("granted %+v", got)
		}
		time.Sleep(2 * time.Second)
		if _, err := p.Job(t.Context(), j1); err != nil { // the store tells its time: the process is known to run
			t.Fatal(err)
		}
		p = p.crash(opt)
		p.claim("c", time.Second)
	})
}

func TestALeaseThatWasRenewedSinceTheRestartHasNoGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opt := tokens.Options{RestartGrace: time.Hour}
		p := start(t, opt)
		l := p.claim("a", time.Second).Lease
		time.Sleep(time.Minute)
		p = p.crash(opt)
		if _, err := p.Renew(t.Context(), refOf(l), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.claim("b", time.Second)
	})
}
