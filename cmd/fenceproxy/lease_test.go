package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// runLease runs "lease" with the arguments and an input.
func runLease(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newLeaseCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func mustRunLease(t *testing.T, args ...string) string {
	t.Helper()
	out, err := runLease(t, "", args...)
	if err != nil {
		t.Fatalf("lease %v: %v", args, err)
	}
	return out
}

func TestALeaseIsClaimedRenewedAndReleasedFromAShell(t *testing.T) {
	a, url := startControl(t)
	t.Setenv("FENCEPROXY_CONTROL", url)
	t.Setenv("FENCE_JOB_ID", "j")
	t.Setenv("FENCE_GENERATION", "1")
	file := filepath.Join(t.TempDir(), "lease")
	if got := mustRunLease(t, "claim", "--lease-file", file, "--ttl", "1m"); !strings.Contains(got, "generation  1\n") || !strings.Contains(got, "in "+file) {
		t.Errorf("got\n%s", got)
	}
	fi, err := os.Stat(file)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", fi, err)
	}
	if got := mustRunLease(t, "renew", "--lease-file", file, "--ttl", "2m"); !strings.HasPrefix(got, "generation 1 of job j: 2m0s left, until ") {
		t.Errorf("got %q", got)
	}
	id, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := runLease(t, string(id), "release", "--lease-file", "-"); err != nil || got != "generation 1 of job j is released, the floor is 2\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if v, err := a.Job(t.Context(), tokens.Job{ID: "j"}); err != nil || v.State != tokens.StateFree {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestALeaseIsCompletedWithTheLeaseIDOfTheEnvironment(t *testing.T) {
	_, url := startControl(t)
	var got wire.ClaimResponse
	if err := json.Unmarshal([]byte(mustRunLease(t, "claim", "j", "--owner", "me", "--json", "--control", url)), &got); err != nil || got.LeaseID == "" || got.Owner != "me" {
		t.Fatalf("%v: %+v", err, got)
	}
	t.Setenv("FENCE_LEASE", got.LeaseID)
	if _, err := runLease(t, "", "complete", "j", "--owner", "me", "--generation", "1", "--result", "done", "--control", url); err == nil || !strings.Contains(err.Error(), "is no JSON") {
		t.Error(err)
	}
	want := "generation 1 of job j is completed, the floor is 2\n"
	for range 2 {
		if out := mustRunLease(t, "complete", "j", "--owner", "me", "--generation", "1", "--result", `{"rows":7}`, "--control", url); out != want {
			t.Errorf("got %q", out)
		}
	}
	if shown := mustRunJob(t, "show", "j", "--control", url); !strings.Contains(shown, `{"rows":7}`) {
		t.Errorf("got\n%s", shown)
	}
}

func TestTheNextHolderIsShownWhatTheLastOneDid(t *testing.T) {
	a, url := startControl(t)
	grant(t, a, "j", "old")
	mustRunJob(t, "revoke", "j", "--control", url)
	got := mustRunLease(t, "claim", "j", "--control", url)
	if !strings.Contains(got, "before      generation 1 revoked, owner old: 0 writes applied, 0 declined, 0 unknown, 0 in flight\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestTheLeaseIDIsInTheFileOnlyIfThereIsOne(t *testing.T) {
	_, url := startControl(t)
	file := filepath.Join(t.TempDir(), "lease")
	out := mustRunLease(t, "claim", "j", "--lease-file", file, "--json", "--control", url)
	id, err := os.ReadFile(file)
	if err != nil || strings.Contains(out, strings.TrimSpace(string(id))) || !strings.Contains(out, `"generation":1`) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestALeaseThatCanNotBeKeptInItsFileIsReleased(t *testing.T) {
	a, url := startControl(t)
	if out, err := runLease(t, "", "claim", "j", "--lease-file", filepath.Join(t.TempDir(), "no", "lease"), "--control", url); err == nil {
		t.Errorf("no error: %s", out)
	}
	if v, err := a.Job(t.Context(), tokens.Job{ID: "j"}); err != nil || v.State != tokens.StateFree {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestAnErrorOfALeaseSaysWhatToDo(t *testing.T) {
	a, url := startControl(t)
	grant(t, a, "j", "somebody")
	t.Setenv("FENCE_LEASE", "")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"held":          {[]string{"claim", "j"}, "(lease-held); try again in"},
		"no job":        {[]string{"claim"}, "$FENCE_JOB_ID"},
		"no generation": {[]string{"renew", "j"}, "--generation or $FENCE_GENERATION"},
		"no lease id":   {[]string{"renew", "j", "--generation", "1"}, "set $FENCE_LEASE, or name a file by --lease-file"},
		"bad number":    {[]string{"release", "j", "--generation", "01"}, "read --generation"},
		"no file":       {[]string{"complete", "j", "--generation", "1", "--lease-file", "/nonexistent"}, "read lease id"},
		"an id in argv": {[]string{"renew", "j", "--lease", "secret"}, "unknown flag: --lease"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := runLease(t, "", append(c.args, "--control", url)...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}
