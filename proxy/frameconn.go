package proxy

import (
	"bytes"
	"sync"
	"time"
)

// controlTime bounds the write of a frame that belongs to no request.
const controlTime = 10 * time.Second

// frameConn is an upstream connection that speaks HTTP/2 and carries one request at a
// time. The frames of a request pass its gate and are counted, as gateConn does it for
// HTTP/1; frames that only keep the connection going pass at any time.
type frameConn struct {
	*gateConn
	// out and held are used by Write only, which the client does not call twice at
	// once. held is the beginning of a frame's header of which the rest was not
	// written yet.
	out  outgoing
	held []byte
	// sent counts the bytes of the present request.
	sent int
	in   incoming // used by Read only

	// ready is closed when the upstream has shown that it speaks HTTP/2, or will
	// never do so.
	ready chan struct{}

	state    sync.Mutex
	decided  bool   // ready is closed
	started  bool   // it speaks HTTP/2
	leaving  bool   // the upstream takes no new streams
	stream   uint32 // of the present request
	carried  *Send  // that request
	whole    bool   // the request was written to its end
	replied  bool   // a part of the reply has come
	answered bool   // the reply has ended
}

func newFrameConn(g *gateConn) *frameConn {
	return &frameConn{gateConn: g, ready: make(chan struct{})}
}

// Write implements net.Conn. A request's first byte asks its gate, and the last is
// written only after SentWhole was told, see gateConn.Write.
func (c *frameConn) Write(b []byte) (int, error) {
	n := len(b)
	if len(c.held) > 0 {
		b = append(c.held, b...)
		c.held = nil
	}
	for len(b) > 0 {
		r := c.out.next(b)
		if r.n == 0 {
			c.held = bytes.Clone(b)
			break
		}
		var err error
		if r.request {
			err = c.writeRequest(b[:r.n], r)
		} else if err = c.writeControl(b[:r.n]); err == nil && c.out.agreed {
			c.decide(true)
		}
		if err != nil {
			return 0, err
		}
		b = b[r.n:]
	}
	return n, nil
}

func (c *frameConn) writeControl(b []byte) error {
	if err := c.bound(controlTime); err != nil {
		return err
	}
	n, err := c.Conn.Write(b)
	if c.records == nil {
		c.total.Add(int64(n)) // not before: it would hide as much of the request
	}
	return err
}

func (c *frameConn) writeRequest(b []byte, r run) error {
	c.mu.Lock()
	s, served := c.request, c.served
	c.mu.Unlock()
	if s == nil {
		return errVetoed
	}
	if c.begin(s, r.stream) {
		c.sent = 0
		if served && !s.begun() && (c.left() || !quiet(c.tcp)) {
			return errNotQuiet
		}
	}
	if err := c.bound(s.Stall); err != nil {
		return err
	}
	c.sent += len(b)
	if r.last {
		// As with HTTP/1: a takeover must not wait for an upstream that has not
		// even taken the body, so the end of a large one goes by itself.
		if n := len(b) - lastSize; n > 0 && c.sent > inlineSize {
			if err := c.writePiece(s, b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		if err := s.permit(c.gateConn); err != nil {
			return err
		}
		c.markWhole()
		// Before the write: once the kernel has the last byte the upstream may
		// act on it.
		s.Watcher.SentWhole()
		_, err := c.touch(s, b)
		return err
	}
	return c.writePiece(s, b)
}

func (c *frameConn) writePiece(s *Send, b []byte) error {
	if err := s.permit(c.gateConn); err != nil {
		return err
	}
	_, err := c.touch(s, b)
	return err
}

// begin notes the stream that a request is sent on and reports whether it is a new one.
func (c *frameConn) begin(s *Send, stream uint32) bool {
	c.state.Lock()
	defer c.state.Unlock()
	if c.stream == stream {
		return false
	}
	c.stream, c.carried, c.whole, c.replied, c.answered = stream, s, false, false, false
	return true
}

func (c *frameConn) markWhole() {
	c.state.Lock()
	c.whole = true
	c.state.Unlock()
}

// left reports whether the upstream takes no new streams.
func (c *frameConn) left() bool {
	c.state.Lock()
	defer c.state.Unlock()
	return c.leaving
}

// done reports whether the last request and its reply were whole and the connection can
// take another.
func (c *frameConn) done() bool {
	c.state.Lock()
	defer c.state.Unlock()
	return c.whole && c.answered && !c.leaving
}

// carries reports whether s is the request that was begun last.
func (c *frameConn) carries(s *Send) bool {
	c.state.Lock()
	defer c.state.Unlock()
	return c.carried == s
}

// unsent reports whether s is on the connection and was not written to its end.
func (c *frameConn) unsent(s *Send) bool {
	c.state.Lock()
	defer c.state.Unlock()
	return c.carried == s && !c.whole
}

// unfinished reports whether s is on the connection and it or its reply is not whole.
func (c *frameConn) unfinished(s *Send) bool {
	c.state.Lock()
	defer c.state.Unlock()
	return c.carried == s && (!c.whole || !c.answered)
}

// Read implements net.Conn.
func (c *frameConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	// Before the client sees it: whatever the client makes of a frame, it is known
	// by then what the frame said.
	c.in.read(b[:n], c)
	if err != nil {
		c.decide(false)
	}
	return n, err
}

// Close implements net.Conn.
func (c *frameConn) Close() error {
	c.decide(false)
	return c.gateConn.Close()
}

// decide notes, once, whether the upstream speaks HTTP/2.
func (c *frameConn) decide(speaks bool) {
	c.state.Lock()
	defer c.state.Unlock()
	if !c.decided {
		c.decided, c.started = true, speaks
		close(c.ready)
	}
}

// speaks reports whether the upstream has shown that it speaks HTTP/2.
func (c *frameConn) speaks() bool {
	c.state.Lock()
	defer c.state.Unlock()
	return c.started
}

func (c *frameConn) heard(stream uint32) {
	c.state.Lock()
	c.replied = c.replied || stream == c.stream
	c.state.Unlock()
}

func (c *frameConn) ended(stream uint32) {
	c.state.Lock()
	c.answered = c.answered || stream == c.stream
	c.state.Unlock()
}

// Two things prove that a request was not acted on, nor ever will be (RFC 9113, section
// 8.7): RST_STREAM with REFUSED_STREAM, and GOAWAY with a last stream below its own. From
// an upstream that has begun to answer neither is worth anything.

func (c *frameConn) reset(stream, code uint32) {
	c.state.Lock()
	s := c.carried
	proof := code == refusedStream && stream == c.stream && !c.replied
	c.state.Unlock()
	if proof && s != nil {
		s.refuse(c.gateConn)
	}
}

func (c *frameConn) goAway(last uint32) {
	c.state.Lock()
	c.leaving = true
	s := c.carried
	proof := c.stream > last && !c.replied
	c.state.Unlock()
	if proof && s != nil {
		s.refuse(c.gateConn)
	}
}
