package e2e_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

func TestAnOperatorGetsPastALockWhoseHolderIsGone(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("deploy", "runner-7", 24*time.Hour)
	s.claim("other", "runner-8", 24*time.Hour)

	list := s.reply(s.control.Jobs(s.soon(), url.Values{"prefix": {"dep"}}))
	s.wantReply(list, 200, "")
	jobs, _ := list.Body["jobs"].([]any)
	if len(jobs) != 1 {
		t.Fatalf("want the one job with that prefix, got %s", list.Raw)
	}
	first, _ := jobs[0].(daemon.Fields)
	lease, _ := first["lease"].(daemon.Fields)
	entry, holder := daemon.Reply{Body: first}, daemon.Reply{Body: lease}
	if entry.Text("job_id") != "deploy" || entry.Number("generation") != 1 || holder.Text("owner") != "runner-7" ||
		holder.Number("expires_in_ms") <= 0 {
		t.Errorf("the list does not say who holds the job: %s", list.Raw)
	}
	if strings.Contains(string(list.Raw), a.ID) {
		t.Error("the lease id is in the list")
	}

	wrong := s.reply(s.control.Revoke(s.soon(), "deploy", a.Generation+1, "guess"))
	if wrong.Status < 400 || wrong.Status > 499 {
		t.Errorf("revoking another generation: %d %s", wrong.Status, wrong.Raw)
	}
	s.forwarded(s.send(write(a, "still", "")), 200, "applied")

	s.wantReply(s.reply(s.control.Revoke(s.soon(), "deploy", a.Generation, "runner is gone")), 200, "")
	// The runner was only cut off. Nobody has claimed yet.
	s.quiet(func() { s.stale(s.send(write(a, "late", "")), "revoked") })
	lost := s.reply(s.control.Renew(s.soon(), a, nil))
	s.wantReply(lost, 409, "lease-lost")
	if lost.Text("reason") != "revoked" {
		t.Errorf("the holder is told reason %q, want revoked", lost.Text("reason"))
	}
	s.wantReply(s.reply(s.control.Revoke(s.soon(), "deploy", a.Generation, "again")), 200, "")

	b := s.claim("deploy", "runner-9", long)
	if b.Generation != 2 {
		t.Errorf("the next claim got generation %d: a repeated revocation is no second one", b.Generation)
	}
	// Late and repeated, it does not hit the successor.
	s.reply(s.control.Revoke(s.soon(), "deploy", a.Generation, "once more"))
	s.forwarded(s.send(write(b, "b", "")), 200, "applied")
	s.unseen("late")
	s.logged("runner is gone", 1)
}

func TestTheCommandLineNeedsOnlyTheJobToGetPastALock(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("deploy", "runner-7", 24*time.Hour)
	out, errs, code := s.proxy.Run(s.soon(), "job", "list", "--json")
	if code != 0 || !strings.Contains(out, `"deploy"`) {
		t.Fatalf("job list: exit code %d\n%s%s", code, out, errs)
	}
	out, errs, code = s.proxy.Run(s.soon(), "job", "show", "deploy", "--json")
	if code != 0 || !json.Valid([]byte(out)) || !strings.Contains(out, "runner-7") {
		t.Fatalf("job show: exit code %d\n%s%s", code, out, errs)
	}
	out, errs, code = s.proxy.Run(s.soon(), "job", "revoke", "deploy", "--reason", "runner is gone")
	if code != 0 {
		t.Fatalf("job revoke: exit code %d\n%s%s", code, out, errs)
	}
	s.stale(s.send(write(a, "late", "")), "revoked")
	if b := s.claim("deploy", "runner-9", long); b.Generation != 2 {
		t.Errorf("the next claim got generation %d, want 2", b.Generation)
	}
}

func TestALeaseTimeThatMakesNoSenseIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, ttl := range []string{`0`, `-1`, `"30"`, `"30s"`, `1.5`, `315360000000`, `1`, `null`, `true`} {
		body := `{"job_id":"job","owner":"A","ttl_ms":` + ttl + `}`
		r := s.reply(s.control.Post(s.soon(), "/v1/lease/claim", []byte(body)))
		if r.Status != 400 || r.Text("code") != "invalid-request" || !strings.Contains(string(r.Raw), "ttl_ms") {
			t.Errorf("ttl_ms %s: got %d %s", ttl, r.Status, r.Raw)
		}
	}
	r := s.reply(s.control.Job(s.soon(), "job"))
	if r.Status != 404 {
		t.Errorf("a refused claim left a trace: %d %s", r.Status, r.Raw)
	}
	if l := s.claim("job", "A", long); l.Generation != 1 {
		t.Errorf("the first claim got generation %d, want 1", l.Generation)
	}
}
