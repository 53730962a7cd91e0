package proxy

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// mostAllocs bounds what a fenced write may allocate in the whole process, the HTTP
// server's own part included. It is 38 without the race detector, and was 63 when each
// write had timers, contexts and header maps of its own.
const mostAllocs = 45

// BenchmarkAFencedWrite is a write of 256 bytes on one connection, through the server, the
// fence and a connection to an upstream that allocates nothing.
func BenchmarkAFencedWrite(b *testing.B) {
	write := newWriter(b, newLean(b))
	b.ReportAllocs()
	for b.Loop() {
		write()
	}
}

// BenchmarkTheServerAlone is the same write, answered by a handler that only reads it: what
// is left to net/http in the benchmark above.
func BenchmarkTheServerAlone(b *testing.B) {
	answer := []byte(`{"charged": true}`)
	write := newWriter(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			b.Error(err)
		}
		h := w.Header()
		h["Content-Type"], h["Content-Length"] = []string{"application/json"}, []string{"17"}
		if _, err := w.Write(answer); err != nil {
			b.Error(err)
		}
	}))
	b.ReportAllocs()
	for b.Loop() {
		write()
	}
}

func TestAFencedWriteAllocatesLittle(t *testing.T) {
	write := newWriter(t, newLean(t))
	if n := testing.AllocsPerRun(1000, write); n > mostAllocs {
		t.Errorf("%v allocations, want at most %d", n, mostAllocs)
	}
}

// newLean is a proxy before an upstream that answers each write from one prepared piece.
func newLean(tb testing.TB) *Proxy {
	tb.Helper()
	addr := serveRaw(tb, func(c net.Conn) {
		buf := make([]byte, 4<<10)
		answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"charged\": true}")
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	})
	u := &url.URL{Scheme: "http", Host: addr}
	a, err := tokens.NewAuthority(context.Background(), tokenstest.NewMemory(nil), tokens.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	codes := []string{}
	for _, c := range wire.Codes() {
		codes = append(codes, c.Name)
	}
	p, err := New(Options{
		Authority: a,
		Routes: []Route{{
			Name: "default", Path: "/", Upstream: u, Sender: NewSender(u, nil, 64),
			Timeout: 10 * time.Second, IdleTimeout: 10 * time.Second, TakeoverWait: 10 * time.Second, BodyBuffer: 1 << 20,
		}},
		Metrics: telemetry.NewMetrics(telemetry.Build{}, []string{NoRoute, "default"}, codes),
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// newWriter serves h as the daemon does, and returns a function that sends one fenced
// write to it and reads the answer.
func newWriter(tb testing.TB, h http.Handler) func() {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	if p, ok := h.(*Proxy); ok {
		s.BaseContext = func(net.Listener) context.Context { return p.Base() }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ln) // it ends when the server is closed
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = c.Close()
		_ = s.Close()
		<-done
	})
	request := []byte("POST /charge HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\n" +
		"Fence-Job-Id: tenant/42/job-000001\r\nFence-Generation: 7\r\nContent-Length: 256\r\n\r\n" + strings.Repeat("x", 256))
	buf := make([]byte, 4<<10)
	return func() {
		if _, err := c.Write(request); err != nil {
			tb.Fatal(err)
		}
		n, err := c.Read(buf)
		if err != nil || !bytes.HasPrefix(buf[:n], []byte("HTTP/1.1 200 ")) {
			tb.Fatalf("got %q and %v", buf[:n], err)
		}
	}
}

// serveRaw serves each connection with handle until the test ends.
func serveRaw(tb testing.TB, handle func(net.Conn)) (addr string) {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }() // the other side has gone
				handle(c)
			}()
		}
	}()
	tb.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return ln.Addr().String()
}
