package leaseclient_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/leaseclient"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errLine = errors.New("the line is down")

// fault is what the line does to one call.
type fault func(ctx context.Context, serve func() *http.Response) (*http.Response, error)

// The faults of a line.
var (
	drop      fault = func(context.Context, func() *http.Response) (*http.Response, error) { return nil, errLine }
	dropReply fault = func(_ context.Context, serve func() *http.Response) (*http.Response, error) {
		serve()
		return nil, errLine
	}
	hang fault = func(ctx context.Context, _ func() *http.Response) (*http.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
)

// late delivers the call after d, whether anybody still waits or not.
func late(d time.Duration) fault {
	return func(_ context.Context, serve func() *http.Response) (*http.Response, error) {
		time.Sleep(d)
		return serve(), nil
	}
}

// answer answers in the place of the server.
func answer(status int, header http.Header, body string) fault {
	return func(context.Context, func() *http.Response) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}, nil
	}
}

// call is one that the line has seen.
type call struct {
	path string
	at   time.Time
	body string
}

// line is a RoundTripper to a handler in this process.
type line struct {
	handler http.Handler
	mu      sync.Mutex
	calls   []call
	// judge says what happens to a call; nil lets all pass.
	judge func(c call, nth int) fault
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	c := call{r.URL.Path, time.Now(), string(body)}
	l.calls = append(l.calls, c)
	nth := 0
	for _, old := range l.calls {
		if old.path == c.path {
			nth++
		}
	}
	judge := l.judge
	l.mu.Unlock()
	ctx := r.Context()
	serve := func() *http.Response {
		in := httptest.NewRequestWithContext(ctx, r.Method, r.URL.String(), strings.NewReader(c.body))
		in.Header = r.Header
		out := httptest.NewRecorder()
		l.handler.ServeHTTP(out, in)
		return out.Result()
	}
	if judge != nil {
		if f := judge(c, nth); f != nil {
			ctx = context.WithoutCancel(ctx) // once on its way a call arrives, though its caller is gone
			return f(r.Context(), serve)
		}
	}
	resp := serve()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return resp, nil
}

func (l *line) set(judge func(c call, nth int) fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judge = judge
}

// seen returns the calls of a path so far.
func (l *line) seen(path string) (out []call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if c.path == path {
			out = append(out, c)
		}
	}
	return out
}

// always puts every call of a path under a fault.
func always(path string, f fault) func(call, int) fault {
	return func(c call, _ int) fault {
		if c.path == path {
			return f
		}
		return nil
	}
}

// rig is a lease API over a store in memory, and a line to it.
type rig struct {
	t         *testing.T
	authority *tokens.Authority
	line      *line
}

func newRig(t *testing.T) *rig {
	t.Helper()
	a, err := tokens.NewAuthority(context.Background(), tokenstest.NewMemory(nil), tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := control.New(control.Options{Authority: a, Logger: slog.New(slog.DiscardHandler)})
	return &rig{t: t, authority: a, line: &line{handler: h}}
}

// client returns a client that is closed with the test.
func (r *rig) client(cfg leaseclient.Config) *leaseclient.Client {
	r.t.Helper()
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = &http.Client{Transport: r.line}
	}
	c, err := leaseclient.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		r.line.set(nil)
		if err := c.Close(); err != nil {
			r.t.Errorf("close: %v", err)
		}
	})
	return c
}

func (r *rig) claim(c *leaseclient.Client, job string, opts ...leaseclient.ClaimOption) *leaseclient.Lease {
	r.t.Helper()
	l, err := c.Claim(context.Background(), job, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// rival claims a job as somebody else, past the line.
func (r *rig) rival(job string) (tokens.Grant, error) {
	return r.authority.Claim(context.Background(), tokens.ClaimRequest{Job: tokens.Job{ID: job}, Owner: "rival", TTL: 60_000}, 0, 0)
}

// free fails the test unless a rival gets the job at once.
func (r *rig) free(job string) tokens.Generation {
	r.t.Helper()
	g, err := r.rival(job)
	if err != nil {
		r.t.Fatalf("the job %s is not free: %v", job, err)
	}
	return g.Lease.Generation
}

// still fails the test if a renewal leaves within five minutes.
func (r *rig) still() {
	r.t.Helper()
	n := len(r.line.seen(wire.PathRenewLeases))
	time.Sleep(5 * time.Minute)
	if after := len(r.line.seen(wire.PathRenewLeases)); after != n {
		r.t.Errorf("%d renewals left after the end of the lease", after-n)
	}
}

// losses counts the calls of WithOnLost.
type losses struct {
	mu   sync.Mutex
	seen []error
}

func (s *losses) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, err)
}

func (s *losses) all() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]error(nil), s.seen...)
}
