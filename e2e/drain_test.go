package e2e_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

func TestAWriteUnderWayIsAnsweredBeforeAnOrderlyEnd(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			l := s.claim("job", "A", long)
			w := s.start(write(l, "w", "hang"))
			s.arrives("w")
			s.proxy.Signal(sig)
			s.draining()
			s.up.Release("w")
			s.forwarded(w.answer(), 200, "applied")
			if code := s.proxy.Wait(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			s.executed("w", 1)
		})
	}
}

// saysUnknown checks the answer to a write that was broken off.
func saysUnknown(t *testing.T, got daemon.Answer) {
	t.Helper()
	if got.Status != 502 && got.Status != 503 && got.Status != 504 || got.Outcome() != "unknown" || got.Reason() == "" {
		t.Errorf("want an answer that says unknown, got %s", show(got))
	}
}

func TestADrainThatIsTooShortSaysUnknown(t *testing.T) {
	t.Parallel()
	s := openWith(t, daemon.Settings{Top: []string{"drain: 1s"}})
	l := s.claim("job", "A", long)
	w := s.start(write(l, "w", "hang"))
	s.arrives("w")
	s.proxy.Signal(syscall.SIGTERM)
	saysUnknown(t, w.answer())
	if code := s.proxy.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	s.executed("w", 1)
}

func TestAKeyWhoseWriteTheDrainBrokeOffIsUnknownAfterTheRestart(t *testing.T) {
	t.Parallel()
	s := openWith(t, daemon.Settings{Top: []string{"drain: 1s"}})
	l := s.claim("job", "A", long)
	w := s.start(keyed(l, "k", "w", "hang"))
	s.arrives("w")
	s.proxy.Signal(syscall.SIGTERM)
	saysUnknown(t, w.answer())
	s.proxy.Wait()
	s.restart()
	s.quiet(func() { s.blocked(s.send(keyed(l, "k", "again", ""))) })
	s.executed("w", 1)
}

func TestAKeyWhoseWriteEndedInTheDrainIsReplayedAfterTheRestart(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	w := s.start(keyed(l, "k", "w", "hang"))
	s.arrives("w")
	s.proxy.Signal(syscall.SIGTERM)
	s.draining()
	s.up.Release("w")
	first := w.answer()
	s.forwarded(first, 200, "applied")
	if code := s.proxy.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	s.restart()
	s.quiet(func() { s.replayed(s.send(keyed(l, "k", "again", "")), first) })
}

// A worker that can not renew while its last write finishes would stop it for nothing.
func TestRenewalsAreServedUntilTheLastWriteHasItsAnswer(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	w := s.start(write(l, "w", "hang"))
	s.arrives("w")
	s.proxy.Signal(syscall.SIGTERM)
	s.draining()
	control := s.proxy.Control()
	defer control.Close()
	// One renewal after the other, until nobody listens any more: that may only be once the write was let go.
	for renewed := 0; ; {
		r, err := control.Renew(s.soon(), l, nil)
		if err != nil {
			if renewed < 20 {
				t.Fatalf("the lease API ended before the write: %v", err)
			}
			break
		}
		s.wantReply(r, 200, "")
		if renewed++; renewed == 20 {
			s.up.Release("w")
		}
	}
	s.forwarded(w.answer(), 200, "applied")
	if code := s.proxy.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestASecondSignalEndsTheProxyAtOnceAndLosesNoFloor(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", brief)
	w := s.start(write(a, "w", "hang"))
	s.arrives("w")
	b := s.takeOver("job", "B", long)
	s.proxy.Signal(syscall.SIGTERM)
	s.draining()
	s.proxy.Signal(syscall.SIGTERM) // the upstream still hangs, so only the signal can end it
	s.proxy.Wait()
	<-w.done
	s.restart()
	s.stale(s.send(write(a, "late", "")), "superseded")
	s.forwarded(s.send(write(b, "b", "")), 200, "applied")
	s.executed("w", 1)
}

func TestADrainingProxyTakesNoNewWriteAndServesRenewals(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	w := s.start(write(l, "w", "hang"))
	s.arrives("w")
	s.proxy.Signal(syscall.SIGTERM)
	s.draining()

	s.quiet(func() {
		got, err := s.writer.Send(s.soon(), write(l, "new", ""))
		if err == nil {
			s.refused(got, 503, "overloaded")
			if got.Header.Get("Retry-After") == "" {
				t.Error("the refusal does not say when to come back")
			}
		} else if !refusedDial(err) {
			t.Errorf("a new write was neither refused nor kept out: %v", err)
		}
	})
	s.unseen("new")
	s.wantReply(s.reply(s.control.Renew(s.soon(), l, nil)), 200, "")

	s.up.Release("w")
	s.forwarded(w.answer(), 200, "applied")
	if code := s.proxy.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	s.restart()
	r := s.reply(s.control.Renew(s.soon(), l, nil))
	s.wantReply(r, 200, "")
	if r.Flag("lapsed") {
		t.Errorf("the restart shortened the lease: %s", r.Raw)
	}
	s.forwarded(s.send(write(l, "after", "")), 200, "applied")
}

func TestALeaseThatRanOutDuringARestartIsStillItsHoldersForAWhile(t *testing.T) {
	t.Parallel()
	s := openWith(t, daemon.Settings{Leases: "{min_ttl: 50ms, restart_grace: 1h}"})
	l := s.claim("job", "A", brief)
	if code := s.proxy.Stop(); code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	s.restart()
	// Whether the lease ran out before or after the restart, nobody else may have it yet; its holder goes on.
	s.wantReply(s.reply(s.control.Renew(s.soon(), l, daemon.Fields{"ttl_ms": long.Milliseconds()})), 200, "")
	s.wantReply(s.reply(s.control.Claim(s.soon(), "job", "B", long, nil)), 409, "lease-held")
	s.forwarded(s.send(write(l, "w", "")), 200, "applied")
}

// draining waits until the proxy tells balancers that it is about to end.
func (s *stage) draining() {
	s.Helper()
	s.until("the proxy drains", func() bool {
		if s.proxy.Ended() {
			s.Fatal("the proxy ended while a write was under way")
		}
		r, err := s.control.Get(s.soon(), "/readyz")
		return err == nil && r.Status == 503
	})
}

// refusedDial tells whether a call failed because nobody listened: nothing can have been sent.
func refusedDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
