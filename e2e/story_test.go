package e2e_test

import (
	"fmt"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

func TestAStaleWriteIsRefusedBeforeTheSuccessorsFirstWrite(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", brief)
	s.forwarded(s.send(write(a, "a1", "")), 200, "applied")

	b := s.takeOver("job", "B", long) // A has stopped; nobody told it
	if a.Generation != 1 || b.Generation != 2 {
		t.Fatalf("generations %d and %d, want 1 and 2", a.Generation, b.Generation)
	}
	s.quiet(func() {
		got := s.send(write(a, "a2", ""))
		s.stale(got, "superseded")
		if got.Number("generation") != 1 || got.Number("floor") != 2 || got.Floor() != 2 || got.Text("job_id") != "job" {
			t.Errorf("the refusal does not say what was asked and what holds: %s", show(got))
		}
		if got.Text("retry") != "never" || got.Header.Get("Retry-After") != "" {
			t.Errorf("the refusal invites to try again: %s", show(got))
		}
	})
	s.unseen("a2")

	got := s.send(write(b, "b1", ""))
	s.forwarded(got, 200, "applied")
	if got.Floor() != 2 {
		t.Errorf("B is told floor %d, want 2", got.Floor())
	}
	s.executed("a1", 1)
	s.executed("b1", 1)
}

func TestAStaleWriterWhoRetriesForeverStaysRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", brief)
	b := s.takeOver("job", "B", long)
	s.quiet(func() {
		for i := range 20 {
			s.stale(s.send(write(a, fmt.Sprintf("a%d", i), "")), "superseded")
		}
	})
	s.wantReply(s.reply(s.control.Claim(s.soon(), "job", "A", long, nil)), 409, "lease-held")
	s.forwarded(s.send(write(b, "b", "")), 200, "applied")
}

func TestAnExpiredLeaseThatNobodyTookStillWrites(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", brief)
	s.outlive(brief)
	s.forwarded(s.send(write(a, "a", "")), 200, "applied")
	r := s.reply(s.control.Renew(s.soon(), a, daemon.Fields{"ttl_ms": long.Milliseconds()}))
	s.wantReply(r, 200, "")
	if !r.Flag("lapsed") || r.Number("expires_in_ms") <= 0 {
		t.Errorf("renewing a lease that ran out: %s", r.Raw)
	}
}

func TestAFrozenProxyForgetsNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", brief)
	s.proxy.Pause()
	early := s.start(write(a, "a1", "")) // waits in the socket of a process that does not run
	s.staysAway("a1")
	s.proxy.Continue()
	s.forwarded(early.answer(), 200, "applied")
	b := s.takeOver("job", "B", long)
	s.stale(s.send(write(a, "a2", "")), "superseded")
	s.forwarded(s.send(write(b, "b1", "")), 200, "applied")
	s.unseen("a2")
}
