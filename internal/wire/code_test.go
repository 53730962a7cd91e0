package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestTheTableOfCodesIsTheContract(t *testing.T) {
	want := strings.Fields(`
		fence-required/428/never fence-invalid/400/never request-invalid/400/never stale-generation/412/never
		unissued-generation/412/never unknown-job/412/never lease-mismatch/412/never lease-expired/412/never
		key-required/400/new-key key-reused/422/new-key write-in-progress/409/wait already-applied/409/never
		outcome-unknown/409/never takeover-pending/503/wait store-unavailable/503/wait overloaded/503/wait
		body-too-large/413/never no-route/404/never upstream-unreachable/502/same-key upstream-failed/502/same-key
		upstream-timeout/504/same-key
		lease-held/409/wait lease-lost/409/never job-completed/409/never generation-mismatch/409/never
		generations-exhausted/409/never write-not-found/404/never write-settled/409/never job-not-found/404/never invalid-request/400/never request-too-large/413/never
		unsupported-media-type/415/never not-found/404/never method-not-allowed/405/never unauthenticated/401/never
		forbidden/403/never internal/500/same-key`)
	var got []string
	for _, c := range Codes() {
		got = append(got, fmt.Sprintf("%s/%d/%s", c.Name, c.Status, c.Retry))
		if c.Title == "" {
			t.Errorf("%s has no title", c.Name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestEverySentinelOfARefusalHasOneCode(t *testing.T) {
	for _, err := range []error{
		tokens.ErrStaleGeneration, tokens.ErrUnissuedGeneration, tokens.ErrUnknownJob, tokens.ErrLeaseMismatch,
		tokens.ErrLeaseExpired, tokens.ErrTakeoverPending, tokens.ErrOverloaded, tokens.ErrStoreUnavailable,
		tokens.ErrLeaseHeld, tokens.ErrLeaseLost, tokens.ErrJobCompleted, tokens.ErrGenerationMismatch,
		tokens.ErrJobNotFound, tokens.ErrGenerationsExhausted,
	} {
		n := 0
		for _, c := range Codes() {
			if c.Sentinel == err {
				n++
			}
		}
		c, ok := ForError(&tokens.Refusal{Err: err})
		if !ok || c.Sentinel != err || n != 1 {
			t.Errorf("%v: %+v, %v, in %d codes", err, c, ok, n)
		}
	}
	for _, err := range []error{nil, errors.New("else")} {
		if c, ok := ForError(err); ok || c != CodeInternal {
			t.Errorf("%v: %+v, %v", err, c, ok)
		}
	}
}

func TestAProblemComesBackAsItWasWritten(t *testing.T) {
	p := NewProblem(CodeLeaseHeld, "held by <a&b>")
	left := int64(0)
	p.JobID, p.Owner, p.Generation, p.Floor, p.ExpiresIn = "a", "w", 7, 7, &left
	p.RetryAfter = 1001 * time.Millisecond
	w := httptest.NewRecorder()
	p.Write(w)
	h := w.Header()
	if w.Code != 409 || h.Get("Content-Type") != TypeProblem || h.Get("Retry-After") != "2" || h.Get("Cache-Control") != "no-store" ||
		h.Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
		t.Errorf("status %d, headers %v", w.Code, h)
	}
	want := `{"type":"urn:fenceproxy:lease-held","title":"Somebody holds the lease","status":409,"detail":"held by <a&b>","code":"lease-held",` +
		`"job_id":"a","generation":7,"floor":7,"retry":"wait","owner":"w","expires_in_ms":0}` + "\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	back, ok := ReadProblem(w.Result())
	if !ok || back.Detail != p.Detail || back.RetryAfter != 2*time.Second || back.ExpiresIn == nil || back.Generation != 7 {
		t.Errorf("read back: %+v, %v", back, ok)
	}
}

func TestAnAnswerOfSomethingElseIsNoProblem(t *testing.T) {
	for _, c := range []struct{ mediaType, body string }{
		{"text/html", "<h1>502</h1>"}, {"", ""}, {TypeProblem, "{"}, {TypeProblem, `{"type":"about:blank","title":"x"}`},
		{TypeProblem, `{"type":"urn:other:lease-held","code":"lease-held"}`}, {TypeJSON, `{"type":"urn:fenceproxy:x","code":"x"}`},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", c.mediaType)
		_, _ = w.WriteString(c.body)
		if p, ok := ReadProblem(w.Result()); ok {
			t.Errorf("%s %s: %+v", c.mediaType, c.body, p)
		}
	}
}

func TestAnAnswerThatIsNoJSONIsAProblem(t *testing.T) {
	w := httptest.NewRecorder()
	WriteJSON(w, 200, TypeJSON, JobView{Result: json.RawMessage("{")})
	if p, ok := ReadProblem(w.Result()); !ok || w.Code != 500 || p.Code != "internal" {
		t.Errorf("status %d: %+v", w.Code, p)
	}
}

func TestAFirstClaimHasANullPredecessorAndTimesHaveMilliseconds(t *testing.T) {
	b, err := json.Marshal(ClaimResponse{LeaseUntil: FormatTime(1700000000007)})
	want := `{"job_id":"","owner":"","generation":0,"lease_id":"","ttl_ms":0,"expires_in_ms":0,"lease_until":"2023-11-14T22:13:20.007Z","predecessor":null}`
	if err != nil || string(b) != want {
		t.Errorf("got  %s\nwant %s (%v)", b, want, err)
	}
}
