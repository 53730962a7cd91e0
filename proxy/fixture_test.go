package proxy

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upstream is a real HTTP server that records what reaches it.
type upstream struct {
	*httptest.Server
	conns atomic.Int64 // ever opened
	open  atomic.Int64 // open now
	// forgetful tells that nothing is recorded.
	forgetful atomic.Bool

	mu      sync.Mutex
	seen    []*http.Request
	bodies  [][]byte
	arrived chan *http.Request
	whole   chan struct{} // told when a request was read to its end, if the handler tells
}

// newUpstream serves with h after each request was recorded.
func newUpstream(t *testing.T, h http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{arrived: make(chan *http.Request, 1000)}
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !u.forgetful.Load() {
			u.mu.Lock()
			u.seen = append(u.seen, r)
			u.mu.Unlock()
			u.arrived <- r
		}
		if h != nil {
			h(w, r)
			return
		}
		b, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.bodies = append(u.bodies, b)
		u.mu.Unlock()
	}))
	u.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			u.conns.Add(1)
			u.open.Add(1)
		case http.StateClosed:
			u.open.Add(-1)
		}
	}
	u.Config.Protocols = new(http.Protocols)
	u.Config.Protocols.SetHTTP1(true)
	u.Config.Protocols.SetUnencryptedHTTP2(true)
	u.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	u.Start()
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.seen)
}

// fixture is a proxy over a real authority, in front of one upstream.
type fixture struct {
	t         *testing.T
	store     *tokenstest.Faulty
	authority *tokens.Authority
	metrics   *telemetry.Metrics
	proxy     *Proxy
	server    *httptest.Server
	logs      *syncBuffer
	contexts  chan context.Context // of the requests that came
}

// scrape returns the metrics.
func (f *fixture) scrape() string {
	w := httptest.NewRecorder()
	f.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newFixture(t *testing.T, upstreamURL string, change ...func(*Route)) *fixture {
	t.Helper()
	u, err := url.Parse(upstreamURL)
	if err != nil {
		t.Fatal(err)
	}
	rt := Route{
		Name: "default", Path: "/", Upstream: u, Sender: NewSender(u, nil, 64),
		Timeout: 10 * time.Second, IdleTimeout: 10 * time.Second, TakeoverWait: 10 * time.Second, BodyBuffer: 1 << 20,
	}
	for _, c := range change {
		c(&rt)
	}
	return newFixtureOf(t, Options{Routes: []Route{rt}})
}

func newFixtureOf(t *testing.T, opt Options) *fixture {
	t.Helper()
	f := &fixture{t: t, store: tokenstest.NewFaulty(tokenstest.NewMemory(nil)), logs: &syncBuffer{}, contexts: make(chan context.Context, 1000)}
	var err error
	f.authority, err = tokens.NewAuthority(context.Background(), f.store, tokens.Options{CommitTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{NoRoute}
	for _, r := range opt.Routes {
		names = append(names, r.Name)
	}
	var codes []string
	for _, c := range wire.Codes() {
		codes = append(codes, c.Name)
	}
	f.metrics = telemetry.NewMetrics(telemetry.Build{}, names, codes)
	opt.Authority, opt.Metrics = f.authority, f.metrics
	opt.Logger = slog.New(slog.NewJSONHandler(f.logs, nil))
	if f.proxy, err = New(opt); err != nil {
		t.Fatal(err)
	}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.contexts != nil {
			f.contexts <- r.Context()
		}
		f.proxy.ServeHTTP(w, r)
	}))
	f.server.Config.BaseContext = func(net.Listener) context.Context { return f.proxy.Base() }
	f.server.Config.DisableGeneralOptionsHandler = true
	f.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	f.server.Config.Protocols = new(http.Protocols)
	f.server.Config.Protocols.SetHTTP1(true)
	f.server.Config.Protocols.SetUnencryptedHTTP2(true)
	f.server.Start()
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
		f.proxy.Close()
		f.server.Client().CloseIdleConnections()
	})
	return f
}

// claim takes the lease of a job; an earlier holder must have let go, or be revoked.
func (f *fixture) claim(job string) tokens.Lease {
	f.t.Helper()
	g, err := f.authority.Claim(context.Background(), tokens.ClaimRequest{Job: tokens.Job{ID: job}, Owner: "worker", TTL: 60_000}, 0, 0)
	if err != nil {
		f.t.Fatalf("claim %s: %v", job, err)
	}
	return g.Lease
}

// takeOver ends the present lease and claims anew, as after an expiry.
func (f *fixture) takeOver(job string) tokens.Lease {
	f.t.Helper()
	if _, err := f.authority.Revoke(context.Background(), tokens.Job{ID: job}, 0, ""); err != nil {
		f.t.Fatalf("revoke %s: %v", job, err)
	}
	return f.claim(job)
}

// request builds a fenced POST.
func (f *fixture) request(job, generation string, body io.Reader) *http.Request {
	f.t.Helper()
	r, err := http.NewRequest(http.MethodPost, f.server.URL+"/charge", body)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header["Fence-Job-Id"], r.Header["Fence-Generation"] = []string{job}, []string{generation}
	return r
}

// reply is an answer that was read to its end.
type reply struct {
	*http.Response
	body string
	err  error
}

func (f *fixture) send(r *http.Request) reply {
	res, err := f.server.Client().Do(r)
	if err != nil {
		return reply{err: err}
	}
	b, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	return reply{Response: res, body: string(b), err: err}
}

// start sends in the background.
func (f *fixture) start(r *http.Request) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- f.send(r) }()
	return c
}

func (f *fixture) post(job, generation string) reply {
	f.t.Helper()
	return f.send(f.request(job, generation, strings.NewReader("amount=1")))
}

// want checks status and the proxy's headers; empty strings want the header absent.
func want(t *testing.T, r reply, status int, decision, reason, outcome string) {
	t.Helper()
	if r.err != nil {
		t.Fatalf("got error %v, want status %d", r.err, status)
	}
	h := r.Header
	if r.StatusCode != status || h.Get("Fence-Decision") != decision || h.Get("Fence-Reason") != reason || h.Get("Fence-Outcome") != outcome {
		t.Fatalf("got %d decision=%q reason=%q outcome=%q, want %d %q %q %q\nbody: %s",
			r.StatusCode, h.Get("Fence-Decision"), h.Get("Fence-Reason"), h.Get("Fence-Outcome"), status, decision, reason, outcome, r.body)
	}
}

// eventually polls until ok holds; for what happens in goroutines of others.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// eachSender runs a test with each way to an upstream.
func eachSender(t *testing.T, test func(t *testing.T, sender func(*Route))) {
	t.Helper()
	eachHTTP1Sender(t, test)
	t.Run("h2c", func(t *testing.T) { test(t, overHTTP2) })
}

// eachHTTP1Sender leaves out HTTP/2, in which nothing can be upgraded.
func eachHTTP1Sender(t *testing.T, test func(t *testing.T, sender func(*Route))) {
	t.Helper()
	t.Run("direct", func(t *testing.T) { test(t, func(*Route) {}) })
	t.Run("transport", func(t *testing.T) {
		test(t, func(r *Route) { r.Sender = NewTransportSender(nil, 64) })
	})
}
