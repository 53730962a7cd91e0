package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/oracle"
)

const (
	soakWorkers = 64
	soakJobs    = 200
	soakRound   = 1500 * time.Millisecond // of load before the kill
)

// TestKillingTheProxyUnderLoadLosesNoFloor kills the proxy again and again while many workers claim, stall and write. The
// number of restarts is FENCEPROXY_SOAK_RESTARTS, 5 by default.
func TestKillingTheProxyUnderLoadLosesNoFloor(t *testing.T) {
	restarts := fromEnv(t, "FENCEPROXY_SOAK_RESTARTS", 5)
	seed := rand.Uint64()
	t.Logf("seed %d", seed) // the load is random, and so is the machine: the seed alone repeats no run
	dice := rand.New(rand.NewPCG(seed, 0))

	s := open(t, "body: {buffer: 4KiB}", "takeover: {wait: 300ms}", "timeout: 5s")
	s.up.ForgetHeaders()
	l := newLoad(soakWorkers, soakJobs, seed)
	for round := range restarts {
		before := len(s.up.Records())
		soakOnce(s, l, dice)
		s.judge(l, round)
		if seen := len(s.up.Records()) - before; seen == 0 {
			t.Fatalf("round %d: no write reached the upstream: the round proves nothing", round)
		}
	}
	t.Logf("%d restarts: %d requests at the upstream, %d writes sent, %d applied, %d refused as stale, %d leases granted",
		restarts, len(s.up.Records()), len(l.answers), l.applied, l.stale, l.granted)
	if l.stale == 0 || l.applied == 0 {
		t.Error("the load was too tame to prove anything")
	}
}

// fromEnv is a positive number from the environment.
func fromEnv(t *testing.T, name string, fallback int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s: %q is no positive number", name, text)
	}
	return n
}

// soakOnce runs one round: load, a kill in the midst of it, a restart, and a look at every job.
func soakOnce(s *stage, l *load, dice *rand.Rand) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	writer := s.proxy.Writer(true)
	defer writer.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx, ctx, s.control, writer)
	}()
	freeze := time.After(time.Duration(dice.Int64N(int64(soakRound))))
	kill := time.After(soakRound/2 + time.Duration(dice.Int64N(int64(soakRound))))
	var thaw <-chan time.Time
	for killed := false; !killed; {
		select {
		case <-freeze:
			s.proxy.Pause()
			thaw = time.After(150 * time.Millisecond)
		case <-thaw:
			s.proxy.Continue()
		case <-kill:
			s.proxy.Kill()
			killed = true
		case <-done:
			s.Fatal("the workers gave up before the proxy was killed")
		}
	}
	<-done
	// What the dead process had sent is in the upstream's sockets. It counts as cut at the restart; on one machine that
	// is soon enough only if the upstream's goroutines had their turn.
	s.until("the upstream has noticed the crash", func() bool { return s.up.Open() == 0 })
	s.restart()
	for i := range soakJobs {
		job := fmt.Sprintf("job-%03d", i)
		start := time.Now()
		r := s.reply(s.control.Job(s.soon(), job))
		if r.Status == 404 {
			continue // never claimed
		}
		s.wantReply(r, 200, "")
		if floor := r.Number("floor"); floor < 0 {
			s.Fatalf("the view of a job tells no floor: %s", r.Raw)
		} else {
			l.ack(oracle.Ack{Job: job, Floor: uint64(floor), Start: start, End: time.Now()})
		}
	}
}

// judge asks the oracle about everything so far. On a failure the whole history is kept beside the test's output.
func (s *stage) judge(l *load, round int) {
	s.Helper()
	l.mu.Lock()
	h := oracle.History{Upstream: s.up.Records(), Answers: l.answers, Acks: l.acks, CutSkew: 100 * time.Millisecond}
	l.mu.Unlock()
	err := oracle.Judge(h)
	if err == nil {
		return
	}
	path := filepath.Join(s.ArtifactDir(), "history.json")
	if raw, err := json.Marshal(h); err != nil {
		s.Errorf("write history: %v", err)
	} else if err := os.WriteFile(path, raw, 0o600); err != nil {
		s.Errorf("write history: %v", err)
	}
	s.Fatalf("round %d (history in %s, kept with -artifacts):\n%s", round, path, head(err.Error(), 30))
}

// head is the first lines of a text that may be very long.
func head(text string, lines int) string {
	for i := range text {
		if text[i] != '\n' {
			continue
		}
		if lines--; lines == 0 {
			return text[:i] + "\n..."
		}
	}
	return text
}

// TestTheOrderHoldsUnderLoadWithoutACrash runs the same load against a proxy that lives, so that every answer can be held
// against what the upstream saw.
func TestTheOrderHoldsUnderLoadWithoutACrash(t *testing.T) {
	s := openWith(t, daemon.Settings{Route: []string{"body: {buffer: 4KiB}", "takeover: {wait: 300ms}"}})
	s.up.ForgetHeaders()
	l := newLoad(soakWorkers, 20, rand.Uint64()) // few jobs: every lease is contended
	writer := s.proxy.Writer(true)
	defer writer.Close()
	// The workers stop by themselves, so that no write is without an answer.
	stop, cancel := context.WithTimeout(t.Context(), 2*soakRound)
	defer cancel()
	l.run(s.soon(), stop, s.control, writer)
	s.judge(l, 0)
	for _, a := range l.answers {
		if a.Status == 0 {
			t.Errorf("write %q got no answer from a proxy that lives: %s", a.ID, a.Failure)
		}
	}
	if l.stale == 0 || l.applied == 0 {
		t.Errorf("the load was too tame: %d applied, %d stale", l.applied, l.stale)
	}
}
