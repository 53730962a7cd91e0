package e2e_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// balancer stands for what stands before a proxy in production: one address that stays while the processes behind it come and
// go. It repeats nothing but a connection that was refused, of which no byte can have arrived.
type balancer struct {
	lis     net.Listener
	running sync.WaitGroup

	mu     sync.Mutex
	target string
	closed bool
	conns  map[net.Conn]struct{}
}

func newBalancer(t *testing.T, target string) *balancer {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{lis: lis, target: target, conns: make(map[net.Conn]struct{})}
	b.running.Go(func() {
		for {
			near, err := lis.Accept()
			if err != nil {
				return
			}
			b.running.Go(func() { b.serve(near) })
		}
	})
	t.Cleanup(b.close)
	return b
}

func (b *balancer) url() string { return "http://" + b.lis.Addr().String() }

// direct sends new connections to another process.
func (b *balancer) direct(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.target = target
}

func (b *balancer) close() {
	_ = b.lis.Close()
	b.mu.Lock()
	b.closed = true
	for c := range b.conns {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}

func (b *balancer) now() (target string, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.target, !b.closed
}

func (b *balancer) serve(near net.Conn) {
	defer near.Close()
	far := b.dial()
	if far == nil {
		return
	}
	defer far.Close()
	if !b.keep(near, far) {
		return
	}
	defer b.forget(near, far)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			if _, err := io.Copy(way[0], way[1]); err == nil {
				// One end has said all; the other may go on.
				_ = way[0].(*net.TCPConn).CloseWrite() // it may be gone
				return
			}
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
}

// dial connects to whoever is the target when one listens.
func (b *balancer) dial() net.Conn {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(patience); time.Now().Before(limit); <-tick.C {
		target, open := b.now()
		if !open {
			return nil
		}
		if c, err := net.Dial("tcp", target); err == nil {
			return c
		}
	}
	return nil
}

func (b *balancer) keep(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		b.conns[c] = struct{}{}
	}
	return !b.closed
}

func (b *balancer) forget(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		delete(b.conns, c)
	}
}
