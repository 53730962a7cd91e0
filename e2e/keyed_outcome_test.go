package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

func TestWhatTheUpstreamAnswersDecidesOnItsKey(t *testing.T) {
	t.Parallel()
	s := open(t)
	for path, status := range map[string]int{"/busy": 503, "/many": 429} {
		s.up.Reply(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(status)
		})
	}
	l := s.claim("job", "A", long)
	for name, tt := range map[string]struct {
		do, path string
		status   int
		outcome  string
		blocked  bool
	}{
		"bad-request":   {do: "status=400", status: 400, outcome: "declined"},
		"not-found":     {do: "status=404", status: 404, outcome: "declined"},
		"conflict":      {do: "status=409", status: 409, outcome: "declined"},
		"many":          {path: "/many", status: 429, outcome: "declined"},
		"busy":          {path: "/busy", status: 503, outcome: "declined"},
		"redirect":      {do: "status=307", status: 307, outcome: "declined"},
		"timeout":       {do: "status=408", status: 408, outcome: "unknown", blocked: true},
		"error":         {do: "status=500", status: 500, outcome: "unknown", blocked: true},
		"bad-gateway":   {do: "status=502", status: 502, outcome: "unknown", blocked: true},
		"unavailable":   {do: "status=503", status: 503, outcome: "unknown", blocked: true},
		"reset":         {do: "reset-after-execute", status: 502, outcome: "unknown", blocked: true},
		"reset-one":     {do: "reset-midway=1", status: 502, outcome: "unknown", blocked: true},
		"reset-nothing": {do: "reset", status: 502, outcome: "unknown", blocked: true},
	} {
		w := keyed(l, name, name, tt.do)
		w.Path = tt.path
		if first := s.send(w); first.Status != tt.status || first.Outcome() != tt.outcome {
			t.Errorf("%s: got %s, want %d %s", name, show(first), tt.status, tt.outcome)
			continue
		}
		again := w
		again.ID, again.Do = name+"-again", ""
		if tt.blocked {
			s.blocked(s.send(again))
			s.unseen(again.ID)
		} else if got := s.send(again); got.Decision() != "forwarded" {
			t.Errorf("%s: the key is not free: %s", name, show(got))
		}
		if tt.outcome == "declined" && tt.path == "" {
			// Freed by a refusal, the key may name the corrected request.
			free := keyed(l, name+"-corrected", name+"-wrong", tt.do)
			if got := s.send(free); got.Outcome() != "declined" {
				t.Errorf("%s: %s", name, show(got))
			}
			free.Do, free.ID, free.Body = "", name+"-right", []byte("amount=2")
			s.forwarded(s.send(free), 200, "applied")
		}
	}
	unknown := s.listed("job", "unknown")
	n, err := s.control.Metric(s.soon(), "fenceproxy_unknown_writes")
	if err != nil || n != 7 || len(unknown) != 7 {
		t.Errorf("%v unknown writes are counted (%v) and %d listed, want 7", n, err, len(unknown))
	}
	s.proxy.Kill()
	s.restart()
	for name := range unknown { // time and restarts free nothing
		w := keyed(l, name, name+"-later", "")
		s.blocked(s.send(w))
		s.unseen(w.ID)
	}
}

func TestAnUpstreamThatIsNotThereLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	s := onStage(t, nil, daemon.Settings{Upstream: nobody})
	l := s.claim("job", "A", long)
	for range 2 { // the second one is tried as the first was
		got := s.send(keyed(l, "k1", "w", ""))
		s.refused(got, 502, "upstream-unreachable")
		if got.Outcome() != "not-sent" || got.Text("retry") != "same-key" {
			t.Errorf("want not-sent and same-key, got %s", show(got))
		}
	}
	if w := s.listed("job", "not_sent"); w["k1"] == nil {
		t.Errorf("listed as %v", w)
	}
}

// resolve runs "write resolve" and returns what it printed and its exit code.
func (s *stage) resolve(job, key, outcome string) (out string, code int) {
	s.Helper()
	out, errs, code := s.proxy.Run(s.soon(), "write", "resolve", job, key, outcome, "--reason", "looked at the upstream")
	return out + errs, code
}

func TestAnOperatorResolvesAnUnknownWriteFromAShell(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	s.forwarded(s.send(keyed(l, "done", "done", "status=500")), 500, "unknown")
	s.refusedAfterSending(s.send(keyed(l, "undone", "undone", "reset")), 502, "upstream-failed")
	flying := s.start(keyed(l, "flying", "flying", "hang"))
	s.arrives("flying")

	out, errs, code := s.proxy.Run(s.soon(), "write", "list", "--state", "unknown", "--job", "job", "--json")
	var page struct{ Writes []daemon.Fields }
	if err := json.Unmarshal([]byte(out), &page); err != nil || code != 0 || len(page.Writes) != 2 {
		t.Fatalf("write list --json: exit code %d, %v\n%s%s", code, err, out, errs)
	}
	if out, errs, code := s.proxy.Run(s.soon(), "write", "list"); code != 0 || !strings.Contains(out, "undone") || !strings.Contains(out, "in_flight") {
		t.Errorf("write list: exit code %d\n%s%s", code, out, errs)
	}
	for _, wrong := range [][2]string{{"flying", "applied"}, {"missing", "applied"}, {"done", "maybe"}} {
		if out, code := s.resolve("job", wrong[0], wrong[1]); code == 0 {
			t.Errorf("resolve %v ends with 0: %s", wrong, out)
		}
	}
	for range 2 { // again is no error
		if out, code := s.resolve("job", "done", "applied"); code != 0 || !strings.Contains(out, "applied") {
			t.Fatalf("resolve applied: exit code %d\n%s", code, out)
		}
	}
	s.quiet(func() {
		got := s.send(keyed(l, "done", "again", ""))
		s.refused(got, 409, "already-applied")
		s.about(got, "applied")
	})
	if out, code := s.resolve("job", "undone", "not-applied"); code != 0 {
		t.Fatalf("resolve not-applied: exit code %d\n%s", code, out)
	}
	if out, code := s.resolve("job", "done", "not-applied"); code == 0 {
		t.Errorf("a resolved write is resolved otherwise: %s", out)
	}
	s.forwarded(s.send(keyed(l, "undone", "undone-again", "")), 200, "applied")
	s.appliedOnce("job", "undone")
	s.appliedOnce("job", "done")

	s.up.Release("flying")
	s.forwarded(flying.answer(), 200, "applied")
	s.proxy.Kill()
	s.restart()
	s.refused(s.send(keyed(l, "done", "later", "")), 409, "already-applied")
	logs := s.proxy.Logs()
	if !strings.Contains(logs, "looked at the upstream") || strings.Contains(logs, `"undone"`) {
		t.Error("the log does not tell why, or it tells the key")
	}
}

// A mesh that repeats a payment by itself, 20 ms after the first try broke off.
func TestARetryingGatewayDoesNotPayTwice(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	w := keyed(l, `"k1"`, "first", "reset-after-execute") // quoted, as the draft has it
	s.refusedAfterSending(s.send(w), 502, "upstream-failed")
	if got := s.ends("first").Header["Idempotency-Key"]; len(got) != 1 || got[0] != `"k1"` {
		t.Errorf("the upstream got the key as %q", got)
	}
	for _, key := range []string{`"k1"`, "k1"} { // one key, however it is written
		s.quiet(func() { s.blocked(s.send(keyed(l, key, "again", ""))) })
	}
	s.executed("first", 1)
}

func TestARouteMayRequireAKey(t *testing.T) {
	t.Parallel()
	s := open(t, "idempotency: {key: required}")
	l := s.claim("job", "A", long)
	s.quiet(func() {
		for range 2 {
			got := s.send(write(l, "none", "reset-after-execute"))
			s.refused(got, 400, "key-required")
		}
	})
	s.forwarded(s.send(keyed(l, "k1", "w", "")), 200, "applied")
}

func TestARouteMayForwardWhatIsUnknownAgain(t *testing.T) {
	t.Parallel()
	s := open(t, "idempotency: {on_unknown: forward}")
	l := s.claim("job", "A", long)
	s.refusedAfterSending(s.send(keyed(l, "k1", "first", "reset-after-execute")), 502, "upstream-failed")
	second := s.send(keyed(l, "k1", "second", "")) // an upstream that knows the key will not do it again
	s.forwarded(second, 200, "applied")
	s.replayed(s.send(keyed(l, "k1", "third", "")), second)
	if got := s.ends("second").Header.Get("Idempotency-Key"); got != "k1" {
		t.Errorf("the upstream got key %q", got)
	}
	s.unseen("third")
}
