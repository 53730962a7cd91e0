package e2e_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// The write was done, whatever the store says: its caller hears so, and nobody does it again.
func TestAStoreThatFailsAfterTheUpstreamsAnswerLeavesTheKeyUnknown(t *testing.T) {
	t.Parallel()
	for _, trouble := range []string{"commit-fails", "sequence-fails", "commit-hangs", "free"} {
		t.Run(trouble, func(t *testing.T) {
			t.Parallel()
			s, tr := openTroubled(t, daemon.Settings{})
			l := s.claim("job", "A", long)
			p := s.start(keyed(l, "k1", "first", "hang"))
			s.arrives("first")
			tr.begin(trouble, "1000000")
			s.up.Release("first")
			first := p.answer()
			s.forwarded(first, 200, "applied")
			s.quiet(func() { s.refused(s.send(keyed(l, "k1", "again", "")), 503, "store-unavailable") })
			tr.end(trouble)
			if trouble == "free" {
				s.until("/readyz is green", func() bool { return s.ready() == 200 })
				s.blocked(s.send(keyed(l, "k1", "healed", "")))
			}
			s.proxy.Kill()
			s.restart()
			// What failed may be on the disk all the same; then it is the truth.
			if got := s.send(keyed(l, "k1", "after", "")); got.Decision() == "replayed" && trouble != "free" {
				s.replayed(got, first)
			} else {
				s.blocked(got)
			}
			s.appliedOnce("job", "k1")
			s.unseen("again", "healed", "after")
		})
	}
}

// impatient is a proxy that forgets keys almost at once. It is a variant that sweeps ten times a second.
func impatient(t *testing.T, more ...string) *stage {
	t.Helper()
	s, _ := openTroubled(t, daemon.Settings{Route: append(more, "idempotency: {retention: 300ms}")})
	return s
}

func (s *stage) purged() float64 {
	s.Helper()
	n, err := s.control.Metric(s.soon(), "fenceproxy_keys_purged_total")
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func TestAKeyIsForgottenAfterItsRetentionAndThatIsCounted(t *testing.T) {
	t.Parallel()
	s := impatient(t)
	l, free, unknown := s.claim("held", "A", long), issued("free", 1), issued("lost", 1)
	s.forwarded(s.send(keyed(unknown, "k1", "unknown", "status=500")), 500, "unknown")
	kept := s.send(keyed(l, "k1", "kept", ""))
	s.forwarded(kept, 200, "applied")
	s.forwarded(s.send(keyed(free, "k1", "declined", "status=404")), 404, "declined")
	s.forwarded(s.send(keyed(free, "k1", "first", "")), 200, "applied")
	s.until("the key is forgotten", func() bool { return s.purged() == 1 })
	s.forwarded(s.send(keyed(free, "k1", "anew", "")), 200, "applied") // a new write, as far as anybody knows
	s.until("it is forgotten again", func() bool { return s.purged() == 2 })

	// A held job's keys, and what nobody knows, outlive any retention.
	s.replayed(s.send(keyed(l, "k1", "again", "")), kept)
	s.blocked(s.send(keyed(unknown, "k1", "again", "")))
	s.proxy.Kill()
	s.restart()
	s.forwarded(s.send(keyed(free, "k2", "second", "")), 200, "applied")
	s.until("the restarted proxy sweeps", func() bool { return s.purged() == 1 })
	s.replayed(s.send(keyed(l, "k1", "again", "")), kept)
	s.blocked(s.send(keyed(unknown, "k1", "again", "")))
	s.unseen("again")

	s.wantReply(s.reply(s.control.Release(s.soon(), l, nil)), 200, "")
	s.until("the released job's key is forgotten", func() bool { return s.purged() == 2 })
}

// The store keeps a few tables that are not worth a rewrite, so what counts is that it does not grow with what was purged.
func TestTheSpaceOfPurgedRepliesIsUsedAgain(t *testing.T) {
	t.Parallel()
	const rounds, keys, size = 5, 420, 62 << 10 // of 25 MB
	s := impatient(t)
	s.up.ForgetHeaders()
	s.up.Reply("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(noise(size))
	})
	var sizes []int64
	for round := range rounds {
		var workers sync.WaitGroup
		for n := range 12 {
			workers.Go(func() {
				for k := n; k < keys; k += 12 {
					w := keyed(issued(fmt.Sprintf("job-%d", n), 1), fmt.Sprintf("k%d", k), fmt.Sprintf("w%d-%d", round, k), "")
					w.Path = "/large"
					if a, err := s.writer.Send(s.Context(), w); err != nil || a.Status != 200 || a.Decision() != "forwarded" {
						s.Errorf("key %d: %v %d %s", k, err, a.Status, a.Decision())
					}
				}
			})
		}
		workers.Wait()
		s.until("all keys are forgotten", func() bool { return s.purged() == float64((round+1)*keys) })
		sizes = append(sizes, s.stored()>>20)
	}
	t.Logf("MiB on the disk after each 25 MB of replies were purged: %v", sizes)
	s.until("the space is given back", func() bool { return s.stored() < 64<<20 })
}

// noise is data that no store can compress.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint32(n)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// stored is how many bytes the data directory has on the disk, without the holes of preallocated logs.
func (s *stage) stored() (n int64) {
	s.Helper()
	err := filepath.WalkDir(s.proxy.Dir(), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return nil // deleted meanwhile
		}
		n += info.Size()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			n += st.Blocks*512 - info.Size()
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return n
}
