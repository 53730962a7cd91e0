package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/upstream"
)

// crash kills the proxy, checks that the caller of a write has learned nothing, and starts it again.
func (s *stage) crash(p *pending) {
	s.Helper()
	if p.over() {
		s.Fatalf("the caller has an answer already: %v %s", p.err, show(p.a))
	}
	s.proxy.Kill()
	<-p.done
	if p.err == nil {
		s.Fatalf("an answer came from a proxy that was killed: %s", show(p.a))
	}
}

func TestAWriteKilledBeforeItsRecordIsDurableIsForwardedAgain(t *testing.T) {
	t.Parallel()
	s, tr := openTroubled(t, daemon.Settings{})
	l := s.claim("job", "A", long)
	tr.begin("space-hangs", "")
	p := s.start(keyed(l, "k1", "lost", ""))
	s.staysAway("lost")
	s.crash(p)
	tr.end("space-hangs")
	s.restart()
	s.forwarded(s.send(keyed(l, "k1", "again", "")), 200, "applied")
	s.unseen("lost")
	s.appliedOnce("job", "k1")
}

// A hanging transaction is in the sequence file already: the record may be durable, and the write was not sent.
func TestAWriteKilledWhileItsRecordIsWrittenIsNotSent(t *testing.T) {
	t.Parallel()
	s, tr := openTroubled(t, daemon.Settings{})
	l := s.claim("job", "A", long)
	tr.begin("commit-hangs", "")
	p := s.start(keyed(l, "k1", "lost", ""))
	s.staysAway("lost")
	s.crash(p)
	tr.end("commit-hangs")
	s.restart()
	s.forwardedOrBlocked(keyed(l, "k1", "again", ""))
	s.unseen("lost")
}

// forwardedOrBlocked accepts both answers to a write whose record was durable and of which nothing was sent.
func (s *stage) forwardedOrBlocked(w daemon.Write) {
	s.Helper()
	got := s.send(w)
	if got.Decision() == "forwarded" {
		s.forwarded(got, 200, "applied")
		s.appliedOnce(w.Job, w.Key)
		return
	}
	s.blocked(got)
	s.unseen(w.ID)
}

func TestAWriteKilledBeforeItIsSentIsForwardedOrUnknown(t *testing.T) {
	t.Parallel()
	deaf, err := upstream.NewDeaf()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(deaf.Close)
	s := onStage(t, deaf.Server, daemon.Settings{Upstream: deaf.URL()})
	l := s.claim("job", "A", long)
	p := s.start(keyed(l, "k1", "lost", ""))
	s.becomes("job", "k1", "in_flight")
	s.crash(p)
	s.restart()
	deaf.Release()
	s.forwardedOrBlocked(keyed(l, "k1", "again", ""))
	s.unseen("lost")
}

func TestAWriteKilledWhileTheUpstreamIsAtWorkIsUnknownAndListed(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	began := time.Now()
	p := s.start(keyed(l, "k1", "lost", "hang"))
	s.arrives("lost")
	s.crash(p)
	for range 2 { // an unknown write is unknown after any number of restarts
		s.restart()
		s.quiet(func() { s.blocked(s.send(keyed(l, "k1", "again", ""))) })
		w := s.listed("job", "unknown")["k1"]
		started, err := time.Parse(time.RFC3339, text(w, "started"))
		if err != nil || started.Sub(began).Abs() > time.Minute || text(w, "job_id") != "job" || text(w, "route") != daemon.Route ||
			text(w, "method") != "POST" || text(w, "path") != "/charge" || daemon.Number(w, "generation") != int64(l.Generation) {
			t.Errorf("listed as %v (%v)", w, err)
		}
		s.proxy.Kill()
	}
	s.restart()
	s.wantReply(s.reply(s.control.Revoke(s.soon(), "job", l.Generation, "test")), 200, "")
	r := s.reply(s.control.Claim(s.soon(), "job", "B", long, nil))
	s.wantReply(r, 201, "")
	if lost := daemon.List(r.Member("predecessor"), "unresolved"); len(lost) != 1 || text(lost[0], "key") != "k1" || text(lost[0], "state") != "unknown" {
		t.Errorf("the successor was told %s", r.Raw)
	}
	s.blocked(s.send(keyed(r.Lease(), "k1", "of the next", "")))
	s.unseen("again", "of the next")
	s.appliedOnce("job", "k1")
}

func text(f daemon.Fields, name string) string { v, _ := f[name].(string); return v }

func TestAWriteKilledBeforeItsOutcomeIsRecordedIsUnknown(t *testing.T) {
	t.Parallel()
	s, tr := openTroubled(t, daemon.Settings{})
	l := s.claim("job", "A", long)
	p := s.start(keyed(l, "k1", "lost", "hang"))
	s.arrives("lost")
	before := s.answeredBy()
	tr.begin("space-hangs", "")
	s.up.Release("lost")
	s.until("the proxy has the upstream's answer", func() bool { return s.answeredBy() > before })
	ctx, cancel := context.WithTimeout(t.Context(), glance)
	defer cancel()
	select {
	case <-p.done: // crash tells what it was: nothing may be said that is not durable
	case <-ctx.Done():
	}
	s.crash(p)
	tr.end("space-hangs")
	s.restart()
	s.quiet(func() { s.blocked(s.send(keyed(l, "k1", "again", ""))) })
	s.appliedOnce("job", "k1")
}

func TestAWriteKilledBeforeItsAnswerIsDeliveredIsReplayed(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	ctx, hangUp := context.WithCancel(s.soon())
	p := s.startIn(ctx, keyed(l, "k1", "lost", "hang"))
	s.arrives("lost")
	hangUp() // so that nothing can be delivered
	<-p.done
	s.up.Release("lost")
	s.becomes("job", "k1", "applied")
	s.proxy.Kill()
	s.restart()
	s.quiet(func() {
		got := s.send(keyed(l, "k1", "again", ""))
		if got.Status != 200 || got.Decision() != "replayed" || string(got.Raw) != "done lost\n" {
			t.Errorf("got %s", show(got))
		}
	})
	s.appliedOnce("job", "k1")
}
