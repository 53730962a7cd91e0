//go:build unix

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// tight is a Control for sockets that take little at a time.
func tight(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4096)
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
	})
}

// listenTight listens with such sockets.
func listenTight(t *testing.T) net.Listener {
	t.Helper()
	lc := net.ListenConfig{Control: tight}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func TestAWriteThatWasAnsweredEarlyCarriesNoByteOfAnother(t *testing.T) {
	ln := listenTight(t)
	answered, goOn, rest := make(chan struct{}), make(chan struct{}), make(chan []byte, 1)
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
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				continue
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
			close(answered)
			<-goOn
			b, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(c, "k")
			rest <- b
			return
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
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	f := newFixture(t, "http://"+ln.Addr().String(), func(r *Route) {
		r.Sender.(*directSender).dialer.net.Control = tight
	})
	// The pool's buffers are as large as they get, so the next request fits one.
	for range 32 {
		write := strings.Repeat("0", inlineSize-2<<10)
		b := make([]byte, 0, inlineSize-4<<10)
		headBuffers.Put(&b)
		want(t, f.send(f.request("grow", "1", strings.NewReader(write))), 200, "forwarded", "", "applied")
	}
	r := f.request("early", "1", strings.NewReader(strings.Repeat("a", inlineSize+1<<10)))
	r.Header.Set("X-Early", "1")
	got := f.start(r)
	<-answered
	for range 32 {
		want(t, f.send(f.request("other", "1", strings.NewReader(strings.Repeat("b", inlineSize-4<<10)))), 200, "forwarded", "", "applied")
	}
	close(goOn)
	if b := bytes.TrimLeft(<-rest, "a"); len(b) > 0 {
		t.Errorf("the upstream got %d bytes of other writes", len(b))
	}
	want(t, <-got, 200, "forwarded", "", "applied")
}
