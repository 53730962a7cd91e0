package wire

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEveryCodeHasAStatusOfGRPC(t *testing.T) {
	want := strings.Fields(`
		fence-required/9 fence-invalid/3 request-invalid/3 stale-generation/9 unissued-generation/9 unknown-job/9
		lease-mismatch/9 lease-expired/9 key-required/9 key-reused/3 write-in-progress/10 already-applied/10
		outcome-unknown/10 takeover-pending/14 store-unavailable/14 overloaded/14 body-too-large/3 no-route/12
		upstream-unreachable/14 upstream-failed/2 upstream-timeout/4
		lease-held/10 lease-lost/10 job-completed/10 generation-mismatch/10 generations-exhausted/10 write-not-found/5
		write-settled/10 job-not-found/5 invalid-request/3 request-too-large/3 unsupported-media-type/3 not-found/5
		method-not-allowed/12 unauthenticated/16 forbidden/7 internal/13`)
	var got []string
	for _, c := range Codes() {
		got = append(got, fmt.Sprintf("%s/%d", c.Name, c.GRPC()))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestOnlyWhatWasNotDoneMayBeRepeatedByAGRPCClient(t *testing.T) {
	for _, c := range []struct {
		code     Code
		outcome  string
		after    time.Duration
		pushback string
	}{
		{CodeStaleGeneration, "", 0, "-1"},
		{CodeStaleGeneration, "unknown", 0, "-1"},
		{CodeKeyReused, "", 0, "-1"},
		{CodeTakeoverPending, "", 1500 * time.Millisecond, "1500"},
		{CodeUpstreamUnreachable, "not-sent", 0, ""},
		{CodeUpstreamUnreachable, "declined", 0, ""},
		{CodeUpstreamFailed, "unknown", 0, "-1"},
		{CodeUpstreamTimeout, "unknown", 0, "-1"},
	} {
		p := NewProblem(c.code, "100 % überholt\n")
		p.Outcome, p.RetryAfter = c.outcome, c.after
		w := httptest.NewRecorder()
		p.WriteGRPC(w)
		h := w.Header()
		if h.Get(HeaderGRPCPushback) != c.pushback {
			t.Errorf("%s %s: pushback %q, want %q", c.code.Name, c.outcome, h.Get(HeaderGRPCPushback), c.pushback)
		}
		if m := h.Get(HeaderGRPCMessage); m != "100 %25 %C3%BCberholt%0A" {
			t.Errorf("message %q", m)
		}
		if w.Code != http.StatusOK || h.Get("Content-Type") != TypeGRPC || w.Body.Len() != 0 {
			t.Errorf("status %d, %q, body %q", w.Code, h.Get("Content-Type"), w.Body)
		}
	}
}
