package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

func TestAStaleWriteIsRefusedBeforeItsBodyIsRead(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", brief)
	s.takeOver("job", "B", long)
	s.quiet(func() {
		for _, framing := range []string{
			"Content-Length: 1000000", "Transfer-Encoding: chunked", "Content-Length: 1000000\r\nExpect: 100-continue",
		} {
			// Not one byte of the body is ever sent. A 100 would be read as the answer.
			if got := s.status(s.raw(a, "late", framing)); got != 412 {
				t.Fatalf("%q: answered %d, want 412", framing, got)
			}
		}
	})
}

// lazy is an upstream that reads the first request no further than its head, and answers the others.
type lazy struct {
	*testing.T
	lis   net.Listener
	first chan net.Conn // holds one, with its head read
	late  atomic.Int32  // later requests that came while the first connection was still in the kernel's table
}

func newLazy(t *testing.T) *lazy {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &lazy{T: t, lis: lis, first: make(chan net.Conn, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		u.serve()
	}()
	t.Cleanup(func() { _ = lis.Close(); <-done })
	return u
}

func (u *lazy) serve() {
	var first net.Addr
	for {
		c, err := u.lis.Accept()
		if err != nil {
			return // closed
		}
		in := bufio.NewReaderSize(c, 16)
		if _, err := http.ReadRequest(in); err != nil {
			u.Errorf("read the head of a request: %v", err)
			_ = c.Close()
			continue
		}
		if first == nil {
			first = c.RemoteAddr()
			u.first <- c
			continue
		}
		if alive(u.T, first, u.lis.Addr()) {
			u.late.Add(1)
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); err != nil {
			u.Errorf("answer: %v", err)
		}
		_ = c.Close()
	}
}

// alive tells whether the kernel still knows the near end of a connection from one address to the other. Closed with a reset
// it is gone at once; closed politely it stays as long as there is anything to deliver.
func alive(t *testing.T, from, to net.Addr) bool {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Errorf("read the kernel's connections: %v", err)
		return false
	}
	a, b := tablePort(from), tablePort(to)
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		local, remote := f[1][strings.LastIndex(f[1], ":")+1:], f[2][strings.LastIndex(f[2], ":")+1:]
		if local == a && remote == b {
			return true
		}
	}
	return false
}

// tablePort is the port of a TCP address as the kernel's table writes it.
func tablePort(addr net.Addr) string {
	port := addr.(*net.TCPAddr).Port
	return strings.ToUpper(strconv.FormatInt(1<<16|int64(port), 16)[1:])
}

// endless is a body without an end that counts what was taken of it.
type endless struct {
	taken atomic.Int64
	ctx   context.Context
}

func (e *endless) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	e.taken.Add(int64(len(p)))
	return len(p), nil
}

// stuck starts a write whose body fills every buffer up to the upstream, and returns when nothing moves any more.
func (s *stage) stuck(l daemon.Lease, u *lazy) (*pending, net.Conn) {
	s.Helper()
	body := &endless{ctx: s.soon()}
	w := write(l, "a", "")
	w.Body, w.Stream = nil, body
	older := s.start(w)
	var c net.Conn
	select {
	case c = <-u.first:
	case <-s.soon().Done():
		s.Fatal("the write does not arrive")
	}
	s.Cleanup(func() { _ = c.Close() })
	last, same := int64(-1), 0
	s.until("every buffer is full", func() bool {
		now := body.taken.Load()
		if now != last {
			last, same = now, 0
			return false
		}
		same++
		return same == 20 // looks, ten milliseconds apart
	})
	return older, c
}

// endsInReset reads a connection to its end.
func endsInReset(t *testing.T, c net.Conn) {
	t.Helper()
	n, err := io.Copy(io.Discard, c)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v after %d bytes, want a reset: what the kernel held of the write was delivered", err, n)
	}
}

func TestWhatTheKernelHoldsOfACutWriteIsDropped(t *testing.T) {
	t.Parallel()
	u := newLazy(t)
	s := onStage(t, nil, daemon.Settings{Upstream: "http://" + u.lis.Addr().String(), Route: []string{"body: {buffer: 4KiB}"}})
	a := s.claim("job", "A", brief)
	older, c := s.stuck(a, u)
	b := s.takeOver("job", "B", long)
	s.stale(older.answer(), "superseded")
	s.forwarded(s.send(write(b, "b", "")), 200, "applied")
	if u.late.Load() != 0 {
		t.Error("the successor's write arrived before the connection of the cut one was gone")
	}
	endsInReset(t, c)
}

func TestWhatTheKernelHoldsOfADeadProcessIsDropped(t *testing.T) {
	t.Parallel()
	u := newLazy(t)
	s := onStage(t, nil, daemon.Settings{Upstream: "http://" + u.lis.Addr().String(), Route: []string{"body: {buffer: 4KiB}"}})
	a := s.claim("job", "A", brief)
	older, c := s.stuck(a, u)
	s.proxy.Kill()
	<-older.done
	s.restart()
	b := s.takeOver("job", "B", long)
	s.forwarded(s.send(write(b, "b", "")), 200, "applied")
	if u.late.Load() != 0 {
		t.Error("the successor's write arrived before the connection of the dead process was gone")
	}
	endsInReset(t, c)
}
