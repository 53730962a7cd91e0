package e2e_test

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/oracle"
)

// envRounds is how often a worker is paused; 10 times if it is not set.
const envRounds = "FENCEPROXY_PAUSE_ROUNDS"

func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv(envRounds)
	if text == "" {
		return 10
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("read %s: %v", envRounds, err)
	}
	return n
}

// inOrder lets the oracle look at what the upstream saw.
func (s *stage) inOrder() {
	s.Helper()
	h := oracle.History{Upstream: s.up.Records(), CutSkew: 100 * time.Millisecond}
	for _, rule := range []func(oracle.History) []oracle.Violation{oracle.Order, oracle.Overlap, oracle.Once} {
		for _, v := range rule(h) {
			s.Error(v)
		}
	}
}

func TestWorkerThatWasPausedBeyondItsLeaseWritesNothingMore(t *testing.T) {
	t.Parallel()
	s := open(t)
	const ttl = 1500 * time.Millisecond // the worker has to come as far as its pause
	told := make(map[string]int)
	for round := range rounds(t) {
		job := fmt.Sprintf("job-%d", round)
		id := func(who string) string { return fmt.Sprintf("%s-%d", who, round) }
		paused, next := s.hire("paused", "", ttl), s.hire("next", "", 10*time.Second)
		old := paused.claims(job)
		paused.writes(id("before"))
		// Where the pause begins: before the write is thought of, with the lease client or without it, or after the
		// last check.
		how := []string{"write", "stalled", "raw"}[round%3]
		if how == "stalled" {
			paused.order("stalled %s", id("late"))
			if a := paused.hear(); a.Did != "stalling" {
				t.Fatalf("round %d: %+v", round, a)
			}
			daemon.AwaitFrozen(t, paused.cmd.Process)
		} else {
			daemon.Freeze(t, paused.cmd.Process)
			paused.order("%s %s", how, id("late"))
		}
		if got := next.claims(job); got.Generation <= old.Generation {
			t.Fatalf("round %d: generation %d after %d", round, got.Generation, old.Generation)
		}
		next.writes(id("next"))
		s.outlive(ttl)

		paused.signal(syscall.SIGCONT)
		got := paused.hear()
		switch {
		case got.Did != how || got.ID != id("late"):
			t.Fatalf("round %d: %+v", round, got)
		case got.Lost && got.Status == 0 && how == "write":
			told["refused by the client"]++
		case got.Status == 412 && got.Reason == "stale-generation":
			told["refused by the proxy"]++
		default:
			t.Errorf("round %d, %s: the first write after the pause: %+v", round, how, got)
		}
		if lost := paused.loses(); lost.Why != "expired" && lost.Why != "superseded" {
			t.Errorf("round %d: %+v", round, lost)
		}
		s.unseen(id("late"))
		next.writes(id("after"))
		next.does("release")
		if len(paused.lost) != 0 {
			t.Errorf("round %d: the loss was told twice", round)
		}
		paused.fire()
		next.fire()
	}
	s.inOrder()
	t.Logf("%d rounds: %v", rounds(t), told)
}

func TestWorkerThatIsRestartedUnderItsNameIsAnotherHolder(t *testing.T) {
	t.Parallel()
	s := open(t)
	const ttl = 3 * time.Second
	a, b := s.hire("worker-1", "", ttl), s.hire("worker-1", "", ttl)
	first := a.claims("job")
	a.writes("first")
	a.fire()
	crashed := time.Now()

	b.order("claim job") // without waiting: the same name gets nothing that others would not
	if got := b.hear(); got.Why != "held" {
		t.Errorf("%+v", got)
	}
	second := b.claims("job")
	if second.Generation <= first.Generation {
		t.Errorf("generation %d after %d", second.Generation, first.Generation)
	}
	if waited := time.Since(crashed); waited > ttl+10*time.Second {
		t.Errorf("the job of a crashed worker was free after %v", waited)
	}
	b.writes("second")
	s.inOrder()
}

func TestWorkerThatEndsInOrderLeavesNothingHeld(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := s.hire("worker", "", time.Minute)
	w.claims("job")
	if err := w.in.Close(); err != nil { // the client's Close
		t.Fatal(err)
	}
	<-w.done
	s.claim("job", "next", long)
}
