package control_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// stored returns how many records the store holds.
func (r *rig) stored() int {
	r.t.Helper()
	l, err := r.store.List(context.Background(), tokens.ListQuery{AllNamespaces: true, Limit: 100})
	if err != nil {
		r.t.Fatal(err)
	}
	return len(l)
}

func TestABadValueIsRefusedByNameAndLeavesNoTrace(t *testing.T) {
	claim := func(job, rest string) string { return `{"job_id":` + job + `,"owner":"o","ttl_ms":1000` + rest + `}` }
	ttl := func(v string) string { return `{"job_id":"j","owner":"o","ttl_ms":` + v + `}` }
	owner := func(v string) string { return `{"job_id":"j","owner":` + v + `,"ttl_ms":1000}` }
	ref := func(rest string) string {
		return `{"job_id":"j","owner":"o","generation":1,"lease_id":"l"` + rest + `}`
	}
	quoted := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	for _, c := range []struct {
		name, path, body string
		field            string
		detail           string
	}{
		{"malformed JSON", wire.PathClaim, `{"job_id":"j",`, "", "not valid JSON"},
		{"no JSON", wire.PathClaim, `job_id=j`, "", "not valid JSON"},
		{"no body", wire.PathClaim, ``, "", "is empty"},
		{"an array", wire.PathClaim, `[]`, "", "must be a JSON object"},
		{"an unknown field", wire.PathClaim, claim(`"j"`, `,"ttl":"30s"`), "ttl", "not a known field"},
		{"a field twice", wire.PathClaim, claim(`"j"`, `,"owner":"p"`), "owner", "given twice"},
		{"a missing field", wire.PathClaim, `{"job_id":"j","owner":"o"}`, "ttl_ms", "required"},
		{"a null field", wire.PathClaim, claim(`null`, ``), "job_id", "required"},
		{"a ttl of 0", wire.PathClaim, ttl("0"), "ttl_ms", "is 0; it is in milliseconds, from 1000 (1s) to 86400000 (24h0m0s)"},
		{"a negative ttl", wire.PathClaim, ttl("-1000"), "ttl_ms", "is -1000;"},
		{"a ttl in quotes", wire.PathClaim, ttl(`"30"`), "ttl_ms", `not "30"`},
		{"a ttl with a unit", wire.PathClaim, ttl(`"30s"`), "ttl_ms", `not "30s"`},
		{"a ttl of ten years", wire.PathClaim, ttl("315360000000"), "ttl_ms", "is 315360000000;"},
		{"a ttl just below", wire.PathClaim, ttl("999"), "ttl_ms", "is 999;"},
		{"a ttl just above", wire.PathClaim, ttl("86400001"), "ttl_ms", "is 86400001;"},
		{"a ttl that overflows", wire.PathClaim, ttl("9223372036854775807"), "ttl_ms", "is 9223372036854775807;"},
		{"a ttl in floats", wire.PathClaim, ttl("30000.5"), "ttl_ms", "whole number"},
		{"a job id of 257 bytes", wire.PathClaim, claim(quoted(257), ``), "job_id", "257 bytes, at most 256"},
		{"an empty job id", wire.PathClaim, claim(`""`, ``), "job_id", "empty"},
		{"a job id with a space", wire.PathClaim, claim(`"a b"`, ``), "job_id", `byte 2 is " "`},
		{"a job id with a comma", wire.PathClaim, claim(`"a,b"`, ``), "job_id", `byte 2 is ","`},
		{"a job id with a quote", wire.PathClaim, claim(`"a\"b"`, ``), "job_id", "byte 2"},
		{"a job id with a backslash", wire.PathClaim, claim(`"a\\b"`, ``), "job_id", "byte 2"},
		{"a job id with a control byte", wire.PathClaim, claim(`"a\u0000"`, ``), "job_id", "byte 2"},
		{"a job id with a line break", wire.PathClaim, claim(`"a\r\n"`, ``), "job_id", "byte 2"},
		{"a job id with a trailing blank", wire.PathClaim, claim(`"Run-7 "`, ``), "job_id", "byte 6"},
		{"a job id in raw UTF-8", wire.PathClaim, claim(`"São-Paulo"`, ``), "job_id", "percent-encode"},
		{"a job id in Latin-1", wire.PathClaim, claim("\"S\xe3o\"", ``), "", "UTF-8"},
		{"a job id that is a number", wire.PathClaim, claim(`7`, ``), "job_id", "string, not 7"},
		{"an empty owner", wire.PathClaim, owner(`""`), "owner", "is empty"},
		{"a long owner", wire.PathClaim, owner(quoted(257)), "owner", "has 257 bytes"},
		{"an owner with a control byte", wire.PathClaim, owner(`"a\u001b[2J"`), "owner", "control character"},
		{"half a character", wire.PathClaim, owner(`"\udc00"`), "owner", "surrogate"},
		{"an empty claim id", wire.PathClaim, claim(`"j"`, `,"claim_id":""`), "claim_id", "leave the field out"},
		{"a long claim id", wire.PathClaim, claim(`"j"`, `,"claim_id":`+quoted(257)), "claim_id", "has 257 bytes"},
		{"a negative wait", wire.PathClaim, claim(`"j"`, `,"wait_ms":-1`), "wait_ms", "is -1;"},
		{"a long wait", wire.PathClaim, claim(`"j"`, `,"wait_ms":300001`), "wait_ms", "is 300001;"},
		{"a negative settle", wire.PathClaim, claim(`"j"`, `,"settle_ms":-5`), "settle_ms", "is -5;"},
		{"a generation of 0", wire.PathRenew, `{"job_id":"j","owner":"o","generation":0,"lease_id":"l"}`, "generation", "is 0;"},
		{"a generation above 2^53-1", wire.PathRenew, `{"job_id":"j","owner":"o","generation":9007199254740992,"lease_id":"l"}`, "generation", "9007199254740991"},
		{"a negative generation", wire.PathRenew, `{"job_id":"j","owner":"o","generation":-1,"lease_id":"l"}`, "generation", "negative"},
		{"a generation in quotes", wire.PathRenew, `{"job_id":"j","owner":"o","generation":"1","lease_id":"l"}`, "generation", "whole number"},
		{"an empty lease id", wire.PathRenew, `{"job_id":"j","owner":"o","generation":1,"lease_id":""}`, "lease_id", "empty"},
		{"a renewal by 0", wire.PathRenew, ref(`,"ttl_ms":0`), "ttl_ms", "is 0;"},
		{"a large result", wire.PathComplete, ref(`,"result":` + quoted(16384)), "result", "has 16386 bytes; at most 16384"},
		{"a deep result", wire.PathComplete, ref(`,"result":` + strings.Repeat("[", 100) + strings.Repeat("]", 100)), "result", "deep"},
		{"a result for a release", wire.PathRelease, ref(`,"result":1`), "result", "not a known field"},
		{"a negative wait for the end", wire.PathRelease, ref(`,"wait_ms":-1`), "wait_ms", "is -1;"},
		{"a floor of 0", wire.PathFence, `{"job_id":"j","floor":0}`, "floor", "is 0;"},
		{"no floor", wire.PathFence, `{"job_id":"j"}`, "floor", "required"},
		{"a bad job to fence", wire.PathFence, `{"job_id":"a b","floor":1}`, "job_id", "byte 2"},
		{"a long reason", wire.PathFence, `{"job_id":"j","floor":1,"reason":` + quoted(1025) + `}`, "reason", "has 1025 bytes"},
		{"an expected generation of 0", wire.PathRevoke, `{"job_id":"j","expected_generation":0}`, "expected_generation", "is 0"},
		{"a bad job to reopen", wire.PathReopen, `{"job_id":""}`, "job_id", "empty"},
		{"a bad lease in a batch", wire.PathRenewLeases, `{"leases":[{"job_id":"j"}]}`, "leases[0].owner", "required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			p := r.post(c.path, c.body).problem(wire.CodeInvalidRequest)
			if p.Field != c.field || !strings.Contains(p.Detail, c.detail) || !strings.HasPrefix(p.Detail, subjectOf(c.field, "the body")) {
				t.Errorf("field %q, detail %q; want %q, %q", p.Field, p.Detail, c.field, c.detail)
			}
			if n := r.stored(); n != 0 {
				t.Errorf("%d records in the store", n)
			}
			if _, commits := r.store.Counts(); commits != 0 {
				t.Errorf("%d commits", commits)
			}
		})
	}
}

func subjectOf(field, otherwise string) string {
	if field == "" {
		return otherwise
	}
	return field
}

func TestAnOddButLegalJobIDIsOneJobEverywhere(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"tenant/42", "a%2Fb", "a%252Fb", "..", ".", "a?b", "a#b", "+", "%", "x", strings.Repeat("y", 256), "Run-7", "run-7", "<&>"} {
		c := r.claim(id, "o", 30000)
		if c.Generation != 1 || c.JobID != id {
			t.Errorf("%q: %+v", id, c)
		}
		if v := r.job(escape(id)); v.JobID != id || v.Generation != 1 {
			t.Errorf("%q: view %+v", id, v)
		}
		as[wire.RenewResponse](r.post(wire.PathRenew, renewal(c)), 200)
		as[wire.EndResponse](r.post(wire.PathComplete, completion(c, "null")), 200)
	}
}

func TestALargeBodyIsRefused(t *testing.T) {
	r := newRig(t)
	body := `{"job_id":"j","owner":"o","ttl_ms":1000` + strings.Repeat(" ", wire.MaxBody) + `}`
	if p := r.post(wire.PathClaim, body).problem(wire.CodeRequestTooLarge); !strings.Contains(p.Detail, "65536") {
		t.Error(p.Detail)
	}
	body = `{"leases":[` + strings.Repeat(" ", wire.MaxBatchBody) + `]}`
	if p := r.post(wire.PathRenewLeases, body).problem(wire.CodeRequestTooLarge); !strings.Contains(p.Detail, "1048576") {
		t.Error(p.Detail)
	}
}

func TestOnlyJSONIsTaken(t *testing.T) {
	r := newRig(t)
	for header, ok := range map[string]bool{
		"": true, "application/json": true, "application/json; charset=UTF-8": true, "application/vnd.x+json": true,
		"text/plain": false, "application/x-www-form-urlencoded": true, "application/json; charset=latin1": false, "json": false, "/": false,
	} {
		req := request(wire.PathFence, `{"job_id":"j","floor":1}`)
		req.Header.Set("Content-Type", header)
		a := r.send(req)
		if ok {
			as[wire.JobView](a, 200)
		} else if p := a.problem(wire.CodeUnsupportedMedia); p.Field != "Content-Type" || !strings.Contains(p.Detail, strconv.Quote(header)) {
			t.Errorf("%q: %+v", header, p)
		}
	}
	req := request(wire.PathFence, `{"job_id":"j","floor":1}`)
	req.Header.Set("Content-Encoding", "gzip")
	r.send(req).problem(wire.CodeUnsupportedMedia)
}

func TestAPageOfAnotherOriginCanNotActThroughABrowser(t *testing.T) {
	r := newRig(t)
	req := request(wire.PathFence, `{"job_id":"j","floor":7}`)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	r.send(req).problem(wire.CodeForbidden)
	if n := r.stored(); n != 0 {
		t.Errorf("%d records in the store", n)
	}
}

// The name of a page can be made to lead to this machine (DNS rebinding); for the browser it is of the same origin then.
func TestWithoutAnAuthFileOnlyNamesOfThisMachineAreServed(t *testing.T) {
	r := newRig(t)
	for host, served := range map[string]bool{
		"127.0.0.1:8081": true, "127.0.0.1": true, "[::1]:8081": true, "[::1]": true, "localhost:8081": true, "LOCALHOST": true,
		"localhost.": true, "app.localhost:8081": true, "": true,
		"evil.example:8081": false, "evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "evillocalhost": false,
	} {
		for _, req := range []*http.Request{
			request(wire.PathFence, `{"job_id":"j","floor":7}`), httptest.NewRequest(http.MethodGet, wire.PathJobs, nil),
		} {
			req.Host = host
			req.Header.Set("Accept-Encoding", "gzip, deflate") // all that a script can not leave out
			if a := r.send(req); (a.status == http.StatusOK) != served {
				t.Errorf("%s with Host %q: %d", req.Method, host, a.status)
			} else if !served {
				a.problem(wire.CodeForbidden)
			}
		}
	}
	bare := request(wire.PathFence, `{"job_id":"j","floor":7}`)
	bare.Host = "fenceproxy.internal"
	if a := r.send(bare); a.status != http.StatusOK {
		t.Errorf("no browser: %d", a.status)
	}
	probe := httptest.NewRequest(http.MethodGet, wire.PathHealth, nil)
	probe.Host = "fenceproxy.internal"
	if a := r.send(probe); a.status != http.StatusOK {
		t.Errorf("health: %d", a.status)
	}
}

func TestWithAnAuthFileOrTLSTheListenerMayHaveAnyName(t *testing.T) {
	r := newGuardedRig(t, principal("a", "", auth.Operator))
	req := httptest.NewRequest(http.MethodGet, wire.PathJobs, nil)
	req.Host = "fenceproxy.internal"
	if a := r.as("a").send(req); a.status != http.StatusOK {
		t.Errorf("with an auth file: %d", a.status)
	}
	req = httptest.NewRequest(http.MethodGet, "https://fenceproxy.internal"+wire.PathJobs, nil)
	if a := newRig(t).send(req); a.status != http.StatusOK {
		t.Errorf("with TLS: %d", a.status)
	}
}

func TestAWrongPathOrMethodIsAProblemWithTheWayOut(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/v1/lease", "/v1/lease/claim/", "/v2/jobs", "/favicon.ico", "/v1/job/..", "//healthz"} {
		r.get(path).problem(wire.CodeNotFound)
	}
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodGet, wire.PathClaim, "POST"}, {http.MethodDelete, wire.PathRevoke, "POST"}, {"FROB", wire.PathRenewLeases, "POST"},
		{http.MethodPost, wire.PathJobs, "GET, HEAD"}, {http.MethodPut, wire.PathHealth, "GET, HEAD"}, {http.MethodOptions, wire.PathMetrics, "GET, HEAD"},
	} {
		a := r.send(httptest.NewRequest(c.method, c.path, nil))
		a.problem(wire.CodeMethodNotAllowed)
		if got := a.header.Get("Allow"); got != c.allow {
			t.Errorf("%s %s: Allow %q, want %q", c.method, c.path, got, c.allow)
		}
	}
	r.send(httptest.NewRequest("FROB", "/nowhere", nil)).problem(wire.CodeNotFound)
	if a := r.send(httptest.NewRequest(http.MethodHead, wire.PathHealth, nil)); a.status != 200 {
		t.Errorf("HEAD: %d", a.status)
	}
}

func TestAStoreThatFailsIsUnavailableWithRetryAfterAndReadyIsRed(t *testing.T) {
	for name, mode := range map[string]tokenstest.Mode{"refuses": tokenstest.Refuse, "unknown": tokenstest.WriteAndFail, "no load": tokenstest.LoadFails} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.store.FailNext(mode)
			a := r.post(wire.PathClaim, `{"job_id":"j","owner":"o","ttl_ms":1000}`)
			if p := a.problem(wire.CodeStoreUnavailable); a.header.Get("Retry-After") != "5" || p.JobID != "j" {
				t.Errorf("%s, Retry-After %q", a.body, a.header.Get("Retry-After"))
			}
			if len(r.log.with(t, "store unavailable")) != 1 {
				t.Errorf("logged %s", r.log)
			}
			ready := r.get(wire.PathReady)
			if name == "unknown" {
				if p := ready.problem(wire.CodeStoreUnavailable); !strings.Contains(p.Detail, "restart") || ready.header.Get("Retry-After") == "" {
					t.Errorf("%+v", p)
				}
			} else if ready.status != 200 {
				t.Errorf("ready: %s", ready.body)
			}
		})
	}
}

func TestReadySaysWhyNot(t *testing.T) {
	var err error
	r := newRig(t, func(o *control.Options) { o.Ready = func() error { return err } })
	if h := as[wire.HealthResponse](r.get(wire.PathReady), 200); h.Status != "ready" {
		t.Error(h)
	}
	err = errors.New("shutting down")
	if p := r.get(wire.PathReady).problem(wire.CodeOverloaded); !strings.Contains(p.Detail, "shutting down") {
		t.Error(p.Detail)
	}
	if h := as[wire.HealthResponse](r.get(wire.PathHealth), 200); h.Status != "ok" {
		t.Error(h)
	}
}
