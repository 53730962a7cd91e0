package e2e_test

import (
	"fmt"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// issued is a generation that an outside lock service gave out; the lease API knows nothing of it.
func issued(job string, generation uint64) daemon.Lease {
	return daemon.Lease{Job: job, Generation: generation}
}

func TestAnOutsideIssuersGenerationRaisesTheFloorForGood(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.forwarded(s.send(write(issued("job", 5), "w5", "")), 200, "applied")
	s.stale(s.send(write(issued("job", 4), "w4", "")), "superseded")
	s.forwarded(s.send(write(issued("job", 5), "w5again", "")), 200, "applied")
	got := s.send(write(issued("job", 7), "w7", ""))
	s.forwarded(got, 200, "applied")
	if got.Floor() != 7 {
		t.Errorf("floor %d, want 7", got.Floor())
	}
	if code := s.proxy.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.restart()
	s.stale(s.send(write(issued("job", 6), "w6", "")), "superseded")
	s.forwarded(s.send(write(issued("job", 7), "w7again", "")), 200, "applied")
	s.unseen("w4", "w6")
}

func TestTheFloorIsOnDiskBeforeTheWriteIsSent(t *testing.T) {
	t.Parallel()
	s := open(t)
	for round := range uint64(5) {
		job, high := fmt.Sprintf("job-%d", round), fmt.Sprintf("high-%d", round)
		lost := s.start(write(issued(job, 9), high, "hang"))
		s.arrives(high)
		s.proxy.Kill() // the write is out, its answer never comes
		<-lost.done
		if lost.err == nil {
			t.Errorf("an answer came from a proxy that was killed: %s", show(lost.a))
		}
		s.restart()
		s.stale(s.send(write(issued(job, 8), "low-"+high, "")), "superseded")
		s.unseen("low-" + high)
		s.forwarded(s.send(write(issued(job, 9), "again-"+high, "")), 200, "applied")
	}
}

func TestAnOutsideIssuerMayRaiseTheFloorAtTakeover(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.forwarded(s.send(write(issued("job", 3), "w3", "")), 200, "applied")
	s.wantReply(s.reply(s.control.Fence(s.soon(), "job", 20, "takeover")), 200, "")
	s.stale(s.send(write(issued("job", 19), "w19", "")), "superseded")
	if r := s.reply(s.control.Fence(s.soon(), "job", 10, "by mistake")); r.Status >= 500 {
		t.Errorf("lowering a floor: %d %s", r.Status, r.Raw)
	}
	s.stale(s.send(write(issued("job", 19), "w19again", "")), "superseded")
	s.forwarded(s.send(write(issued("job", 20), "w20", "")), 200, "applied")
	s.unseen("w19", "w19again")
}

func TestAGenerationThatWasNeverIssuedChangesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	s.quiet(func() {
		for _, over := range []uint64{1, 2, 1 << 40} {
			w := write(issued("job", l.Generation+over), fmt.Sprintf("w%d", over), "")
			s.refused(s.send(w), 412, "unissued-generation")
		}
	})
	got := s.send(write(l, "w", ""))
	s.forwarded(got, 200, "applied")
	if got.Floor() != l.Generation {
		t.Errorf("floor %d, want %d", got.Floor(), l.Generation)
	}
	s.wantReply(s.reply(s.control.Release(s.soon(), l, nil)), 200, "")
	s.refused(s.send(write(issued("job", l.Generation+1), "w-next", "")), 412, "unissued-generation")
	if next := s.claim("job", "B", long); next.Generation != l.Generation+1 {
		t.Errorf("the next claim got generation %d, want %d", next.Generation, l.Generation+1)
	}
	s.unseen("w-next")
}

func TestARouteMayInsistOnIssuedGenerations(t *testing.T) {
	t.Parallel()
	s := open(t, "generations: issued")
	s.refused(s.send(write(issued("job", 5), "w5", "")), 412, "unknown-job")
	s.unseen("w5")
	l := s.claim("job", "A", long)
	s.forwarded(s.send(write(l, "w", "")), 200, "applied")
}
