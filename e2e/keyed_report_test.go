package e2e_test

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

func TestASuccessorIsToldWhatItsPredecessorDid(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", long)
	s.forwarded(s.send(keyed(a, "done", "done", "")), 200, "applied")
	s.forwarded(s.send(keyed(a, "no", "no", "status=404")), 404, "declined")
	s.forwarded(s.send(keyed(a, "lost", "lost", "status=500")), 500, "unknown")
	late := s.start(keyed(a, "late", "late", "hang"))
	s.arrives("late")
	s.wantReply(s.reply(s.control.Revoke(s.soon(), "job", a.Generation, "test")), 200, "")

	r := s.reply(s.control.Claim(s.soon(), "job", "B", brief, nil))
	s.wantReply(r, 201, "")
	s.report(r, a, "revoked", 1, 1, map[string]string{"lost": "unknown", "late": "in_flight"})

	b := r.Lease()
	s.outlive(brief)
	settled := s.claimAside("C", patience)
	s.until("the floor has risen", func() bool {
		return s.reply(s.control.Job(s.soon(), "job")).Number("floor") > int64(b.Generation)
	})
	s.up.Release("late")
	s.forwarded(late.answer(), 200, "applied")
	r = <-settled
	s.wantReply(r, 201, "")
	// B made no writes. What A left open is told all the same.
	p := r.Member("predecessor")
	if daemon.Number(p, "generation") != int64(b.Generation) || daemon.Number(p, "in_flight") != 0 {
		t.Errorf("the report is not final: %s", r.Raw)
	}
	if open := daemon.List(p, "unresolved"); len(open) != 1 || text(open[0], "key") != "lost" {
		t.Errorf("unresolved: %s", r.Raw)
	}
}

// claimAside claims the job beside the test, with some time for older attempts to settle.
func (s *stage) claimAside(owner string, settle time.Duration) <-chan daemon.Reply {
	claimed := make(chan daemon.Reply, 1)
	control, ctx := s.control, s.soon()
	go func() {
		r, err := control.Claim(ctx, "job", owner, long, daemon.Fields{"settle_ms": settle.Milliseconds()})
		if err != nil {
			s.Errorf("no answer to the claim: %v", err)
		}
		claimed <- r
	}()
	return claimed
}

// report checks what a claim tells of the generation before.
func (s *stage) report(r daemon.Reply, before daemon.Lease, ended string, inFlight, applied int64, open map[string]string) {
	s.Helper()
	p := r.Member("predecessor")
	writes, _ := p["writes"].(daemon.Fields)
	if daemon.Number(p, "generation") != int64(before.Generation) || text(p, "owner") != before.Owner || text(p, "ended") != ended ||
		daemon.Number(p, "in_flight") != inFlight || daemon.Number(writes, "applied") != applied ||
		daemon.Number(writes, "declined") != 1 || daemon.Number(writes, "unknown") != 1 {
		s.Errorf("the report: %s", r.Raw)
	}
	list := daemon.List(p, "unresolved")
	if len(list) != len(open) {
		s.Errorf("unresolved: %v, want %v", list, open)
	}
	for _, w := range list {
		if text(w, "state") != open[text(w, "key")] {
			s.Errorf("unresolved: %v, want %v", w, open)
		}
	}
}

// An attempt whose outcome is known and not durable yet is still in flight: a report that calls it unknown would be wrong a
// moment later.
func TestAReportWaitsForTheRecordOfAnOutcome(t *testing.T) {
	t.Parallel()
	s, tr := openTroubled(t, daemon.Settings{})
	a := s.claim("job", "A", long)
	w := s.start(keyed(a, "k1", "w", "hang"))
	s.arrives("w")
	s.wantReply(s.reply(s.control.Revoke(s.soon(), "job", a.Generation, "test")), 200, "")
	const settle = 1500 * time.Millisecond
	claimed := s.claimAside("B", settle)
	s.until("B holds the job", func() bool { return s.reply(s.control.Job(s.soon(), "job")).Number("generation") > int64(a.Generation) })
	tr.begin("space-hangs", "")
	s.up.Release("w")
	r := <-claimed
	tr.end("space-hangs")
	open := daemon.List(r.Member("predecessor"), "unresolved")
	if daemon.Number(r.Member("predecessor"), "in_flight") != 1 || len(open) != 1 || text(open[0], "state") != "in_flight" {
		t.Errorf("the report: %s", r.Raw)
	}
	s.forwarded(w.answer(), 200, "applied")
}
