package e2e_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

func TestAGenerationThatIsOverIsDeadBeforeAnyoneClaims(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, tt := range []struct {
		ended string
		end   func(daemon.Lease) daemon.Reply
	}{
		{"released", func(l daemon.Lease) daemon.Reply { return s.reply(s.control.Release(s.soon(), l, nil)) }},
		{"completed", func(l daemon.Lease) daemon.Reply { return s.reply(s.control.Complete(s.soon(), l, nil)) }},
		{"revoked", func(l daemon.Lease) daemon.Reply {
			return s.reply(s.control.Revoke(s.soon(), l.Job, l.Generation, "test"))
		}},
	} {
		job := "job-" + tt.ended
		l := s.claim(job, "A", long)
		s.forwarded(s.send(write(l, tt.ended+"-before", "")), 200, "applied")
		s.wantReply(tt.end(l), 200, "")
		s.quiet(func() {
			got := s.send(write(l, tt.ended+"-after", ""))
			s.stale(got, tt.ended)
			if got.Floor() != l.Generation+1 {
				t.Errorf("%s: floor %d, want %d", tt.ended, got.Floor(), l.Generation+1)
			}
		})
		s.wantReply(tt.end(l), 200, "") // again is no error
		s.wantReply(s.reply(s.control.Renew(s.soon(), l, nil)), 409, "lease-lost")

		if tt.ended == "completed" {
			s.wantReply(s.reply(s.control.Claim(s.soon(), job, "B", long, nil)), 409, "job-completed")
			s.wantReply(s.reply(s.control.Reopen(s.soon(), job, "test")), 200, "")
		}
		next := s.claim(job, "B", long)
		if next.Generation <= l.Generation {
			t.Errorf("%s: the next claim got generation %d after %d", tt.ended, next.Generation, l.Generation)
		}
		s.stale(s.send(write(l, tt.ended+"-late", "")), tt.ended)
		s.forwarded(s.send(write(next, tt.ended+"-next", "")), 200, "applied")
	}
}

func TestACompletedJobKeepsItsResult(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	s.wantReply(s.reply(s.control.Complete(s.soon(), l, daemon.Fields{"result": daemon.Fields{"rows": 7}})), 200, "")
	r := s.reply(s.control.Claim(s.soon(), "job", "B", long, nil))
	s.wantReply(r, 409, "job-completed")
	if result, ok := r.Body["result"].(daemon.Fields); !ok || fmt.Sprint(result["rows"]) != "7" {
		t.Errorf("the result is not told: %s", r.Raw)
	}
}

func TestOnlyTheHolderRenewsAndEnds(t *testing.T) {
	t.Parallel()
	s := open(t)
	right := s.claim("job", "A", long)
	other := s.claim("other", "A", long)
	for name, wrong := range map[string]daemon.Lease{
		"owner":                 {Job: "job", Owner: "B", Generation: right.Generation, ID: right.ID},
		"generation":            {Job: "job", Owner: "A", Generation: right.Generation + 1, ID: right.ID},
		"lease id":              {Job: "job", Owner: "A", Generation: right.Generation, ID: right.ID + "x"},
		"lease id of other job": {Job: "job", Owner: "A", Generation: right.Generation, ID: other.ID},
		"job":                   {Job: "nobody", Owner: "A", Generation: right.Generation, ID: right.ID},
	} {
		for verb, call := range map[string]func(daemon.Lease) daemon.Reply{
			"renew":    func(l daemon.Lease) daemon.Reply { return s.reply(s.control.Renew(s.soon(), l, nil)) },
			"release":  func(l daemon.Lease) daemon.Reply { return s.reply(s.control.Release(s.soon(), l, nil)) },
			"complete": func(l daemon.Lease) daemon.Reply { return s.reply(s.control.Complete(s.soon(), l, nil)) },
		} {
			if r := call(wrong); r.Status != 409 || r.Text("code") != "lease-lost" || r.Text("reason") == "" {
				t.Errorf("%s with a wrong %s: %d %s", verb, name, r.Status, r.Raw)
			}
		}
	}
	r := s.reply(s.control.Renew(s.soon(), right, nil))
	s.wantReply(r, 200, "")
	if r.Flag("lapsed") {
		t.Errorf("a live lease is told as lapsed: %s", r.Raw)
	}
	s.forwarded(s.send(write(right, "w", "")), 200, "applied")
}

func TestTheLateVoiceOfAnOlderGenerationChangesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "worker", brief)
	b := s.takeOver("job", "worker", long) // the same owner name: a label, never a proof
	if b.Generation <= a.Generation {
		t.Fatalf("generations %d, then %d", a.Generation, b.Generation)
	}
	for verb, r := range map[string]daemon.Reply{
		"renew":    s.reply(s.control.Renew(s.soon(), a, nil)),
		"release":  s.reply(s.control.Release(s.soon(), a, nil)),
		"complete": s.reply(s.control.Complete(s.soon(), a, nil)),
	} {
		if r.Status != 409 || r.Text("code") != "lease-lost" || r.Text("reason") != "superseded" {
			t.Errorf("late %s: %d %s", verb, r.Status, r.Raw)
		}
	}
	s.forwarded(s.send(write(b, "b", "")), 200, "applied")
	s.wantReply(s.reply(s.control.Renew(s.soon(), b, nil)), 200, "")
}

func TestOneOfManyClaimsWins(t *testing.T) {
	t.Parallel()
	s := open(t)
	const claimants, rounds = 200, 20
	for round := range rounds {
		job := fmt.Sprintf("job-%d", round)
		replies := make([]daemon.Reply, claimants)
		errs := make([]error, claimants)
		begin := make(chan struct{})
		var all sync.WaitGroup
		for i := range claimants {
			all.Go(func() {
				<-begin
				replies[i], errs[i] = s.control.Claim(s.Context(), job, "worker", long, nil)
			})
		}
		close(begin)
		all.Wait()
		won := 0
		for i, r := range replies {
			switch {
			case errs[i] != nil:
				t.Fatalf("round %d: no answer: %v", round, errs[i])
			case r.Status == 201:
				won++
			case r.Status != 409 || r.Text("code") != "lease-held" || r.Text("owner") != "worker" ||
				r.Number("generation") != 1 || r.Header.Get("Retry-After") == "":
				t.Errorf("round %d: a loser was told %d %s", round, r.Status, r.Raw)
			}
		}
		if won != 1 {
			t.Errorf("round %d: %d claims were granted", round, won)
		}
	}
}

func TestALostReplyDoesNotLockItsOwnerOut(t *testing.T) {
	t.Parallel()
	s := open(t)
	body := fmt.Sprintf(`{"job_id":"job","owner":"A","ttl_ms":%d,"claim_id":"c1"}`, long.Milliseconds())
	c, err := net.Dial("tcp", strings.TrimPrefix(s.proxy.ControlURL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "POST /v1/lease/claim HTTP/1.1\r\nHost: proxy\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	// The reply has come and is never read by the one who asked.
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 201 {
		t.Fatalf("the first claim got %d", res.StatusCode)
	}

	again := daemon.Fields{"claim_id": "c1"}
	first := s.reply(s.control.Claim(s.soon(), "job", "A", long, again))
	s.wantReply(first, 200, "")
	second := s.reply(s.control.Claim(s.soon(), "job", "A", long, again))
	s.wantReply(second, 200, "")
	if first.Lease() != second.Lease() || first.Lease().Generation != 1 || first.Lease().ID == "" {
		t.Error("the same claim_id got two leases")
	}
	s.wantReply(s.reply(s.control.Claim(s.soon(), "job", "A", long, daemon.Fields{"claim_id": "c2"})), 409, "lease-held")
	s.forwarded(s.send(write(first.Lease(), "w", "")), 200, "applied")
}

func TestAForeignLeaseIDIsRefusedWheneverItIsSent(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	w := write(l, "wrong", "")
	w.Lease = l.ID + "x"
	s.refused(s.send(w), 412, "lease-mismatch")
	s.unseen("wrong")
	w = write(l, "right", "")
	w.Lease = l.ID
	s.forwarded(s.send(w), 200, "applied")
	for _, seen := range s.up.Seen("right") {
		for name := range seen.Header {
			if strings.HasPrefix(name, "Fence-") {
				t.Errorf("header %s was sent on to the upstream", name)
			}
		}
	}
	if strings.Contains(s.proxy.Logs(), l.ID) {
		t.Error("the lease id is in the log")
	}
}
