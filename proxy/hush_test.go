package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/listen"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// countedListener counts the reads from its connections.
type countedListener struct {
	net.Listener
	reads atomic.Int64
}

type countedRead struct {
	net.Conn
	of *countedListener
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &countedRead{c, l}, err
}

func (c *countedRead) Read(p []byte) (int, error) {
	c.of.reads.Add(1)
	return c.Conn.Read(p)
}

// serveCounted serves f's proxy as the program does; contexts of requests go to f.contexts.
func serveCounted(t *testing.T, f *fixture) *countedListener {
	t.Helper()
	under, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counted := &countedListener{Listener: under}
	opt := listen.Options{MaxHead: 64 << 10, Logger: slog.New(slog.DiscardHandler)}
	srv := listen.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.contexts <- r.Context()
		f.proxy.ServeHTTP(w, r)
	}), opt)
	srv.BaseContext = func(net.Listener) context.Context { return f.proxy.Base() }
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(listen.New(counted, opt)) // ends when it is closed
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return counted
}

// looked is a connection that sends one request after the other.
type looked struct {
	net.Conn
	t  *testing.T
	br *bufio.Reader
}

func (l *countedListener) call(t *testing.T) *looked {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &looked{c, t, bufio.NewReader(c)}
}

func (c *looked) send(method, generation string) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c, "%s /charge HTTP/1.1\r\nHost: a\r\nFence-Job-Id: j\r\nFence-Generation: %s\r\nContent-Length: 1\r\n\r\nx", method, generation); err != nil {
		c.t.Fatal(err)
	}
}

func (c *looked) answered() {
	c.t.Helper()
	res, err := http.ReadResponse(c.br, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		c.t.Fatalf("got %d and %v", res.StatusCode, err)
	}
}

func TestAWriteThatWaitsForNobodyIsNotLookedBehind(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL)
	l := serveCounted(t, f)
	c := l.call(t)
	const writes = 100
	for range writes {
		c.send("POST", "7")
		c.answered()
	}
	if n := l.reads.Load(); n > writes*3/2 {
		t.Errorf("%d reads for %d writes, of which each came whole", n, writes)
	}
}

func TestAReadBehindAWriteStillEndsWithItsCaller(t *testing.T) {
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodGet {
			<-r.Context().Done()
		}
	})
	f := newFixture(t, u.URL)
	l := serveCounted(t, f)
	c := l.call(t)
	for range 2 {
		c.send("POST", "7")
		c.answered()
		<-u.arrived
		<-f.contexts
	}
	c.send("GET", "7")
	<-u.arrived
	_ = c.Close()
	ctx := <-f.contexts
	eventually(t, "the read ends with its caller", func() bool { return ctx.Err() != nil })
}

func TestAWriteThatWaitsForOlderOnesStillEndsWithItsCaller(t *testing.T) {
	release := make(chan struct{})
	u := newUpstream(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	f := newFixture(t, u.URL)
	l := serveCounted(t, f)
	l.call(t).send("POST", "7")
	<-u.arrived
	<-f.contexts
	// The first of them raises the floor, the second finds it there.
	for range 2 {
		c := l.call(t)
		c.send("POST", "8")
		ctx := <-f.contexts
		eventually(t, "the floor is 8", func() bool { return f.authority.Floor(tokens.Job{ID: "j"}) == 8 })
		_ = c.Close()
		eventually(t, "the write ends with its caller", func() bool { return ctx.Err() != nil })
	}
	if n := u.count(); n != 1 {
		t.Errorf("the upstream got %d requests", n)
	}
}
