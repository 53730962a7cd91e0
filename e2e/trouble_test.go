package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// ready is the status of /readyz.
func (s *stage) ready() int {
	s.Helper()
	return s.reply(s.control.Get(s.soon(), "/readyz")).Status
}

// closedForWrites checks everything that a store in trouble must and must not do. Of job, l is current and old is over.
func (s *stage) closedForWrites(l, old daemon.Lease) {
	s.Helper()
	s.quiet(func() {
		s.refused(s.send(write(l, "current", "")), 503, "store-unavailable")
		got := s.send(write(daemon.Lease{Job: "outside", Generation: 8}, "newer", ""))
		s.refused(got, 503, "store-unavailable")
		if got.Header.Get("Retry-After") == "" {
			s.Errorf("no Retry-After: %s", show(got))
		}
		s.stale(s.send(write(old, "old", "")), "superseded")
		s.stale(s.send(write(daemon.Lease{Job: "outside", Generation: 6}, "lower", "")), "superseded")
	})
	s.unseen("current", "newer", "old", "lower")
	s.wantReply(s.reply(s.control.Claim(s.soon(), "another", "C", long, nil)), 503, "store-unavailable")
	s.wantReply(s.reply(s.control.Renew(s.soon(), l, nil)), 503, "store-unavailable")
	if got := s.ready(); got != 503 {
		s.Errorf("/readyz answers %d while the store takes no writes", got)
	}
	if r := s.reply(s.control.Get(s.soon(), "/healthz")); r.Status != 200 {
		s.Errorf("/healthz answers %d: a restart loop heals no disk", r.Status)
	}
}

// floorsHold checks, after a restart, that nothing that was acknowledged is lost.
func (s *stage) floorsHold(l, old daemon.Lease) {
	s.Helper()
	s.stale(s.send(write(old, "old-2", "")), "superseded")
	s.stale(s.send(write(daemon.Lease{Job: "outside", Generation: 6}, "lower-2", "")), "superseded")
	s.forwarded(s.send(write(l, "current-2", "")), 200, "applied")
	s.forwarded(s.send(write(daemon.Lease{Job: "outside", Generation: 8}, "newer-2", "")), 200, "applied")
	s.wantReply(s.reply(s.control.Renew(s.soon(), l, nil)), 200, "")
	if got := s.ready(); got != 200 {
		s.Errorf("/readyz answers %d after the restart", got)
	}
}

// before makes what closedForWrites and floorsHold speak of.
func (s *stage) before() (l, old daemon.Lease) {
	s.Helper()
	old = s.claim("job", "A", brief)
	s.forwarded(s.send(write(old, "first", "")), 200, "applied")
	l = s.takeOver("job", "B", long)
	s.forwarded(s.send(write(daemon.Lease{Job: "outside", Generation: 7}, "seven", "")), 200, "applied")
	return l, old
}

func TestATroubledStoreForwardsNothingUntilARestart(t *testing.T) {
	t.Parallel()
	for _, trouble := range []string{"commit-fails", "commit-hangs", "sequence-fails"} {
		t.Run(trouble, func(t *testing.T) {
			t.Parallel()
			s, tr := openTroubled(t, daemon.Settings{})
			l, old := s.before()
			tr.begin(trouble, "")
			s.quiet(func() {
				got := s.send(write(daemon.Lease{Job: "outside", Generation: 8}, "unlucky", ""))
				s.refused(got, 503, "store-unavailable")
			})
			s.until("/readyz is red", func() bool { return s.ready() == 503 })
			s.closedForWrites(l, old)
			// The disk is well again. What the failed commit left behind is not known all the same.
			tr.end(trouble)
			s.closedForWrites(l, old)
			s.proxy.Kill()
			s.restart()
			s.floorsHold(l, old)
			s.unseen("unlucky")
		})
	}
}

func TestAFullDiskIsRefusedInTimeAndHealsByItself(t *testing.T) {
	t.Parallel()
	s, tr := openTroubled(t, daemon.Settings{})
	l, old := s.before()
	tr.begin("free", "1000000")
	s.until("/readyz is red", func() bool { return s.ready() == 503 })
	s.closedForWrites(l, old)
	s.until("the log says how little is free", func() bool { return strings.Contains(s.proxy.Logs(), "1000000 bytes") })
	tr.end("free")
	s.until("/readyz is green", func() bool { return s.ready() == 200 })
	s.floorsHold(l, old) // without a restart

	tr.begin("free", "1000000")
	s.until("/readyz is red", func() bool { return s.ready() == 503 })
	if code := s.proxy.Stop(); code != 0 {
		t.Errorf("exit code %d after an orderly end", code)
	}
	if out, code := s.proxy.Refused(); code == 0 || !strings.Contains(out, "free space") {
		t.Errorf("it starts on a full disk: exit code %d\n%s", code, out)
	}
	tr.end("free")
	s.restart()
	s.stale(s.send(write(old, "old-3", "")), "superseded")
	s.forwarded(s.send(write(l, "current-3", "")), 200, "applied")
}

func TestASecondProcessIsToldWhoHasTheData(t *testing.T) {
	t.Parallel()
	s := open(t)
	l, old := s.before()
	out, errs, code := s.proxy.Second(s.soon())
	if code == 0 {
		t.Fatalf("a second process serves the same data\n%s%s", out, errs)
	}
	for _, want := range []string{fmt.Sprintf("process %d", s.proxy.PID()), s.proxy.Dir(), "--data"} {
		if !strings.Contains(out+errs, want) {
			t.Errorf("the second process does not say %q:\n%s%s", want, out, errs)
		}
	}
	out, errs, code = s.proxy.Run(s.soon(), "salvage", "--data", s.proxy.Dir())
	if code == 0 || !strings.Contains(errs, fmt.Sprintf("process %d", s.proxy.PID())) {
		t.Errorf("data in use are salvaged: exit code %d\n%s%s", code, out, errs)
	}
	s.floorsHold(l, old) // the first one has not noticed anything
	s.proxy.Kill()
	s.restart() // a dead holder holds nothing
	s.floorsHold(l, old)
}
