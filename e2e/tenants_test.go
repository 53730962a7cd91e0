package e2e_test

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// tenant is one of two who have chosen the same ids. Each has an API, and speaks through what its credential lets it.
type tenant struct {
	*stage
	name, path string
	control    *daemon.Control
	writer     *daemon.Writer
	lease      daemon.Lease
	first      daemon.Answer
}

// claims insists on a lease of the job that both tenants have.
func (tn *tenant) claims(generation uint64) {
	tn.Helper()
	r := tn.reply(tn.control.Claim(tn.soon(), "job", tn.name+"-owner", long, nil))
	tn.wantReply(r, 201, "")
	if tn.lease = r.Lease(); tn.lease.Generation != generation {
		tn.Fatalf("%s has generation %d, want %d: %s", tn.name, tn.lease.Generation, generation, r.Raw)
	}
}

func (tn *tenant) sends(key, id, do string) daemon.Answer {
	tn.Helper()
	w := keyed(tn.lease, key, id, do)
	w.Path, w.Lease = tn.path, tn.lease.ID
	a, err := tn.writer.Send(tn.soon(), w)
	if err != nil {
		tn.Fatalf("write %s of %s got no answer: %v", id, tn.name, err)
	}
	return a
}

// shareNothing plays two tenants with the same job and the same keys against each other.
func shareNothing(crimson, blue *tenant) {
	s := crimson.stage
	s.Helper()
	crimson.claims(1)
	s.wantReply(s.reply(crimson.control.Revoke(s.soon(), "job", 1, "crimson-reason")), 200, "")
	crimson.claims(2)
	blue.claims(1)
	for _, tn := range []*tenant{crimson, blue} {
		tn.first = tn.sends("charge-1", tn.name+"-first", "")
		s.forwarded(tn.first, 200, "applied")
		if tn.first.Floor() != tn.lease.Generation {
			s.Errorf("%s is told floor %d, want %d", tn.name, tn.first.Floor(), tn.lease.Generation)
		}
	}
	for _, tn := range []*tenant{crimson, blue} {
		s.replayed(tn.sends("charge-1", tn.name+"-again", ""), tn.first)
		if s.up.Executed(tn.name+"-first") != 1 || s.up.Executed(tn.name+"-again") != 0 {
			s.Errorf("%s's charge was made by another count than once", tn.name)
		}
	}
	unknown := crimson.sends("crimson-key", "crimson-unknown", "status=500")
	s.forwarded(unknown, 500, "unknown")

	// What blue does under crimson's names meets blue's own, or nothing.
	stolen := crimson.lease
	for name, answer := range map[string]daemon.Reply{
		"renew":    s.reply(blue.control.Renew(s.soon(), stolen, nil)),
		"release":  s.reply(blue.control.Release(s.soon(), stolen, nil)),
		"complete": s.reply(blue.control.Complete(s.soon(), stolen, nil)),
	} {
		if answer.Text("code") != "lease-lost" {
			s.Errorf("blue may %s crimson's lease: %s", name, answer.Raw)
		}
	}
	resolve := daemon.Fields{"job_id": "job", "key": "crimson-key", "outcome": "applied"}
	s.wantReply(s.reply(blue.control.Post(s.soon(), "/v1/write/resolve", resolve)), 404, "write-not-found")
	s.wantReply(s.reply(blue.control.Revoke(s.soon(), "job", 1, "mine")), 200, "")
	s.wantReply(s.reply(blue.control.Fence(s.soon(), "job", 77, "mine")), 200, "")
	s.refused(blue.sends("charge-2", "blue-stale", ""), 412, "stale-generation")
	s.forwarded(crimson.sends("charge-2", "crimson-second", ""), 200, "applied")

	// Nothing that blue can read has a word of crimson's in it.
	var shown strings.Builder
	for _, path := range []string{"/v1/jobs", "/v1/job?id=job", "/v1/writes", "/v1/writes?state=unknown", "/v1/writes?job_id=job", "/metrics"} {
		r := s.reply(blue.control.Get(s.soon(), path))
		fmt.Fprintf(&shown, "%s %d %v %s\n", path, r.Status, r.Header, r.Raw)
	}
	if strings.Contains(shown.String(), "crimson") || strings.Contains(shown.String(), stolen.ID) || !strings.Contains(shown.String(), "blue-owner") {
		s.Errorf("blue reads\n%s", shown.String())
	}
	if r := s.reply(blue.control.Writes(s.soon(), url.Values{"state": {"unknown"}})); len(r.List("writes")) != 0 {
		s.Errorf("blue's unknown writes: %s", r.Raw)
	}
	if r := s.reply(crimson.control.Writes(s.soon(), url.Values{"state": {"unknown"}})); len(r.List("writes")) != 1 {
		s.Errorf("crimson's unknown writes: %s", r.Raw)
	}
	if r := s.reply(crimson.control.Job(s.soon(), "job")); r.Number("floor") != 2 || r.Text("state") != "held" {
		s.Errorf("crimson's job after blue's doings: %s", r.Raw)
	}
}

func TestTwoTenantsWithTokensShareIdsAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	who := file(t, dir, "auth.yaml", []byte("principals:\n"+
		byToken("crimson", "roles: [operator], namespace: crimson")+byToken("blue", "roles: [operator], namespace: blue")+
		byToken("watch", "roles: [viewer]")+byToken("some", "roles: [worker], namespace: blue, jobs: [some/]")))
	up := another(t)
	s := onStage(t, up, daemon.Settings{
		Upstream: up.URL(), Top: []string{fmt.Sprintf("auth: {file: %q}", who)}, Route: []string{"namespace: crimson", "require_lease: true"},
		Routes: []string{fmt.Sprintf("{name: blue, path: /blue, upstream: %q, namespace: blue, require_lease: true}", up.URL())},
	})
	as := func(name, path string) *tenant {
		c := s.proxy.ControlAs(tokenFor(name), nil)
		t.Cleanup(c.Close)
		return &tenant{stage: s, name: name, path: path, control: c, writer: s.writer}
	}
	shareNothing(as("crimson", "/charge"), as("blue", "/blue/charge"))

	// Within a namespace prefixes are as tight, and a role is no more than it is.
	some := as("some", "")
	for _, id := range []string{"job", "nowhere"} {
		s.wantReply(s.reply(some.control.Job(s.soon(), id)), 403, "forbidden")
		s.wantReply(s.reply(some.control.Claim(s.soon(), id, "o", long, nil)), 403, "forbidden")
	}
	if r := s.reply(some.control.Jobs(s.soon(), nil)); len(r.List("jobs")) != 0 {
		t.Errorf("some sees %s", r.Raw)
	}
	s.wantReply(s.reply(some.control.Claim(s.soon(), "some/1", "o", long, nil)), 201, "")
	s.wantReply(s.reply(some.control.Revoke(s.soon(), "some/1", 0, "")), 403, "forbidden")
	s.wantReply(s.reply(s.control.Jobs(s.soon(), nil)), 401, "unauthenticated")
	s.wantReply(s.reply(as("nobody", "").control.Jobs(s.soon(), nil)), 401, "unauthenticated")
	if r := s.reply(as("watch", "").control.Get(s.soon(), "/metrics")); r.Status != 200 || strings.Contains(string(r.Raw), "charge-1") {
		t.Errorf("metrics: %d", r.Status)
	}

	// A principal that is taken out of the file is out of doors after a reload.
	file(t, dir, "auth.yaml", []byte("principals:\n"+byToken("crimson", "roles: [operator], namespace: crimson")))
	if line, ok := s.proxy.Reload(); !ok {
		t.Fatalf("the reload was refused: %s", line)
	}
	s.wantReply(s.reply(as("blue", "").control.Jobs(s.soon(), nil)), 401, "unauthenticated")
	s.wantReply(s.reply(as("crimson", "").control.Jobs(s.soon(), nil)), 200, "")
	s.saysNoTokens("crimson", "blue", "watch", "some", "nobody")
}

// saysNoTokens checks that neither a token nor its hash is in the logs.
func (s *stage) saysNoTokens(names ...string) {
	s.Helper()
	logs := s.proxy.Logs()
	for _, name := range names {
		if strings.Contains(logs, tokenFor(name)) || strings.Contains(logs, hashOf(name)) {
			s.Errorf("the token of %s is in the log", name)
		}
	}
}

func TestTwoTenantsWithCertificatesShareIdsAndNothingElse(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	who := file(t, p.dir, "auth.yaml", []byte("principals:\n"+
		"  - {name: principal-c, certificate: crimson, roles: [operator], namespace: crimson}\n"+
		"  - {name: principal-b, certificate: blue.example, roles: [operator], namespace: blue}\n"+
		"  - {name: principal-s, certificate: some, roles: [worker], namespace: blue, jobs: [some/]}\n"+
		"  - {name: principal-v, certificate: viewer, roles: [viewer], namespace: blue}\n"))
	top, env := p.settings()
	up := another(t)
	s := onStage(t, up, daemon.Settings{Upstream: up.URL(), Top: append(top, fmt.Sprintf("auth: {file: %q}", who)), Env: env, Route: []string{"namespace: of-the-route"}})
	as := func(name string) *tenant {
		c, w := s.proxy.ControlAs("", p.client(name)), s.proxy.SecureWriter(p.client(name))
		t.Cleanup(c.Close)
		t.Cleanup(w.Close)
		return &tenant{stage: s, name: name, path: "/charge", control: c, writer: w}
	}
	crimson, blue := as("crimson"), as("blue")
	shareNothing(crimson, blue)

	// Others have no way in, and learn no floor.
	for _, name := range []string{"some", "viewer", "stranger"} {
		tn := as(name)
		tn.lease = blue.lease
		a := tn.sends("key", name, "")
		s.refused(a, 403, "forbidden")
		if a.Floor() != 0 || a.Number("floor") != -1 {
			t.Errorf("%s learns a floor: %s", name, show(a))
		}
		if len(up.Seen(name)) != 0 {
			t.Errorf("a write of %s reached the API", name)
		}
	}
	s.wantReply(s.reply(as("stranger").control.Jobs(s.soon(), nil)), 401, "unauthenticated")
	s.wantReply(s.reply(s.proxy.ControlAs("", p.client("")).Jobs(s.soon(), nil)), 401, "unauthenticated")
	if a, err := s.proxy.SecureWriter(p.client("")).Send(s.soon(), write(blue.lease, "bare", "")); err == nil {
		t.Errorf("a writer without a certificate is answered: %s", show(a))
	}
	if r := s.reply(s.proxy.ControlAs("", p.client("")).Get(s.soon(), "/readyz")); r.Status != 200 {
		t.Errorf("readyz: %d", r.Status)
	}
}

func TestAProgramUnderRunGoesThroughLockedDoors(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	who := file(t, p.dir, "auth.yaml", []byte("principals:\n"+byToken("worker", "roles: [worker], namespace: n, certificate: worker")))
	top, env := p.settings()
	up := another(t)
	s := onStage(t, up, daemon.Settings{Upstream: up.URL(), Top: append(top, fmt.Sprintf("auth: {file: %q}", who)), Env: env, Route: []string{"require_lease: true"}})
	certFile, keyFile := p.issue("worker")
	path, err := daemon.Binary()
	if err != nil {
		t.Fatal(err)
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		curl = ""
	}
	for name, token := range map[string]string{"by token": tokenFor("worker"), "by certificate": ""} {
		t.Run(name, func(t *testing.T) {
			job := strings.ReplaceAll(name, " ", "-")
			script := `printenv; cat /proc/$PPID/cmdline 2>/dev/null || true`
			if curl != "" {
				script += `; ` + curl + ` -sS "$FENCE_PROXY_URL/charge" -H "X-Test-Id: ` + job + `" -d amount=1`
			}
			cmd := exec.CommandContext(s.soon(), path, "run", "--job", job, "--ca-file", p.ca, "--cert-file", certFile, "--key-file", keyFile, "--", "sh", "-c", script)
			cmd.Env = append(os.Environ(), "FENCEPROXY_CONTROL="+strings.Replace(s.proxy.ControlURL(), "http:", "https:", 1), "FENCEPROXY_PROXY=https://"+s.proxy.DataAddr(), "FENCEPROXY_TOKEN="+token)
			out, err := cmd.CombinedOutput()
			if err != nil || token != "" && strings.Contains(string(out), token) || curl != "" && !strings.Contains(string(out), "done ") {
				t.Fatalf("%v:\n%s", err, out)
			}
			r := s.reply(s.proxy.ControlAs(tokenFor("worker"), p.client("")).Job(s.soon(), job))
			if r.Text("state") != "completed" || r.Text("namespace") != "n" {
				t.Errorf("the job is %s", r.Raw)
			}
		})
	}
	s.saysNoTokens("worker")
}
