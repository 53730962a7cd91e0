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
	// set, else req.Body. After an error s.Touched says whether anything may
	// have reached the wire.
	Send(req *http.Request, s *Send) (*http.Response, error)
	// CloseIdle closes the connections that nobody uses.
	CloseIdle()
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
	// Body is the whole body of the request, if it is in memory.
	Body []byte
	// Once refuses to let the request out on a second connection after bytes of
	// it may have gone out on a first.
	Once bool
	// Stall bounds one write to the connection; zero means no bound.
	Stall time.Duration

	mu      sync.Mutex
	conn    *gateConn // the connection that the request is on
	passed  bool      // the gate let it through
	vetoed  bool
	aborted bool
	writing bool // a write that passed has not returned
	sent    bool // the kernel took a byte
	over    bool
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
		s.conn = c
	}
	s.mu.Unlock()
	// Also a connection that the request may not use carries it: so its Write
	// asks, and is refused.
	c.carry(s)
	return ok
}

// pass asks whether a byte of the request may go out on c. After nil, wrote must
// follow.
func (s *Send) pass(c *gateConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// wrote ends a write that pass allowed; n bytes were taken.
func (s *Send) wrote(n int64) {
	s.mu.Lock()
	s.writing = false
	s.sent = s.sent || n > 0
	s.mu.Unlock()
}
