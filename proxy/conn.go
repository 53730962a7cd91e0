package proxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxLook is how often the end of a tunnel looks whether the upstream has what was
	// written.
	maxLook = 25 * time.Millisecond
	// deliverTime is how long it waits for that where it can not look.
	deliverTime = time.Second
	// attendTime is how long a request waits until its connection is attended.
	attendTime = time.Second
)

// gateConn is an upstream connection whose writes pass the gate of the request that it
// carries, and are counted. The hooks of net/http/httptrace prove neither that a byte
// was sent nor that none was; only the connection's own Write does.
type gateConn struct {
	net.Conn
	tcp *net.TCPConn
	// records counts what a TLS connection wrote below us, handshake included;
	// nil without TLS. tls.Conn may report 0 bytes though part of a record went
	// out.
	records *atomic.Int64
	// total counts what was written without TLS, end is what written returned behind the
	// last bytes of a request. Both are counted after the write: what is in the kernel may
	// be more, never less.
	total, end atomic.Int64
	// bounded tells that a write deadline is set. Writes do not overlap.
	bounded bool
	// attended tells that somebody reads whenever nothing that came is left over, as
	// http.Transport does.
	attended bool

	mu      sync.Mutex
	request *Send
	begin   int64 // what written returned before it
	served  bool  // it carried another request before
	closed  bool
	lost    *Send         // the request of which a part was not taken by our kernel, or dropped by it
	reading bool          // a Read is under way
	heard   chan struct{} // closed when one begins or none will, if somebody waits
}

// carry makes s the request whose bytes are written from now on. A connection of which the
// kernel still holds a part of the one before is closed: from here on nobody else would, and
// that part would reach an upstream that reads on.
func (c *gateConn) carry(s *Send) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.request == s {
		return
	}
	if c.served = c.served || c.request != nil; c.served && !c.arrived() {
		_ = c.drop() // the next write says so
	}
	c.request, c.begin = s, c.written()
}

// release ends carrying s.
func (c *gateConn) release(s *Send) {
	c.mu.Lock()
	if c.request == s {
		c.request = nil
	}
	c.served = true
	c.mu.Unlock()
}

// Write implements net.Conn. The first write of a request asks its gate; on a veto not
// one byte goes out and the transport gives the connection up. A write that belongs to
// no request is refused.
func (c *gateConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	s, served := c.request, c.served
	c.mu.Unlock()
	if s == nil {
		return 0, errVetoed
	}
	if served && !s.begun() && (!c.attentive() || !quiet(c.tcp)) {
		return 0, errNotQuiet
	}
	if err := c.bound(s.Stall); err != nil {
		return 0, err
	}
	last, err := s.pass(c, len(b))
	if err != nil {
		return 0, err
	}
	if last {
		// Told before the write and not after it: once the kernel has the last
		// byte the upstream may act on it, and a takeover has to wait for the
		// reply. Until then it would cut a write that may just be done.
		s.Watcher.SentWhole()
	}
	return c.touch(s, b)
}

// touch writes bytes of s that were let through.
func (c *gateConn) touch(s *Send, b []byte) (int, error) {
	before := c.written()
	n, err := c.Conn.Write(b)
	if c.records == nil {
		c.total.Add(int64(n))
	}
	after := c.written()
	c.end.Store(after)
	if err != nil {
		c.mu.Lock()
		c.lost = s
		c.mu.Unlock()
	}
	s.wrote(after > before)
	return n, err
}

// written is how much was written, in bytes, below TLS where there is that.
func (c *gateConn) written() int64 {
	if c.records == nil {
		return c.total.Load()
	}
	return c.records.Load()
}

// delivered reports whether the upstream's kernel has the requests that were written: what lies
// in ours would reach an upstream that reads on, after whatever is sent on another connection
// meanwhile. What came behind a request, frames of HTTP/2, does not count.
func (c *gateConn) delivered() bool {
	behind := c.written() - c.end.Load() // before it looks: what is written meanwhile is not taken for acknowledged
	left, _, known, err := unread(c.tcp)
	return err == nil && (!known || int64(left) <= behind) // where nobody can look, the reply has to do
}

// arrived is delivered for the present request. One that fits lastSize leaves with its head, and
// is not asked for: the question costs a system call. The lock is held.
func (c *gateConn) arrived() bool {
	return c.closed || c.written()-c.begin <= lastSize || c.delivered()
}

// has reports whether the upstream's kernel has all that was written of s. It has if another
// request is carried, or carry would have closed the connection.
func (c *gateConn) has(s *Send) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost != s && (c.request != s || c.arrived())
}

// Read implements net.Conn.
func (c *gateConn) Read(b []byte) (int, error) {
	if !c.attended {
		return c.Conn.Read(b)
	}
	c.listen(true)
	n, err := c.Conn.Read(b)
	c.listen(false)
	return n, err
}

func (c *gateConn) listen(on bool) {
	c.mu.Lock()
	c.reading = on
	if on {
		c.wake()
	}
	c.mu.Unlock()
}

// wake ends the wait of attentive. The lock is held.
func (c *gateConn) wake() {
	if c.heard != nil {
		close(c.heard)
		c.heard = nil
	}
}

// attentive reports whether whoever reads waits for what comes next. http.Transport gives
// a connection to the next request before it has looked whether anything came behind the
// last reply, and if something has, takes that for the next one's reply.
func (c *gateConn) attentive() bool {
	if !c.attended {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reading && !c.closed {
		c.heard = make(chan struct{})
		heard := c.heard
		c.mu.Unlock()
		wait := time.NewTimer(attendTime)
		select {
		case <-heard:
		case <-wait.C:
		}
		wait.Stop()
		c.mu.Lock()
	}
	return c.reading && !c.closed
}

// bound bounds the next write, or lifts the bound of an earlier request.
func (c *gateConn) bound(d time.Duration) error {
	if d == 0 && !c.bounded {
		return nil
	}
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	c.bounded = d > 0
	return c.Conn.SetWriteDeadline(at)
}

// Close implements net.Conn. A connection that is idle is closed politely; one that
// still carries a request is reset, see newGateConn.
func (c *gateConn) Close() error {
	c.mu.Lock()
	polite := c.request == nil && !c.closed
	c.closing()
	c.mu.Unlock()
	if polite {
		_ = c.tcp.SetLinger(-1) // best effort: a reset is impolite, not wrong
	}
	return c.Conn.Close()
}

// CloseWrite ends our side, so that the upstream sees the end of what was written.
func (c *gateConn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite() // TCP and TLS have it
}

// deliver closes the connection once the upstream's kernel has taken what was written, and
// reports whether it has. It waits for that until somebody resets the connection: what is
// left then is dropped. A close that lingers would not do: when its time is over the kernel
// goes on delivering by itself, behind whatever is sent after.
func (c *gateConn) deliver() bool {
	for wait := time.Millisecond; ; wait = min(2*wait, maxLook) {
		left, open, known, err := unread(c.tcp)
		if err != nil {
			return false
		}
		if !known {
			_ = c.tcp.SetLinger(int(deliverTime / time.Second)) // the best that is left
		}
		if left == 0 {
			break
		}
		if !open {
			// The upstream is gone. It need not have heard that we have ended too.
			return left <= c.farewell()
		}
		time.Sleep(wait)
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	_ = c.tcp.Close() // the error says that it was closed already
	return true
}

// farewell is the most that the end of what is written counts, in bytes: that of TCP, or
// an alert of TLS.
func (c *gateConn) farewell() int {
	if c.records != nil {
		return 64
	}
	return 1
}

// reset closes the connection at once if it still carries s.
func (c *gateConn) reset(s *Send) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.request == s {
		_ = c.drop() // the error says that it was closed already
	}
}

// abandon closes the connection at once, whatever it carries.
func (c *gateConn) abandon() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drop()
}

// drop closes the socket itself, so it does not wait for a TLS connection that is being
// written. The kernel drops what it holds. The lock is held.
func (c *gateConn) drop() error {
	c.closing()
	return c.tcp.Close()
}

// closing notes that the connection is closed now, and what is lost with it. The lock is held.
func (c *gateConn) closing() {
	if !c.arrived() {
		c.lost = c.request
	}
	c.closed = true
	c.wake()
}

// newGateConn wraps a dialled connection. SO_LINGER 0 is set for its whole life: if the
// process is killed or the request is cut, the kernel drops what it has not sent yet
// instead of delivering it after the successor's write.
func newGateConn(tcp *net.TCPConn) (*gateConn, error) {
	if err := tcp.SetLinger(0); err != nil {
		return nil, err
	}
	return &gateConn{Conn: tcp, tcp: tcp}, nil
}

// countingConn counts what is written to it.
type countingConn struct {
	net.Conn
	n atomic.Int64
}

// Write implements net.Conn.
func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.n.Add(int64(n))
	return n, err
}
