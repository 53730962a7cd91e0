package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// startControl serves the real control handler and returns its URL.
func startControl(t *testing.T) (*tokens.Authority, string) {
	t.Helper()
	a, err := tokens.NewAuthority(context.Background(), tokenstest.NewMemory(nil), tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(control.New(control.Options{Authority: a, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}))
	t.Cleanup(s.Close)
	return a, s.URL
}

// runJob runs "job" with the arguments.
func runJob(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := newJobCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func mustRunJob(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := runJob(t, args...)
	if err != nil || stderr != "" {
		t.Fatalf("job %v: %v, stderr %q", args, err, stderr)
	}
	return stdout
}

func grant(t *testing.T, a *tokens.Authority, job, owner string) tokens.Grant {
	t.Helper()
	g, err := a.Claim(t.Context(), tokens.ClaimRequest{Job: tokens.Job{ID: job}, Owner: owner, TTL: 60_000}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestJobsAreListedAsATable(t *testing.T) {
	a, url := startControl(t)
	grant(t, a, "invoice-42", "worker 1")
	if _, err := a.Fence(t.Context(), tokens.Job{ID: "outside"}, 7, ""); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FENCEPROXY_CONTROL", url)
	want := "" +
		"JOB         STATE     GENERATION  FLOOR  IN FLIGHT  OWNER     LEASE\n" +
		"invoice-42  held      1           1      0          worker 1  1m0s left\n" +
		"outside     external  7           7      0          -         -\n"
	if got := mustRunJob(t, "list"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := mustRunJob(t, "list", "--state", "external"); strings.Contains(got, "invoice") || !strings.Contains(got, "outside") {
		t.Errorf("got\n%s", got)
	}
	stdout, stderr, err := runJob(t, "list", "--limit", "1")
	if err != nil || !strings.Contains(stdout, "invoice-42") || stderr != "there are more: --cursor 'invoice-42'\n" {
		t.Errorf("%v: %q, %q", err, stdout, stderr)
	}
	if got := mustRunJob(t, "list", "--limit", "1", "--cursor", "invoice-42"); !strings.Contains(got, "outside") {
		t.Errorf("got\n%s", got)
	}
}

func TestAJobIsShownWithWhatAnOperatorNeeds(t *testing.T) {
	a, url := startControl(t)
	grant(t, a, "tenant/4%2?", "old")
	mustRunJob(t, "revoke", "tenant/4%2?", "--control", url)
	g := grant(t, a, "tenant/4%2?", "new")
	got := mustRunJob(t, "show", "tenant/4%2?", "--control", url+"/")
	for _, want := range []string{
		"job           tenant/4%2?\n", "state         held\n", "generation    2\n", "floor         2\n", "owner         new\n",
		"lease         1m0s left (until ", "before        generation 1 revoked, owner old\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, g.Lease.ID) {
		t.Error("the lease id is shown")
	}
}

func TestARevocationNeedsNoMoreThanTheJobID(t *testing.T) {
	a, url := startControl(t)
	grant(t, a, "j", "dead")
	want := "generation 1 of job j is dead, the floor is 2\n"
	for range 2 {
		if got := mustRunJob(t, "revoke", "j", "--reason", "it died", "--control", url); got != want {
			t.Errorf("got %q", got)
		}
	}
	if g := grant(t, a, "j", "next"); g.Lease.Generation != 2 {
		t.Errorf("%+v", g)
	}
}

func TestARevocationOfAnotherGenerationIsRefused(t *testing.T) {
	a, url := startControl(t)
	grant(t, a, "j", "alive")
	_, _, err := runJob(t, "revoke", "j", "--expect", "3", "--control", url)
	if err == nil || !strings.Contains(err.Error(), `1 is the current one of job "j", held by "alive"`) || !strings.Contains(err.Error(), "(generation-mismatch)") {
		t.Error(err)
	}
	if v, err := a.Job(t.Context(), tokens.Job{ID: "j"}); err != nil || v.State != tokens.StateHeld {
		t.Errorf("%+v, %v", v, err)
	}
}

// A claim between the look-up and the revocation must not lose its lease to it.
func TestARevocationSendsTheGenerationThatItLookedUp(t *testing.T) {
	var sent wire.RevokeRequest
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if err := wire.Decode(r.Body, 1000, &sent); err != nil {
				t.Error(err)
			}
		}
		wire.WriteJSON(w, http.StatusOK, wire.TypeJSON, wire.JobView{JobID: "j", Generation: 41, Floor: 41})
	}))
	defer s.Close()
	mustRunJob(t, "revoke", "j", "--reason", "r", "--control", s.URL)
	if want := (wire.RevokeRequest{JobID: "j", Expected: 41, Reason: "r"}); sent != want {
		t.Errorf("sent %+v", sent)
	}
}

func TestFenceAndReopenSayWhatTheJobIsLikeAfterwards(t *testing.T) {
	a, url := startControl(t)
	if got := mustRunJob(t, "fence", "out", "7", "--control", url); got != "the floor of job out is 7\n" {
		t.Errorf("got %q", got)
	}
	l := grant(t, a, "j", "a").Lease
	if _, err := a.Complete(t.Context(), tokens.LeaseRef{Job: tokens.Job{ID: "j"}, Owner: "a", Generation: 1, LeaseID: l.ID}, []byte(`{"n": 1}`), 0, ""); err != nil {
		t.Fatal(err)
	}
	if got := mustRunJob(t, "show", "j", "--control", url); !strings.Contains(got, `{"n":1}`) || !strings.Contains(got, "completed") {
		t.Errorf("got\n%s", got)
	}
	if got := mustRunJob(t, "reopen", "j", "--control", url); got != "job j is free, the next claim gets generation 2 or higher\n" {
		t.Errorf("got %q", got)
	}
}

func TestJSONIsTheAPIsOwn(t *testing.T) {
	a, url := startControl(t)
	grant(t, a, "j", "a")
	for _, args := range [][]string{{"show", "j"}, {"revoke", "j"}, {"fence", "j", "9"}, {"reopen", "j"}} {
		var v wire.JobView
		got := mustRunJob(t, append(args, "--json", "--control", url)...)
		if err := json.Unmarshal([]byte(got), &v); err != nil || v.JobID != "j" {
			t.Errorf("%v: %s, %v", args, got, err)
		}
	}
	var page wire.JobsResponse
	got := mustRunJob(t, "list", "--json", "--control", url)
	if err := json.Unmarshal([]byte(got), &page); err != nil || len(page.Jobs) != 1 {
		t.Errorf("%s, %v", got, err)
	}
}

func TestAnErrorSaysWhatToDo(t *testing.T) {
	_, url := startControl(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown job":    {[]string{"show", "nope", "--control", url}, `job "nope" was never claimed, written to or fenced here; check its spelling, ids are compared byte for byte (job-not-found)`},
		"revoke unknown": {[]string{"revoke", "nope", "--control", url}, "(job-not-found)"},
		"bad id":         {[]string{"show", "a b", "--control", url}, "byte 2"},
		"bad state":      {[]string{"list", "--state", "gone", "--control", url}, "it is one of [held lapsed free completed external]"},
		"bad floor":      {[]string{"fence", "j", "007", "--control", url}, "no leading zero"},
		"bad expect":     {[]string{"revoke", "j", "--expect", "-1", "--control", url}, "read --expect"},
		"no proxy":       {[]string{"list", "--control", closed.URL}, "connection refused; is fenceproxy running"},
		"something else": {[]string{"list", "--control", stranger.URL}, "404 Not Found with \"text/plain; charset=utf-8\", which is no answer of a control listener"},
		"no URL":         {[]string{"list", "--control", "127.0.0.1:8081"}, `"127.0.0.1:8081" is not a URL such as http://127.0.0.1:8081`},
		"no id":          {[]string{"show", "--control", url}, "accepts 1 arg(s)"},
		"an extra word":  {[]string{"frob"}, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, _, err := runJob(t, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) || stdout != "" {
				t.Errorf("%v, stdout %q; want %q", err, stdout, c.want)
			}
		})
	}
}
