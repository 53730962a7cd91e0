package leaseclient_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/control"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// stack is a proxy with both listeners in this process, and an upstream that remembers what it was asked to do.
type stack struct {
	control, data string
	mu            sync.Mutex
	applied       []string
	ahead         time.Duration
	stops         []func()
}

// newStack serves an upstream that applies every write; a write to /broken is applied too, but never answered.
func newStack() *stack {
	s := &stack{}
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.applied = append(s.applied, r.URL.Path)
		s.mu.Unlock()
		if r.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
	}))
	authority, err := tokens.NewAuthority(context.Background(), tokenstest.NewMemory(s.now), tokens.Options{})
	if err != nil {
		panic(err)
	}
	log := slog.New(slog.DiscardHandler)
	to, err := url.Parse(upstream.URL)
	if err != nil {
		panic(err)
	}
	var codes []string
	for _, c := range wire.Codes() {
		codes = append(codes, c.Name)
	}
	p, err := proxy.New(proxy.Options{
		Authority: authority, Logger: log,
		Metrics: telemetry.NewMetrics(telemetry.Build{}, []string{proxy.NoRoute, "all"}, codes),
		Routes: []proxy.Route{{
			Name: "all", Path: "/", Upstream: to, Sender: proxy.NewSender(to, nil, 4), Timeout: time.Minute, IdleTimeout: time.Minute,
			TakeoverWait: 10 * time.Second, BodyBuffer: 1 << 20, Retention: time.Hour, StoreReply: true, MaxReply: 64 << 10,
		}},
	})
	if err != nil {
		panic(err)
	}
	data := httptest.NewServer(p)
	api := httptest.NewServer(control.New(control.Options{Authority: authority, Logger: log}))
	s.control, s.data = api.URL, data.URL
	s.stops = []func(){api.Close, data.Close, p.Close, upstream.Close, http.DefaultTransport.(*http.Transport).CloseIdleConnections}
	return s
}

func (s *stack) stop() {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, f := range s.stops {
		f()
	}
}

// now is the server's clock.
func (s *stack) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead)
}

// pass lets time pass on the server.
func (s *stack) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

func (s *stack) done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.applied...)
}
