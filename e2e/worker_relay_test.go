package e2e_test

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// relay is a wire between a client and a server that can be bad.
type relay struct {
	lis    net.Listener
	target string

	mu      sync.Mutex
	hangs   bool
	drops   bool // replies, after the server acted
	dropped int
	asked   int64 // bytes that the server's kernel has
	better  *sync.Cond
	conns   map[net.Conn]struct{}
	closed  bool
	running sync.WaitGroup
}

// newRelay starts a relay to the server at a URL.
func newRelay(t *testing.T, url string) *relay {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{lis: lis, target: strings.TrimPrefix(url, "http://"), conns: make(map[net.Conn]struct{})}
	r.better = sync.NewCond(&r.mu)
	r.running.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

func (r *relay) url() string { return "http://" + r.lis.Addr().String() }

func (r *relay) close() {
	_ = r.lis.Close()
	r.set(func() {
		r.closed = true
		for c := range r.conns {
			_ = c.Close()
		}
	})
	r.running.Wait()
}

// set changes what the wire is like.
func (r *relay) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	r.better.Broadcast()
}

// hang lets no byte through in either direction, without an error, until it is told otherwise.
func (r *relay) hang(yes bool) { r.set(func() { r.hangs = yes }) }

// drop breaks each connection when the server's reply comes.
func (r *relay) drop(yes bool) { r.set(func() { r.drops = yes }) }

func (r *relay) seen() (asked int64, dropped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked, r.dropped
}

func (r *relay) accept() {
	for {
		near, err := r.lis.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		if !r.keep(near, far) {
			_ = near.Close()
			_ = far.Close()
			return
		}
		r.running.Go(func() { r.pump(far, near, false) })
		r.running.Go(func() { r.pump(near, far, true) })
	}
}

func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.conns[c] = struct{}{}
	}
	return !r.closed
}

func (r *relay) pump(to, from net.Conn, reply bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !r.pass(reply) {
			return
		}
		_, werr := to.Write(buf[:n])
		if werr == nil && !reply {
			r.set(func() { r.asked += int64(n) })
		}
		if err != nil || werr != nil {
			return
		}
	}
}

// pass waits while the wire hangs, and reports whether the bytes may go on.
func (r *relay) pass(reply bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.hangs && !r.closed {
		r.better.Wait()
	}
	if reply && r.drops {
		r.dropped++
		return false
	}
	return !r.closed
}
