package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"time"
)

const (
	// inlineSize is the largest request that is written before the reply is looked
	// for, in bytes: it fits the socket's buffers, so that an upstream which
	// answers without reading it can not block the write.
	inlineSize = 64 << 10
	// pieceSize is how much of a large request is written at once, in bytes, so
	// that a deadline bounds a pause and not the whole; firstSize is the first
	// piece, which is written before anybody reads, and lastSize the last one,
	// which is written only after it was told that nothing else is left.
	pieceSize = 64 << 10
	firstSize = 4 << 10
	lastSize  = 1 << 10
	// earlyTime is how long a reply is waited for after an upstream closed the
	// connection while the request was being written.
	earlyTime = time.Second
	// maxInterim bounds the 1xx replies to one request.
	maxInterim = 16
)

// directSender sends requests whose body is in memory with one write of its own on a
// connection of its own, in the caller's goroutine. No silent resend can exist here, it
// is known exactly when the last byte was taken, and the hop costs half as much. What it
// does not take goes to the other sender.
type directSender struct {
	dialer *dialer
	addr   string
	secure bool
	other  Sender
	idle   pool[*directConn]
}

// directConn is a connection with what was read ahead on it.
type directConn struct {
	*gateConn
	br *bufio.Reader
	// limit bounds what is read for one head.
	limit *io.LimitedReader
}

// NewSender returns the Sender for the HTTP/1.1 upstream at u. tlsConfig is used for
// https; nil means the system's roots. idle bounds the unused connections that each of
// its two ways keeps.
func NewSender(u *url.URL, tlsConfig *tls.Config, idle int) Sender {
	return &directSender{
		dialer: newDialer(tlsConfig), addr: hostPort(u), secure: u.Scheme == "https",
		other: NewTransportSender(tlsConfig, idle), idle: pool[*directConn]{most: idle},
	}
}

// Send implements Sender.
func (d *directSender) Send(req *http.Request, s *Send) (*http.Response, error) {
	if !d.Composes(req, s) {
		return d.other.Send(req, s)
	}
	ctx := req.Context()
	// Reading and writing below know nothing of the context, nor does the body.
	stop := func() bool { return true }
	if !s.Aborted {
		stop = context.AfterFunc(ctx, s.Abort)
	}
	res, err := d.send(ctx, req, s)
	if err != nil {
		stop()
		return nil, err
	}
	switch b := res.Body.(type) {
	case *directBodyReader:
		b.stop = stop
	case *directTunnel:
		b.stop = stop
	default:
		stop()
	}
	return res, nil
}

// Composes implements Composer.
func (*directSender) Composes(req *http.Request, s *Send) bool { return s.Once && req.Body == nil }

func (d *directSender) send(ctx context.Context, req *http.Request, s *Send) (*http.Response, error) {
	buf := headBuffers.Get().(*[]byte)
	defer headBuffers.Put(buf)
	out, err := compose((*buf)[:0], req, s)
	if err != nil {
		return nil, err
	}
	if cap(out) <= inlineSize {
		// A larger one is written beside reading, perhaps still after the return: it
		// must not fit a buffer that others get.
		*buf = out
	}
	for try := 0; ; try++ {
		var c *directConn
		var reused bool // whether it is still open shows at the first write
		if try < freshTries {
			c, reused = d.idle.take() // the last try does not trust what was idle
		}
		if !reused {
			if c, err = d.connect(ctx); err != nil {
				return nil, err
			}
		}
		if !s.moveTo(c.gateConn) {
			return nil, errors.Join(errSentBefore, c.Close())
		}
		res, whole, err := c.exchange(req, s, out)
		if err == nil {
			if !whole {
				s.fellShort() // before its connection is closed, which drops what is left
			}
			return d.body(c, res, whole), nil
		}
		_ = c.tcp.Close() // the error that counts is err
		// A connection that had been idle may have been closed at the other end.
		if s.Touched() || !reused || try == freshTries || s.Vetoed() || ctx.Err() != nil {
			return nil, err
		}
	}
}

// exchange writes the request and reads the reply's head. whole tells that the request
// was written to its end and arrived, else the connection is of no more use.
func (c *directConn) exchange(req *http.Request, s *Send, out []byte) (res *http.Response, whole bool, err error) {
	large := len(out) > inlineSize
	// The first byte is written before anything is read: what came while the connection
	// was idle answers nobody, and shows on the socket only until somebody reads it.
	if large {
		_, err = c.Write(out[:firstSize])
	} else {
		err = c.last(s, out)
	}
	if err != nil {
		c.hurry(s)
		if !s.Touched() {
			return nil, false, err
		}
		res, readErr := c.readHead(req, s)
		if readErr != nil {
			return nil, false, errors.Join(err, readErr)
		}
		return res, false, nil
	}
	if !large {
		res, err = c.readHead(req, s)
		return res, err == nil && s.Arrived(), err
	}
	// The rest of a large request is written beside reading, since the upstream may
	// answer before it has taken all of it.
	written := make(chan error, 1)
	go func() { written <- c.rest(s, out[firstSize:]) }()
	res, err = c.readHead(req, s)
	if err != nil {
		_ = c.tcp.Close() // ends the write
		return nil, false, errors.Join(err, <-written)
	}
	select {
	case failed := <-written:
		return res, failed == nil && s.Arrived(), nil
	default:
		return res, false, nil
	}
}

// rest writes what is left of a large request, the end of it by itself: once the kernel has
// the last byte the upstream may act, so that is told before.
func (c *directConn) rest(s *Send, out []byte) error {
	for len(out) > lastSize {
		n := min(pieceSize, len(out)-lastSize)
		if _, err := c.Write(out[:n]); err != nil {
			c.hurry(s)
			return err
		}
		out = out[n:]
	}
	err := c.last(s, out)
	if err != nil {
		c.hurry(s)
	}
	return err
}

// last writes the end of a request.
func (c *directConn) last(s *Send, out []byte) error {
	s.composed()
	_, err := c.Write(out)
	return err
}

// hurry is called after a write failed, so that a reader of the connection does not wait for
// long: either the upstream has answered early or it never will.
func (c *directConn) hurry(s *Send) {
	if s.Touched() {
		_ = c.tcp.SetReadDeadline(time.Now().Add(earlyTime)) // else the read fails at once
	} else {
		_ = c.tcp.Close() // nothing was sent, so nothing will be answered
	}
}

// connect dials. The request's Abort ends it, through the context.
func (d *directSender) connect(ctx context.Context) (*directConn, error) {
	g, err := d.dialer.dial(ctx, d.addr, d.secure)
	if err != nil {
		return nil, fmt.Errorf("connect to upstream: %w", err)
	}
	limit := &io.LimitedReader{R: g}
	return &directConn{gateConn: g, limit: limit, br: bufio.NewReaderSize(limit, 4<<10)}, nil
}

// readHead reads the reply's final head and passes 1xx replies on.
func (c *directConn) readHead(req *http.Request, s *Send) (*http.Response, error) {
	for range maxInterim {
		c.limit.N = maxReplyHeader
		if _, err := c.br.Peek(1); err == io.EOF {
			return nil, fmt.Errorf("read reply: %w", io.ErrUnexpectedEOF)
		} else if err != nil {
			return nil, fmt.Errorf("read reply: %w", err)
		}
		if res := readPlainHead(c.br, req); res != nil {
			c.limit.N = 1<<63 - 1
			return res, nil
		}
		res, err := http.ReadResponse(c.br, req)
		if err != nil {
			if c.limit.N <= 0 {
				err = errHeadTooLarge
			}
			return nil, fmt.Errorf("read reply: %w", err)
		}
		c.limit.N = 1<<63 - 1
		if res.StatusCode < 100 || res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols {
			return res, nil
		}
		if err := s.Watcher.Informational(res.StatusCode, textproto.MIMEHeader(res.Header)); err != nil {
			return nil, err
		}
	}
	return nil, errInterim
}

// body makes the connection come back to the pool once the reply was read, unless it is
// of no more use.
func (d *directSender) body(c *directConn, res *http.Response, whole bool) *http.Response {
	if res.StatusCode == http.StatusSwitchingProtocols {
		res.Body = &directTunnel{gateConn: c.gateConn, br: c.br}
		return res
	}
	owner := d
	if !whole || res.Close {
		owner = nil
	}
	b := &directBodyReader{source: res.Body, left: res.ContentLength, conn: c, pool: owner}
	if res.Body == http.NoBody || res.Body == nil && res.ContentLength == 0 {
		res.Body = http.NoBody
		_ = b.end(true) // the reply is complete either way
		return res
	}
	res.Body = b
	return res
}

// directTunnel is the body of a reply that changes protocols: the connection itself, with
// what came behind the head.
type directTunnel struct {
	*gateConn
	br   *bufio.Reader
	stop func() bool // ends the watch on the request's context
}

// Read implements io.Reader.
func (t *directTunnel) Read(p []byte) (int, error) { return t.br.Read(p) }

// Close implements io.Closer.
func (t *directTunnel) Close() error {
	t.stop()
	return t.gateConn.Close()
}

// exhausted reports whether nothing more than the reply was received. What is left in a
// TLS connection does not show on its socket, and would be taken for the next reply.
func (c *directConn) exhausted() bool {
	if c.br.Buffered() > 0 {
		return false
	}
	if c.records == nil {
		return true // the socket is looked at before the next request
	}
	if c.Conn.SetReadDeadline(longAgo) != nil {
		return false
	}
	_, err := c.br.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded) && c.Conn.SetReadDeadline(time.Time{}) == nil
}

// CloseIdle implements Sender.
func (d *directSender) CloseIdle() {
	d.idle.close()
	d.other.CloseIdle()
}
