package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/upstream"
)

const (
	patience = 15 * time.Second // for what must happen
	glance   = 250 * time.Millisecond
	long     = time.Hour
	brief    = 60 * time.Millisecond // a lease that is meant to run out
	// nobody listens at this address. A port that was free a moment ago may be somebody's by now.
	nobody = "http://127.0.0.1:1"
)

// stage is one proxy in front of one recording upstream.
type stage struct {
	*testing.T
	up      *upstream.Server
	proxy   *daemon.Daemon
	control *daemon.Control
	writer  *daemon.Writer
	clocks  int
}

// open starts an upstream and a proxy. Route lines are added to the route.
func open(t *testing.T, route ...string) *stage {
	t.Helper()
	return openWith(t, daemon.Settings{Route: route})
}

func openWith(t *testing.T, s daemon.Settings) *stage {
	t.Helper()
	up, err := upstream.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	s.Upstream = up.URL()
	return onStage(t, up, s)
}

// onStage starts a proxy before an upstream that exists.
func onStage(t *testing.T, up *upstream.Server, s daemon.Settings) *stage {
	t.Helper()
	st := &stage{T: t, up: up, proxy: daemon.Start(t, s)}
	st.connect()
	t.Cleanup(st.disconnect)
	return st
}

// connect makes clients for the process that runs now.
func (s *stage) connect() {
	s.control = s.proxy.Control()
	s.writer = s.proxy.Writer(false)
}

func (s *stage) disconnect() {
	s.control.Close()
	s.writer.Close()
}

// restart starts the proxy again after it has ended.
func (s *stage) restart() {
	s.Helper()
	s.disconnect()
	s.proxy.Restart()
	s.connect()
}

// soon is a context for what must happen.
func (s *stage) soon() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}

// reply insists that the control listener answered.
func (s *stage) reply(r daemon.Reply, err error) daemon.Reply {
	s.Helper()
	if err != nil {
		s.Fatalf("no answer of the control listener: %v", err)
	}
	return r
}

// claim insists on a new lease.
func (s *stage) claim(job, owner string, ttl time.Duration) daemon.Lease {
	s.Helper()
	r := s.reply(s.control.Claim(s.soon(), job, owner, ttl, nil))
	s.wantReply(r, 201, "")
	return r.Lease()
}

// takeOver claims until the lease of the one before has run out.
func (s *stage) takeOver(job, owner string, ttl time.Duration) daemon.Lease {
	s.Helper()
	var r daemon.Reply
	s.until("the lease runs out", func() bool {
		r = s.reply(s.control.Claim(s.soon(), job, owner, ttl, nil))
		return r.Status != 409
	})
	s.wantReply(r, 201, "")
	return r.Lease()
}

// outlive returns once a lease of this length that was granted before the call has run out, by the store's own clock: it
// grants another one of the same length and waits until that one can be taken over.
func (s *stage) outlive(ttl time.Duration) {
	s.Helper()
	s.clocks++
	job := fmt.Sprintf("clock-%d", s.clocks)
	s.claim(job, "clock", ttl)
	s.takeOver(job, "clock", ttl)
}

// wantReply checks a status and, if one is expected, a problem code.
func (s *stage) wantReply(r daemon.Reply, status int, code string) {
	s.Helper()
	if r.Status != status || r.Text("code") != code {
		s.Fatalf("the control listener answered %d %q, want %d %q\n%s", r.Status, r.Text("code"), status, code, r.Raw)
	}
}

// write is a write under a lease; id is also its name at the upstream.
func write(l daemon.Lease, id, do string) daemon.Write {
	return daemon.Write{Job: l.Job, Generation: l.Generation, ID: id, Do: do, Body: []byte("amount=1")}
}

// send insists on an answer.
func (s *stage) send(w daemon.Write) daemon.Answer {
	s.Helper()
	a, err := s.writer.Send(s.soon(), w)
	if err != nil {
		s.unanswered(w.ID, err)
	}
	return a
}

// unanswered ends the test because a write that must have an answer has none.
func (s *stage) unanswered(id string, err error) {
	s.Helper()
	if errors.Is(err, context.DeadlineExceeded) && !s.proxy.Ended() {
		s.proxy.Dump()
	}
	s.Fatalf("write %q got no answer: %v; the upstream saw %s", id, err, s.sights(id))
}

// sights tells in short what the upstream saw of a write.
func (s *stage) sights(id string) string {
	if s.up == nil {
		return "what it does not record"
	}
	seen := s.up.Seen(id)
	if len(seen) == 0 {
		return "nothing of it"
	}
	var all []string
	for _, r := range seen {
		all = append(all, fmt.Sprintf("%d bytes (complete %v, executed %v, over %v, cancelled %v)",
			r.Bytes, r.Complete, r.Executed, r.End != 0, r.Cancelled))
	}
	return strings.Join(all, " and ")
}

// pending is a write under way.
type pending struct {
	s    *stage
	id   string
	done chan struct{}
	a    daemon.Answer
	err  error
}

// start sends a write and goes on.
func (s *stage) start(w daemon.Write) *pending {
	return s.startIn(s.soon(), w)
}

func (s *stage) startIn(ctx context.Context, w daemon.Write) *pending {
	p := &pending{s: s, id: w.ID, done: make(chan struct{})}
	writer := s.writer
	go func() {
		defer close(p.done)
		p.a, p.err = writer.Send(ctx, w)
	}()
	return p
}

// answer waits for the end of the write and insists on an answer.
func (p *pending) answer() daemon.Answer {
	p.s.Helper()
	<-p.done
	if p.err != nil {
		p.s.unanswered(p.id, p.err)
	}
	return p.a
}

// over tells whether the write has an answer already.
func (p *pending) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// forwarded checks an answer that came from the upstream.
func (s *stage) forwarded(a daemon.Answer, status int, outcome string) {
	s.Helper()
	if a.Status != status || a.Decision() != "forwarded" || a.Outcome() != outcome || a.Reason() != "" {
		s.Fatalf("want %d forwarded %s, got %s", status, outcome, show(a))
	}
}

// refused checks an answer of the proxy itself: status, code in header and body, and the problem's form.
func (s *stage) refused(a daemon.Answer, status int, code string) {
	s.Helper()
	if a.Status != status || a.Reason() != code || a.Text("code") != code {
		s.Fatalf("want %d %s, got %s", status, code, show(a))
	}
	if got := a.Header.Get("Content-Type"); got != "application/problem+json" {
		s.Errorf("content type of a refusal: %q", got)
	}
	if a.Text("type") != "urn:fenceproxy:"+code || a.Number("status") != int64(status) || a.Text("title") == "" ||
		a.Text("detail") == "" || a.Text("retry") == "" {
		s.Errorf("the problem is not whole: %s", a.Raw)
	}
}

// stale checks a refusal of a generation that is over, and why.
func (s *stage) stale(a daemon.Answer, ended string) {
	s.Helper()
	s.refused(a, 412, "stale-generation")
	if a.Decision() != "refused" || a.Text("ended") != ended {
		s.Fatalf("want a generation that was %s, got %s", ended, show(a))
	}
}

func show(a daemon.Answer) string {
	return fmt.Sprintf("%d decision %q reason %q outcome %q floor %d: %s",
		a.Status, a.Decision(), a.Reason(), a.Outcome(), a.Floor(), strings.TrimSpace(string(a.Raw)))
}

// unseen checks that nothing of these writes reached the upstream.
func (s *stage) unseen(ids ...string) {
	s.Helper()
	for _, id := range ids {
		if got := s.up.Seen(id); len(got) != 0 {
			s.Errorf("write %q reached the upstream: %+v", id, got)
		}
	}
}

// executed checks how often a write took effect.
func (s *stage) executed(id string, times int) {
	s.Helper()
	if got := s.up.Executed(id); got != times {
		s.Errorf("write %q was executed %d times, want %d", id, got, times)
	}
}

// arrives waits until a write has begun at the upstream.
func (s *stage) arrives(id string) upstream.Record {
	s.Helper()
	r, err := s.up.WaitBegin(s.soon(), id)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// ends waits until the upstream is done with a write.
func (s *stage) ends(id string) upstream.Record {
	s.Helper()
	r, err := s.up.WaitEnd(s.soon(), id)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// staysAway watches for a moment that a write does not arrive. The moment is the subject: there is no event to wait for.
func (s *stage) staysAway(id string) {
	s.Helper()
	s.staysAwayFrom(s.up, id)
}

func (s *stage) staysAwayFrom(up *upstream.Server, id string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), glance)
	defer cancel()
	if r, err := up.WaitBegin(ctx, id); err == nil {
		s.Fatalf("write %q reached the upstream too early: %+v", id, r)
	}
}

// until polls a condition that another process must bring about.
func (s *stage) until(what string, done func() bool) {
	s.Helper()
	limit := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(limit) {
			s.Fatalf("waited %v in vain until %s", patience, what)
		}
		<-tick.C
	}
}

// quiet checks that a call opens no connection to the upstream and sends it no byte.
func (s *stage) quiet(call func()) {
	s.Helper()
	conns, bytes := s.up.Accepted(), s.up.Received()
	call()
	if s.up.Accepted() != conns || s.up.Received() != bytes {
		s.Errorf("the upstream got %d connections and %d bytes", s.up.Accepted()-conns, s.up.Received()-bytes)
	}
}
