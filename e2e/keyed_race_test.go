package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/oracle"
)

const crowd = 50 // callers of one key

// told is what one of many callers was told, or that it was told nothing.
type told struct {
	write      daemon.Write
	a          daemon.Answer
	err        error
	start, end time.Time
}

// note is what the oracle has to know of it.
func (a told) note() oracle.Answer {
	n := oracle.Answer{ID: a.write.ID, Job: a.write.Job, Generation: a.write.Generation, Key: a.write.Key, Start: a.start, End: a.end}
	if a.err != nil {
		n.Failure = a.err.Error()
		return n
	}
	n.Status, n.Decision, n.Reason, n.Outcome = a.a.Status, a.a.Decision(), a.a.Reason(), a.a.Outcome()
	return n
}

// atOnce sends writes as close together as can be. meanwhile runs as soon as they are on their way.
func (s *stage) atOnce(all []daemon.Write, meanwhile func()) []told {
	out := make([]told, len(all))
	start := make(chan struct{})
	writer, ctx := s.writer, s.soon()
	var running sync.WaitGroup
	for i, w := range all {
		running.Go(func() {
			<-start
			out[i] = told{write: w, start: time.Now()}
			out[i].a, out[i].err = writer.Send(ctx, w)
			out[i].end = time.Now()
		})
	}
	close(start)
	meanwhile()
	running.Wait()
	return out
}

// identical is one write as many callers send it. They differ in the name by which the upstream knows them.
func identical(l daemon.Lease, key, id, do string, n int) []daemon.Write {
	out := make([]daemon.Write, n)
	for i := range out {
		out[i] = keyed(l, key, fmt.Sprintf("%s-%d", id, i), do)
	}
	return out
}

func TestOfFiftyIdenticalWritesAtOnceOneIsExecuted(t *testing.T) {
	t.Parallel()
	s := open(t)
	for round, do := range []string{"", "delay=5ms", "delay=100ms"} {
		l := s.claim(fmt.Sprintf("job-%d", round), "A", long)
		all := s.atOnce(identical(l, "k1", fmt.Sprintf("w%d", round), do, crowd), func() {})
		var fresh []daemon.Answer
		for _, a := range all {
			if a.err != nil {
				s.unanswered(a.write.ID, a.err)
			}
			if a.a.Decision() == "forwarded" {
				s.forwarded(a.a, 200, "applied")
				fresh = append(fresh, a.a)
			}
		}
		if len(fresh) != 1 {
			t.Fatalf("%d of the callers have a fresh answer, want one", len(fresh))
		}
		for _, a := range all {
			switch a.a.Decision() {
			case "forwarded":
			case "replayed":
				s.replayed(a.a, fresh[0])
			default:
				s.inProgress(a.a)
			}
		}
		s.appliedOnce(l.Job, "k1")
		s.replayed(s.send(keyed(l, "k1", "later", "")), fresh[0])
	}
	if n := len(s.up.Records()); n != 3 {
		t.Errorf("the upstream saw %d requests, want 3", n)
	}
}

func TestOfFiftyIdenticalWritesOfTwoGenerationsOneIsExecuted(t *testing.T) {
	t.Parallel()
	s := open(t)
	for round := range 5 {
		job := fmt.Sprintf("job-%d", round)
		all := identical(issued(job, 7), "k1", job+"-seven", "delay=5ms", crowd/2)
		all = append(all, identical(issued(job, 8), "k1", job+"-eight", "delay=5ms", crowd/2)...)
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		h := oracle.History{}
		fresh, lost := 0, false
		for _, a := range s.atOnce(all, func() {}) {
			if a.err != nil {
				s.unanswered(a.write.ID, a.err)
			}
			h.Answers = append(h.Answers, a.note())
			switch {
			case a.a.Decision() == "forwarded":
				s.forwarded(a.a, 200, "applied")
				fresh++
			case a.a.Decision() == "replayed":
			case a.a.Reason() == "stale-generation" && a.write.Generation == 7:
				lost = lost || a.a.Outcome() == "unknown" // cut with its first bytes on the way
			case a.a.Reason() == "outcome-unknown":
				lost = true
			default:
				s.inProgress(a.a)
			}
		}
		last := s.send(keyed(issued(job, 8), "k1", job+"-last", ""))
		s.stale(s.send(keyed(issued(job, 7), "k1", job+"-late", "")), "superseded")
		switch {
		case lost:
			s.blocked(last)
		case fresh == 1 && last.Decision() == "replayed":
			s.appliedOnce(job, "k1")
		default:
			t.Errorf("%d fresh answers, and the next is %s", fresh, show(last))
		}
		h.Upstream = s.up.Records()
		if err := oracle.Judge(h); err != nil {
			t.Error(err)
		}
	}
}

// TestAKeyIsExecutedAtMostOnceHoweverOftenTheProxyIsKilled kills the proxy at a random moment while many callers send the
// same write, starts it again and lets one more caller try. FENCEPROXY_SOAK_KEYED is how often, 10 by default.
func TestAKeyIsExecutedAtMostOnceHoweverOftenTheProxyIsKilled(t *testing.T) {
	t.Parallel()
	rounds := fromEnv(t, "FENCEPROXY_SOAK_KEYED", 10)
	s := open(t)
	s.up.ForgetHeaders()
	h := oracle.History{CutSkew: 100 * time.Millisecond}
	met := make(map[string]int)
	for round := range rounds {
		l := s.claim(fmt.Sprintf("job-%d", round), "A", long)
		do := [...]string{"", "delay=3ms", "delay=15ms"}[round%3]
		wait := time.NewTimer(time.Duration(rand.Int64N(int64(30 * time.Millisecond))))
		answers := s.atOnce(identical(l, "k1", l.Job, do, crowd), func() {
			<-wait.C
			s.proxy.Kill()
		})
		s.until("the upstream has noticed the crash", func() bool { return s.up.Open() == 0 })
		before := s.up.ExecutedKey(l.Job, "k1")
		s.restart()
		last := told{write: keyed(l, "k1", l.Job+"-last", ""), start: time.Now()}
		last.a, last.end = s.send(last.write), time.Now()
		for _, a := range append(answers, last) {
			h.Answers = append(h.Answers, a.note())
			if a.err == nil && a.a.Status == 200 && last.a.Decision() != "replayed" && a.write.ID != last.write.ID {
				t.Errorf("round %d: %s was told %s, and after the crash the answer is %s", round, a.write.ID, show(a.a), show(last.a))
			}
		}
		switch {
		case last.a.Decision() == "forwarded" && before == 0:
			s.forwarded(last.a, 200, "applied")
		case last.a.Decision() == "replayed" && before == 1:
		default:
			s.blocked(last.a)
		}
		met[last.a.Decision()+last.a.Reason()]++
		if n := s.up.ExecutedKey(l.Job, "k1"); n > 1 {
			t.Fatalf("round %d: the key was executed %d times", round, n)
		}
	}
	h.Upstream = s.up.Records()
	if err := oracle.Judge(h); err != nil {
		t.Error(err)
	}
	t.Logf("%d rounds: the caller after the crash was told %v", rounds, met)
}
