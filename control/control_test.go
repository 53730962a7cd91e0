package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	traceParent = "00-" + traceID + "-b7ad6b7169203331-01"
)

// rig is a control handler over a real Authority and a store in memory.
type rig struct {
	t         *testing.T
	handler   http.Handler
	authority *tokens.Authority
	store     *tokenstest.Faulty
	metrics   *telemetry.Metrics
	log       *lines
}

func newRig(t *testing.T, change ...func(*control.Options)) *rig {
	t.Helper()
	store := tokenstest.NewFaulty(tokenstest.NewMemory(nil))
	authority, err := tokens.NewAuthority(context.Background(), store, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, authority: authority, store: store, log: &lines{}, metrics: telemetry.NewMetrics(telemetry.Build{}, nil, nil)}
	opt := control.Options{Authority: authority, Metrics: r.metrics, Logger: slog.New(slog.NewJSONHandler(r.log, nil))}
	for _, f := range change {
		f(&opt)
	}
	r.handler = control.New(opt)
	return r
}

// lines collects what was logged; a log may be written and read concurrently.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// with returns the logged records that have the message.
func (l *lines) with(t *testing.T, msg string) (found []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if m["msg"] == msg {
			found = append(found, m)
		}
	}
	return found
}

type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

func (r *rig) send(req *http.Request) answer {
	r.t.Helper()
	if req.Host == "example.com" { // of httptest.NewRequest
		req.Host = "127.0.0.1:8081"
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{r.t, w.Code, w.Result().Header, body}
}

func (r *rig) get(target string) answer {
	r.t.Helper()
	return r.send(httptest.NewRequest(http.MethodGet, target, nil))
}

func request(path, body string) *http.Request {
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", traceParent)
	return req
}

// post sends v, a string or something to be made JSON.
func (r *rig) post(path string, v any) answer {
	r.t.Helper()
	body, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			r.t.Fatal(err)
		}
		body = string(b)
	}
	return r.send(request(path, body))
}

// as reads the body of an answer that must have the status.
func as[T any](a answer, status int) (v T) {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		a.t.Fatalf("%s: %v", a.body, err)
	}
	return v
}

// problem reads a refusal of the code and checks what every refusal has.
func (a answer) problem(code wire.Code) wire.Problem {
	a.t.Helper()
	p := as[wire.Problem](a, code.Status)
	if p.Code != code.Name || p.Status != code.Status || p.Title != code.Title || p.Retry != code.Retry || p.Type != "urn:fenceproxy:"+code.Name ||
		p.Detail == "" || a.header.Get("Content-Type") != wire.TypeProblem || a.header.Get("Cache-Control") != "no-store" {
		a.t.Fatalf("want %s, got %s with %v", code.Name, a.body, a.header)
	}
	return p
}

func (r *rig) claim(job, owner string, ttl int64) wire.ClaimResponse {
	r.t.Helper()
	return as[wire.ClaimResponse](r.post(wire.PathClaim, wire.ClaimRequest{JobID: job, Owner: owner, TTL: ttl}), http.StatusCreated)
}

func (r *rig) job(id string) wire.JobView {
	r.t.Helper()
	return as[wire.JobView](r.get(wire.PathJob+"?id="+id), http.StatusOK)
}

func renewal(c wire.ClaimResponse) wire.RenewRequest {
	return wire.RenewRequest{JobID: c.JobID, Owner: c.Owner, Generation: c.Generation, LeaseID: c.LeaseID}
}

func release(c wire.ClaimResponse) wire.ReleaseRequest {
	return wire.ReleaseRequest{JobID: c.JobID, Owner: c.Owner, Generation: c.Generation, LeaseID: c.LeaseID}
}

func completion(c wire.ClaimResponse, result string) wire.CompleteRequest {
	return wire.CompleteRequest{JobID: c.JobID, Owner: c.Owner, Generation: c.Generation, LeaseID: c.LeaseID, Result: json.RawMessage(result)}
}

func (r *rig) metricsText() string {
	r.t.Helper()
	return string(r.get(wire.PathMetrics).body)
}
