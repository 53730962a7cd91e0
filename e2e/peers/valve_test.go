//go:build linux

package peers_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// valve is the network between the proxy and a peer's server: a relay that notes what passes and can stand still at a
// chosen byte. So a takeover comes in the middle of a request and not somewhere near it.
type valve struct {
	t        *testing.T
	listener net.Listener
	network  string // of the server
	address  string
	running  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]bool
	requests []string // method and target of all that passed, and some headers, in order of arrival
	bytes    int64    // that passed towards the server
	armed    []*hold
	all      []*hold
}

// hold is a place at which the valve stands still, once.
type hold struct {
	request string        // part of the request line; empty: whatever comes next
	after   int64         // bytes behind it that still pass
	reply   bool          // the reply is held and the request passes
	reached chan struct{} // closed when the valve stands still
	opened  chan struct{} // closed when it goes on
	once    sync.Once
}

// openValve starts a relay to a server.
func openValve(t *testing.T, network, address string) *valve {
	t.Helper()
	// A large buffer would take in the rest of an upload that is held.
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10)
		}), err)
	}}
	lis, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{t: t, listener: lis, network: network, address: address, conns: map[net.Conn]bool{}}
	v.running.Go(v.serve)
	t.Cleanup(v.close)
	return v
}

// URL is where the proxy finds the server.
func (v *valve) URL() string { return "http://" + v.listener.Addr().String() }

// holdRequest lets the next request whose line contains this text stand still after so many bytes behind its line.
func (v *valve) holdRequest(line string, after int64) *hold {
	return v.arm(&hold{request: line, after: after})
}

// holdReply lets the reply to the next such request stand still.
func (v *valve) holdReply(line string) *hold { return v.arm(&hold{request: line, reply: true}) }

// holdBytes lets the connection on which the next bytes come stand still after so many of them, whatever they are.
func (v *valve) holdBytes(after int64) *hold { return v.arm(&hold{after: after}) }

// holdBytesOfReply lets the reply stand still on the connection on which the next bytes come.
func (v *valve) holdBytesOfReply() *hold { return v.arm(&hold{reply: true}) }

func (v *valve) arm(h *hold) *hold {
	h.reached, h.opened = make(chan struct{}), make(chan struct{})
	v.mu.Lock()
	defer v.mu.Unlock()
	v.armed = append(v.armed, h)
	v.all = append(v.all, h)
	return h
}

// wait returns when the valve stands still.
func (h *hold) wait(t *testing.T) {
	t.Helper()
	select {
	case <-h.reached:
	case <-time.After(patience):
		t.Fatalf("no request came as far as %q and %d bytes", h.request, h.after)
	}
}

// open lets what was held go on.
func (h *hold) open() { h.once.Do(func() { close(h.opened) }) }

// stand is called by the relay at the place.
func (h *hold) stand() {
	close(h.reached)
	<-h.opened
}

// count is how many requests passed whose line contains a text.
func (v *valve) count(line string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, r := range v.requests {
		if strings.Contains(r, line) {
			n++
		}
	}
	return n
}

// lines is every request that passed.
func (v *valve) lines() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.requests, "\n")
}

// meet notes a request line and returns the hold of its reply, if there is one.
func (v *valve) meet(line string) *hold {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.requests = append(v.requests, line)
	return v.take(func(h *hold) bool { return h.reply && h.request != "" && strings.Contains(line, h.request) })
}

// next returns the hold that is meant for whatever comes next, if there is one.
func (v *valve) next() *hold {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.take(func(h *hold) bool { return h.request == "" })
}

// within returns the hold that a request meets in these bytes behind its line, if there is one.
func (v *valve) within(line string, from, to int64) *hold {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.take(func(h *hold) bool {
		return !h.reply && h.request != "" && strings.Contains(line, h.request) && from <= h.after && h.after < to
	})
}

func (v *valve) take(is func(*hold) bool) *hold {
	i := slices.IndexFunc(v.armed, is)
	if i < 0 {
		return nil
	}
	h := v.armed[i]
	v.armed = slices.Delete(v.armed, i, i+1)
	return h
}

// passed is how many bytes have passed towards the server.
func (v *valve) passed() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.bytes
}

func (v *valve) add(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.bytes += int64(n)
}

func (v *valve) note(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.requests = append(v.requests, line)
}

func (v *valve) serve() {
	for {
		in, err := v.listener.Accept()
		if err != nil {
			return // closed
		}
		if !v.track(in) {
			return
		}
		v.running.Go(func() { v.relay(in) })
	}
}

func (v *valve) track(c net.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		_ = c.Close()
		return false
	}
	v.conns[c] = true
	return true
}

func (v *valve) drop(c net.Conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.conns, c)
	_ = c.Close()
}

func (v *valve) relay(in net.Conn) {
	defer v.drop(in)
	var d net.Dialer
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	out, err := d.DialContext(ctx, v.network, v.address)
	cancel()
	if err != nil || !v.track(out) {
		return
	}
	defer v.drop(out)
	c := &relayed{valve: v}
	var both sync.WaitGroup
	both.Go(func() { pass(out, in, c.up) })
	both.Go(func() { pass(in, out, c.down) })
	both.Wait()
}

// relayed is one connection through the valve.
type relayed struct {
	valve *valve
	// Of the way up.
	line    []byte // the last one so far
	request string // the last request line, and how many bytes came behind it
	since   int64
	raw     *hold // met by whatever came, and how many bytes may still pass
	rawLeft int64

	mu    sync.Mutex
	reply *hold
}

// requestLine is behind the end of the body before, if there is one.
var requestLine = regexp.MustCompile(`([A-Z]+ /\S*) HTTP/1\.[01]\r\n$`)

// noted is a header that tells how a body is written.
var noted = regexp.MustCompile(`(?i)^((?:x-amz-content-sha256|content-encoding|transfer-encoding|expect): .*)\r\n$`)

// up returns how much of a chunk may pass, and what to wait for behind it.
func (c *relayed) up(chunk []byte) (n int, h *hold) {
	defer func() { c.valve.add(n) }()
	if c.raw == nil {
		if h := c.valve.next(); h != nil && h.reply {
			c.holdsReply(h)
		} else if h != nil {
			c.raw, c.rawLeft = h, h.after
		}
	}
	if c.raw != nil {
		n = int(min(c.rawLeft, int64(len(chunk))))
		if c.rawLeft -= int64(n); n < len(chunk) {
			h, c.raw = c.raw, nil
		}
		return n, h
	}
	for n < len(chunk) {
		i := bytes.IndexByte(chunk[n:], '\n') + 1
		if i == 0 {
			i = len(chunk) - n
		}
		if c.request != "" {
			if h := c.valve.within(c.request, c.since, c.since+int64(i)); h != nil {
				part := int(h.after - c.since)
				c.take(chunk[n : n+part])
				return n + part, h
			}
		}
		c.take(chunk[n : n+i])
		n += i
	}
	return n, nil
}

// take looks at bytes that pass, up to the end of a line at most.
func (c *relayed) take(piece []byte) {
	c.since += int64(len(piece))
	if c.line = append(c.line, piece...); len(c.line) == 0 || c.line[len(c.line)-1] != '\n' {
		if len(c.line) > 16<<10 {
			c.line = append(c.line[:0], c.line[len(c.line)-(8<<10):]...) // of a body: its end may stand before a request line
		}
		return
	}
	if !bytes.HasSuffix(c.line, []byte("\r\n")) {
		// Of a body. Without this the expressions would cost more than all else.
	} else if m := requestLine.FindSubmatch(c.line); m != nil {
		c.request, c.since = string(m[1]), 0
		c.holdsReply(c.valve.meet(c.request))
	} else if m := noted.FindSubmatch(c.line); m != nil {
		c.valve.note(string(m[1]))
	}
	c.line = c.line[:0]
}

func (c *relayed) holdsReply(h *hold) {
	if h != nil {
		c.mu.Lock()
		c.reply = h
		c.mu.Unlock()
	}
}

func (c *relayed) down(chunk []byte) (n int, h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, c.reply = c.reply, nil; h != nil {
		return 0, h
	}
	return len(chunk), nil
}

// pass relays one direction. An end is passed on as an end, and a reset as a reset.
func pass(dst, src net.Conn, gate func([]byte) (int, *hold)) {
	buf := make([]byte, 16<<10)
	for {
		n, err := src.Read(buf)
		for chunk := buf[:n]; len(chunk) > 0; {
			may, h := gate(chunk)
			if _, err := dst.Write(chunk[:may]); err != nil {
				reset(src)
				return
			}
			if chunk = chunk[may:]; h != nil {
				h.stand()
			}
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			if half, ok := dst.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // the other side may be gone
			}
		default:
			reset(dst)
		}
		return
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // else Close says goodbye
	}
	_ = c.Close()
}

func (v *valve) close() {
	_ = v.listener.Close()
	v.mu.Lock()
	v.closed = true
	for c := range v.conns {
		_ = c.Close()
	}
	holds := v.all
	v.mu.Unlock()
	for _, h := range holds {
		h.open()
	}
	v.running.Wait()
}

// connections is how many are open, on both sides together.
func (v *valve) connections() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.conns)
}
