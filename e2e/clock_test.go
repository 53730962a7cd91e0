package e2e_test

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// steps are how the wall clock is moved, and whether the proxy is down meanwhile.
var steps = map[string]struct {
	by      time.Duration
	restart bool
}{
	"an hour forward while it runs":        {time.Hour, false},
	"an hour back while it runs":           {-time.Hour, false},
	"an hour forward while it is down":     {time.Hour, true},
	"an hour back while it is down":        {-time.Hour, true},
	"back to right after it started ahead": {0, true}, // by the hour that it is ahead
}

// left is what is left of a lease, by the job's view.
func (s *stage) left(job string) time.Duration {
	s.Helper()
	r := s.reply(s.control.Job(s.soon(), job))
	s.wantReply(r, 200, "")
	lease, ok := r.Body["lease"].(daemon.Fields)
	if !ok {
		s.Fatalf("nobody holds %s: %s", job, r.Raw)
	}
	return time.Duration((daemon.Reply{Body: lease}).Number("expires_in_ms")) * time.Millisecond
}

func TestAStepOfTheWallClockMovesNoLeaseAndNoFloor(t *testing.T) {
	t.Parallel()
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, tr := openTroubled(t, daemon.Settings{Leases: "{min_ttl: 50ms, restart_grace: 300ms}"})
			if step.by == 0 {
				tr.step(time.Hour)
				s.proxy.Kill()
				s.restart()
			}
			const ttl = 1500 * time.Millisecond
			old := s.claim("job", "A", brief)
			l := s.takeOver("job", "B", 2*time.Hour)
			began := time.Now()
			short := s.claim("short", "A", ttl)
			granted := time.Now()
			tr.step(step.by)
			if step.restart {
				s.proxy.Kill()
				s.restart()
			}

			// A step back, or one that a running proxy sees, ends no lease early.
			if step.by <= 0 || !step.restart {
				if left := s.left("job"); left <= time.Hour || left > 2*time.Hour {
					t.Errorf("%v are left of a lease of two hours that was just granted", left)
				}
				r := s.reply(s.control.Claim(s.soon(), "job", "C", long, nil))
				s.wantReply(r, 409, "lease-held")
				for r.Status == 409 { // until it passes on
					r = s.reply(s.control.Claim(s.soon(), "short", "C", long, daemon.Fields{"wait_ms": patience.Milliseconds() / 2}))
				}
				if lived := time.Since(began); lived < ttl {
					t.Errorf("a lease of %v passed on after %v", ttl, lived)
				}
			} else {
				// Time went on by an hour, as far as anybody can tell; the holder has the grace.
				s.takeOver("short", "C", long)
			}
			if lived := time.Since(granted); lived > ttl+time.Minute { // and not by an hour
				t.Errorf("a lease of %v passed on after %v", ttl, lived)
			}
			s.stale(s.send(write(short, "short", "")), "superseded")

			// Floors and generations only rise, wherever the clock is.
			s.stale(s.send(write(old, "old", "")), "superseded")
			s.forwarded(s.send(write(l, "current", "")), 200, "applied")
			last := l.Generation
			for i, by := range []time.Duration{-time.Hour, time.Hour, 0} {
				tr.step(by)
				if i == 1 {
					s.proxy.Kill()
					s.restart()
				}
				next := s.takeOverRevoked("job", last)
				if next.Generation <= last {
					t.Errorf("generation %d was issued after %d", next.Generation, last)
				}
				last = next.Generation
				s.stale(s.send(write(l, "late", "")), "revoked")
			}
		})
	}
}

func TestALeaseGrantedWhileTheClockWasWrongDoesNotLiveAnHourLonger(t *testing.T) {
	t.Parallel()
	s, tr := openTroubled(t, daemon.Settings{})
	tr.step(time.Hour)
	s.proxy.Kill()
	s.restart()
	const ttl = time.Second
	s.claim("job", "A", ttl)
	granted := time.Now()
	tr.step(0) // the clock is put right, and the proxy starts an hour before the lease was granted
	s.proxy.Kill()
	s.restart()
	s.takeOver("job", "B", long)
	if lived := time.Since(granted); lived > ttl+time.Minute {
		t.Errorf("a lease of %v passed on after %v", ttl, lived)
	}
}

func TestAfterAnOutageTheHolderHasTheGraceToItself(t *testing.T) {
	t.Parallel()
	const grace = 5 * time.Second
	s, tr := openTroubled(t, daemon.Settings{Leases: "{min_ttl: 50ms, restart_grace: 5s}"})
	kept := s.claim("kept", "A", 3*time.Second)
	lost := s.claim("lost", "A", 3*time.Second)
	s.proxy.Kill()
	tr.step(5 * time.Second) // down for five seconds, as far as the store can tell
	down := time.Now()
	s.restart()
	rival := func(job string) daemon.Reply {
		return s.reply(s.control.Claim(s.soon(), job, "B", long, nil))
	}
	s.wantReply(rival("kept"), 409, "lease-held")
	s.wantReply(rival("lost"), 409, "lease-held")
	s.forwarded(s.send(write(kept, "before-renewal", "")), 200, "applied")
	r := s.reply(s.control.Renew(s.soon(), kept, daemon.Fields{"ttl_ms": long.Milliseconds()}))
	s.wantReply(r, 200, "")
	if !r.Flag("lapsed") {
		t.Errorf("a lease that ran out while the proxy was down did not lapse: %s", r.Raw)
	}
	next := s.takeOver("lost", "B", long)
	if waited := time.Since(down); waited < grace {
		t.Errorf("a rival got the job %v after the start, want not before %v", waited, grace)
	}
	if next.Generation != 2 {
		t.Errorf("the rival got generation %d, want 2", next.Generation)
	}
	s.stale(s.send(write(lost, "late", "")), "superseded")
	// The one that renewed in time goes on with its generation.
	s.wantReply(rival("kept"), 409, "lease-held")
	s.forwarded(s.send(write(kept, "after", "")), 200, "applied")
	if kept.Generation != 1 {
		t.Errorf("generation %d", kept.Generation)
	}
}

func TestAfterACrashTheUpstreamHasItsLingerToStop(t *testing.T) {
	t.Parallel()
	const linger = 1500 * time.Millisecond
	s := open(t, "takeover: {linger: 1500ms, wait: 10s}")
	a := s.claim("job", "A", brief)
	older := s.start(write(a, "a", "hang"))
	s.arrives("a")
	s.proxy.Kill()
	<-older.done
	down := time.Now()
	s.restart()
	b := s.takeOver("job", "B", long)
	newer := s.start(write(b, "b", ""))
	fresh := s.claim("fresh", "B", long)
	s.forwarded(s.send(write(fresh, "fresh", "")), 200, "applied") // nothing of it can be under way
	if waited := time.Since(down); waited < linger && newer.over() {
		t.Errorf("the first write after the crash went through after %v", waited)
	}
	s.forwarded(newer.answer(), 200, "applied")
	if began := s.arrives("b").BeganAt; began.Sub(down) < linger {
		t.Errorf("the first write after the crash reached the upstream %v after it, want not before %v", began.Sub(down), linger)
	}
	s.forwarded(s.send(write(b, "b2", "")), 200, "applied")
}
