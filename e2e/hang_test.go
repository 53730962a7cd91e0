package e2e_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// The store's heartbeat is the first to hang when nobody writes.
func TestADiskThatHangsIsNoticedWithoutAWrite(t *testing.T) {
	t.Parallel()
	s, tr := openTroubled(t, daemon.Settings{})
	l, old := s.before()
	tr.begin("commit-hangs", "")
	s.until("/readyz is red", func() bool { return s.ready() == 503 })
	s.closedForWrites(l, old)
	tr.end("commit-hangs")
	s.proxy.Kill()
	s.restart()
	s.floorsHold(l, old)
}

func TestAProxyWhoseDiskHangsCanBeEnded(t *testing.T) {
	t.Parallel()
	s, tr := openTroubled(t, daemon.Settings{Top: []string{"drain: 1s"}})
	l, _ := s.before()
	tr.begin("commit-hangs", "")
	s.refused(s.send(write(daemon.Lease{Job: "outside", Generation: 8}, "unlucky", "")), 503, "store-unavailable")
	s.until("/readyz is red", func() bool { return s.ready() == 503 })
	s.proxy.Stop() // its exit code says that not all went well, or not; that it ends is what counts
	tr.end("commit-hangs")
	s.restart()
	s.forwarded(s.send(write(l, "current", "")), 200, "applied")
}
