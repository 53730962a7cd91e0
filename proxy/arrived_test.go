//go:build linux

package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// roomy is a Control for sockets that take much that nobody reads.
func roomy(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4<<20)
	})
}

// An upstream that answers early and reads on must not get the rest of an older write, which lies
// in our kernel, after a newer one.
func TestWhatTheKernelHoldsOfAnAnsweredWriteIsNotDeliveredAfterItsSuccessor(t *testing.T) {
	const size = 200 << 10 // more than the other side takes unread, less than ours
	for name, buffer := range map[string]int64{"in memory": 1 << 20, "streamed": 1} {
		for kind, reply := range map[string]string{"no body": "Content-Length: 0\r\n\r\n", "a body": "Content-Length: 2\r\n\r\nok"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				lc := net.ListenConfig{Control: tight}
				ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				goOn, rest := make(chan struct{}), make(chan int64, 1)
				var all sync.WaitGroup
				serve := func(c net.Conn) {
					defer func() { _ = c.Close() }()
					br := bufio.NewReader(c)
					for {
						r, err := http.ReadRequest(br)
						if err != nil {
							return
						}
						if r.Header.Get("X-Early") == "" {
							_, _ = io.Copy(io.Discard, r.Body)
							_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+reply)
							continue
						}
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+reply)
						<-goOn
						n, _ := io.Copy(io.Discard, r.Body)
						rest <- n
					}
				}
				all.Go(func() {
					for {
						c, err := ln.Accept()
						if err != nil {
							return
						}
						all.Go(func() { serve(c) })
					}
				})
				var once sync.Once
				readOn := func() { once.Do(func() { close(goOn) }) }
				t.Cleanup(func() { readOn(); _ = ln.Close(); all.Wait() })
				f := newFixture(t, "http://"+ln.Addr().String(), func(r *Route) {
					d := r.Sender.(*directSender)
					d.dialer.net.Control = roomy
					streams := newDialer(nil)
					streams.net.Control = roomy
					d.other.(*transportSender).transport.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
						return asConn(streams.dial(ctx, addr, false))
					}
					r.BodyBuffer, r.Timeout = buffer, time.Second // for a write behind the older one
				})
				f.claim("j")
				r := f.request("j", "1", strings.NewReader(strings.Repeat("x", size)))
				r.Header.Set("X-Early", "1")
				want(t, f.send(r), 200, "forwarded", "", "applied")
				f.takeOver("j")
				want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
				readOn()
				if n := <-rest; n == size {
					t.Error("the upstream got the rest of the older write after the newer one")
				}
			})
		}
	}
}

// What the kernel holds is dropped with the connection, so the upstream has a part of the request,
// as if it had been cut.
func TestAWriteThatWasAnsweredWhileTheKernelHeldAPartOfItLingers(t *testing.T) {
	lc := net.ListenConfig{Control: tight}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			<-ended
		}
	}()
	t.Cleanup(func() { close(ended); _ = ln.Close(); <-accepted })
	f := newFixture(t, "http://"+ln.Addr().String(), func(r *Route) {
		r.Sender.(*directSender).dialer.net.Control = roomy
		r.Linger, r.TakeoverWait = time.Hour, 20*time.Millisecond
	})
	f.claim("j")
	want(t, f.send(f.request("j", "1", strings.NewReader(strings.Repeat("x", 200<<10)))), 200, "forwarded", "", "applied")
	f.takeOver("j")
	want(t, f.post("j", "2"), 503, "refused", "takeover-pending", "")
}
