package proxy

import (
	"context"
	"net/http"
	"net/textproto"
	"sync"
	"time"
)

// Sender sends one request to an upstream, once. It never repeats a request of which
// a byte has gone out, follows no redirect, and adds no coding of its own.
type Sender interface {
	// Send sends req and returns the reply's head. The body is s.Body if that is
	// set, else req.Body. The Body of a reply with status 101 is the connection, to be
	// written as well: an io.Writer with a CloseWrite, and what is written there
	// belongs to the request and passes its gate. After an error s.Touched says whether anything may
	// have reached the wire.
	Send(req *http.Request, s *Send) (*http.Response, error)
	// CloseIdle closes the connections that nobody uses.
	CloseIdle()
}

// Composer is a Sender that writes the head of a request itself, and so can do without a
// map of its headers.
type Composer interface {
	Sender
	// Composes reports whether it does so for this one; Send.Once and the body must
	// have been set.
	Composes(req *http.Request, s *Send) bool
}

// Watcher is told how a request progresses. Its methods are called from the sender's
// goroutines.
type Watcher interface {
	// Gate is asked immediately before the first byte; false lets none through.
	Gate() bool
	// SentWhole is called when the whole request has been written.
	SentWhole()
	// Informational is called for each 1xx reply; an error ends the request.
	Informational(code int, header textproto.MIMEHeader) error
}

// Send is the state of one request on its way. The sender binds it to a connection;
// its owner may Abort it at any time. All methods may be called concurrently.
type Send struct {
	// Watcher must be set before the request is sent, and Cancel must end the
	// request's context.
	Watcher Watcher
	Cancel  context.CancelCauseFunc
	// Aborted tells that whoever ends that context calls Abort too, so that a sender
	// need not watch it.
	Aborted bool
	// Body is the whole body of the request, if it is in memory and does not
	// come from the request.
	Body []byte
	// Fields appends the request's header lines, in place of its Header. Only a
	// Composer takes it.
	Fields interface {
		AppendFields(b []byte) ([]byte, error)
	}
	// Once refuses to let the request out on a second connection after bytes of
	// it may have gone out on a first.
	Once bool
	// Stall bounds one write to the connection; zero means no bound.
	Stall time.Duration
	// Window bounds the time in which an upstream that speaks HTTP/2 takes nothing of the
	// body because its windows are closed; zero means no bound.
	Window time.Duration

	mu      sync.Mutex
	whole   wholeness
	conn    *gateConn // the connection that the request is on
	passed  bool      // the gate let it through
	vetoed  bool
	aborted bool
	writing bool // a write that passed has not returned
	sent    bool // the kernel took a byte
	short   bool // a write failed, or the reply came before the last one ended
	refused bool // the upstream said that it has not processed it
	over    bool
	written chan struct{} // closed when writing ends, if somebody waits
}

// Touched reports whether a byte of the request reached the wire or may still do so.
// False is proof that none did and, after Abort, that none ever will.
func (s *Send) Touched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent || s.writing
}

// Vetoed reports whether the gate refused the request.
func (s *Send) Vetoed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vetoed
}

// Refused reports whether the upstream proved that it has not acted on the request and
// never will, although bytes of it may have reached it.
func (s *Send) Refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// refuse notes that proof, if it came on the connection that the request is on.
func (s *Send) refuse(c *gateConn) {
	s.mu.Lock()
	s.refused = s.refused || s.conn == c
	s.mu.Unlock()
}

// Abort breaks off the request: its connection is reset, so that what the kernel still
// holds of it is dropped, and no further byte of it can be written anywhere. When Abort
// returns the connection is closed. After Done it does nothing.
func (s *Send) Abort() {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	s.aborted = true
	c := s.conn
	s.mu.Unlock()
	if c != nil {
		c.reset(s)
	}
}

// Finish closes the connection of a request that both sides have ended, once the upstream
// has all that was written, and reports whether it has. Abort ends the wait. When it
// returns true nothing that was written is left on this side; after false, Abort.
func (s *Send) Finish() bool {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	return c == nil || c.deliver()
}

// drop closes the connection that the request was put on, which is of no use for it.
func (s *Send) drop() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	c.reset(s)
}

// Quiesce waits until no write of the request is under way. Call it after Abort.
func (s *Send) Quiesce() {
	s.mu.Lock()
	if !s.writing {
		s.mu.Unlock()
		return
	}
	if s.written == nil {
		s.written = make(chan struct{})
	}
	written := s.written
	s.mu.Unlock()
	<-written
}

// Rests waits until no write of the request is under way, at most d, and reports whether
// that is so.
func (s *Send) Rests(d time.Duration) bool {
	s.mu.Lock()
	if !s.writing {
		s.mu.Unlock()
		return true
	}
	if s.written == nil {
		s.written = make(chan struct{})
	}
	written := s.written
	s.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-written:
		return true
	case <-timer.C:
		return false
	}
}

// Arrived reports whether the upstream's kernel has all that was written of the request, which it
// has if the upstream has read it. What fits lastSize leaves with its head and is not asked for.
func (s *Send) Arrived() bool {
	s.mu.Lock()
	c, n, short := s.conn, s.whole.total, s.short
	s.mu.Unlock()
	return c == nil || !short && (n <= lastSize || c.delivered())
}

// fellShort notes that the request is not known to have been written to its end, and its
// connection is of no more use.
func (s *Send) fellShort() {
	s.mu.Lock()
	s.short = true
	s.mu.Unlock()
}

// Done tells that the exchange is over; its connection may carry other requests.
func (s *Send) Done() {
	s.mu.Lock()
	s.over = true
	c := s.conn
	s.mu.Unlock()
	if c != nil {
		c.release(s)
	}
}

// moveTo puts the request on a connection. It returns false if the request may not be
// sent there because it may have been sent elsewhere.
func (s *Send) moveTo(c *gateConn) bool {
	s.mu.Lock()
	ok := s.conn == nil || !s.Once || !s.sent && !s.writing
	if ok {
		s.conn, s.refused, s.short = c, false, false
	}
	s.mu.Unlock()
	// Also a connection that the request may not use carries it: so its Write
	// asks, and is refused.
	c.carry(s)
	return ok
}

// pass asks whether the next n bytes of the request may go out on c. After nil, wrote
// must follow. last tells that they are the last ones.
func (s *Send) pass(c *gateConn, n int) (last bool, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.permitted(c); err != nil {
		return false, err
	}
	return s.whole.next(n), nil
}

// permit is pass for a connection that knows by itself which bytes are the last.
func (s *Send) permit(c *gateConn, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.permitted(c); err != nil {
		return err
	}
	s.whole.total += int64(n)
	return nil
}

func (s *Send) permitted(c *gateConn) error {
	switch {
	case s.aborted || s.vetoed || s.over:
		return errVetoed
	case s.conn != c:
		return errSentBefore
	case !s.passed && !s.Watcher.Gate():
		s.vetoed = true
		return errVetoed
	}
	s.passed, s.writing = true, true
	return nil
}

// begun reports whether the gate has let the request through.
func (s *Send) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passed
}

// wrote ends a write that pass allowed; touched tells whether any byte went out.
func (s *Send) wrote(touched bool) {
	s.mu.Lock()
	s.writing = false
	s.sent = s.sent || touched
	if s.written != nil {
		close(s.written)
		s.written = nil
	}
	s.mu.Unlock()
}

// wholeness finds out which write to the connection is a request's last. The transport's
// WroteRequest hook does not tell: it is called when the request is composed, and what is
// left in the transport's buffer is written after that.
type wholeness struct {
	total    int64 // bytes written
	head     int64 // of them, before the body was first read
	length   int64 // of the body, if it is known
	began    bool  // the body was read, so the head has been flushed
	composed bool  // one more write, and that is all
	told     bool
}

// next counts a write of n bytes and reports, once, that it is the last.
func (w *wholeness) next(n int) bool {
	w.total += int64(n)
	last := w.composed
	if w.began && w.length > 0 {
		last = w.total-w.head == w.length
	}
	if !last || w.told {
		return false
	}
	w.told = true
	return true
}

// bodyBegins is called when a streamed body is first read. The transport has flushed
// the head by then. length is negative if it is not known.
func (s *Send) bodyBegins(length int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.whole.began {
		s.whole.began, s.whole.head, s.whole.length = true, s.whole.total, length
	}
}

// composed is called when one more write sends all that is left.
func (s *Send) composed() {
	s.mu.Lock()
	s.whole.composed = true
	s.mu.Unlock()
}
