package framing

import (
	"context"
	"io"
	"net"
	"sync/atomic"
)

// Options of a Conn.
type Options struct {
	// MaxHead bounds a request's head, in bytes; DefaultMaxHead if zero. It should be more
	// than the server's own limit, whose answer says what is wrong.
	MaxHead int
	// HTTP2 lets a connection through unjudged that begins with the preface of HTTP/2. Set it
	// where the server takes that for HTTP/2 too, and nowhere else.
	HTTP2 bool
	// Refusal is what is written, whole with its head, instead of what net/http would say by
	// itself, because of the fault or of one that only net/http finds. Nil leaves it its own words.
	Refusal func(remote net.Addr, fault Fault) []byte
}

// Conn is a connection whose requests are judged while they are read. It must be read by one
// goroutine at a time, as net/http does; everything else may be called concurrently.
type Conn struct {
	net.Conn
	judge judge
	// served counts the requests whose handlers asked for a verdict. Requests of one HTTP/1
	// connection are served one after the other.
	served uint32
	free   atomic.Bool // it speaks HTTP no more, or HTTP/2
	muted  atomic.Bool

	refusal func(net.Addr, Fault) []byte
	serving atomic.Bool // a handler runs
	refused bool
	cut     bool // the peer has ended its side
}

// NewConn judges what is read from c.
func NewConn(c net.Conn, opt Options) *Conn {
	out := &Conn{Conn: c, refusal: opt.Refusal}
	if out.judge.maxHead = opt.MaxHead; opt.MaxHead == 0 {
		out.judge.maxHead = DefaultMaxHead
	}
	if !opt.HTTP2 {
		out.judge.begin()
	}
	return out
}

// Read implements net.Conn. After a fault it delivers nothing, and returns the Fault.
func (c *Conn) Read(p []byte) (int, error) {
	if c.free.Load() {
		return c.Conn.Read(p)
	}
	if len(p) == 1 && c.muted.Load() {
		return 0, nil
	}
	if c.judge.state == stateOver {
		return c.ended(p)
	}
	n, err := c.Conn.Read(p)
	c.cut = err == io.EOF
	if k := c.judge.scan(p[:n]); k < n {
		if n, err = k, nil; k == 0 {
			return c.ended(p)
		}
	}
	if c.judge.state == statePass {
		c.free.Store(true)
	}
	return n, err
}

// ended is a read from a connection that delivers nothing any more. net/http gives up without a
// word when it finds that before the fourth byte of a later request, so the answer is given here. A
// single byte is the look ahead of a request that is being served, or is about to be: nothing that
// stands behind a request may end it.
func (c *Conn) ended(p []byte) (int, error) {
	f := Fault(c.judge.fault.Load())
	switch {
	case len(p) == 1 && c.refusal != nil:
		return 0, nil
	case c.refusal != nil && !c.serving.Load():
		c.refuse(f)
	}
	return 0, f
}

// Mute makes reads of a single byte return with nothing. That is how net/http looks ahead,
// in a goroutine of its own, once a handler has read its request to the end: so it learns
// that the caller hung up, and for a handler that would not act on it this costs more than
// the judging. Reading bodies of a known length never asks for a single byte here, since it
// goes through a larger buffer; whatever else is read must find it lifted again.
func (c *Conn) Mute(on bool) { c.muted.Store(on) }

// Release ends the judging: the connection was taken over from the HTTP server.
func (c *Conn) Release() { c.free.Store(true) }

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes our side only, so that what was written reaches a peer that still sends.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

type connKey struct{}

// NewContext returns a context for the requests of c, for http.Server.ConnContext.
func NewContext(ctx context.Context, c *Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnOf returns the Conn that a request came on, or nil if it came over HTTP/2 or was not
// judged.
func ConnOf(ctx context.Context) *Conn {
	c, ok := ctx.Value(connKey{}).(*Conn)
	if !ok || c.free.Load() {
		return nil
	}
	return c
}

// Verdict returns the Fault in the head of the request that is being served, or nil. A handler must
// ask exactly once per request, and before anything else: requests are counted by it. What was
// not judged has a fault too, so that no way around the judge leads past it. Without a Conn in the
// context, and on HTTP/2, there is nothing to judge.
func Verdict(ctx context.Context) error {
	c := ConnOf(ctx)
	if c == nil {
		return nil
	}
	c.served++
	if c.served <= c.judge.heads.Load() {
		return nil
	}
	if f := Fault(c.judge.fault.Load()); f != noFault {
		return f
	}
	return FaultNotJudged
}
