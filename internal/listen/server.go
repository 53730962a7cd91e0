package listen

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/framing"
)

const (
	// headTimeout bounds the reception of a request's head.
	headTimeout = 10 * time.Second
	// keepTimeout bounds how long a caller's connection is kept without a request.
	keepTimeout = 120 * time.Second

	// maxStreams bounds the requests at a time on one connection of HTTP/2.
	maxStreams = 250
	// streamWindow and connWindow are how much of the bodies on one connection of HTTP/2 is
	// taken before somebody reads it, in bytes. An upload that waits for a takeover must not
	// hold up the others, and a caller must not make the proxy keep much.
	// It is HTTP/2's own beginning (RFC 9113, section 6.9.2), and less than the 64 KiB that may
	// be taken of a body that is refused: what a caller may send before its answer it does send.
	streamWindow = 64<<10 - 1
	connWindow   = 2 << 20
	// pingAfter and pingTimeout find a dead peer on HTTP/2: one that says nothing for this
	// long is asked, and has to answer.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	// writeStall bounds how long a connection of HTTP/2 takes no byte.
	writeStall = 60 * time.Second
)

// NewServer returns a server for the connections of a [Listener] that was made with the same
// options. Its handler finds Request.TLS set if and only if the request came over TLS, and learns
// of faults in the framing by framing.Verdict.
func NewServer(h http.Handler, opt Options) *http.Server {
	s := &http.Server{
		Handler:           &front{h},
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       keepTimeout,
		MaxHeaderBytes:    opt.MaxHead,
		// OPTIONS * and everything else is the handler's to answer.
		DisableGeneralOptionsHandler: true,
		ConnContext:                  connContext,
		ConnState:                    connState,
		Protocols:                    new(http.Protocols),
		HTTP2:                        HTTP2(),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(opt.TLS != nil)
	// With prior knowledge only. An upgrade to h2c would leave the judge and the fence
	// behind, and net/http offers none (RFC 9113, section 3.1, has dropped it).
	s.Protocols.SetUnencryptedHTTP2(opt.TLS == nil)
	return s
}

// HTTP2 are the bounds of a server for its connections of HTTP/2.
func HTTP2() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreams,
		MaxReceiveBufferPerStream:     streamWindow,
		MaxReceiveBufferPerConnection: connWindow,
		SendPingTimeout:               pingAfter,
		PingTimeout:                   pingTimeout,
		WriteByteTimeout:              writeStall,
	}
}

// connContext gives the requests of a connection what is known of it.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if j := judged(c); j != nil {
		return framing.NewContext(ctx, j)
	}
	return ctx
}

// judged is the judge's part of a connection of the server; nil for HTTP/2 over TLS, which net/http
// itself knows to be that.
func judged(c net.Conn) *framing.Conn {
	switch c := c.(type) {
	case *framing.Conn:
		return c
	case *secure:
		return c.Conn
	}
	return nil
}

// connState follows what a connection is used for.
func connState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateHijacked:
		if j := judged(c); j != nil {
			j.Release()
		}
	case http.StateActive, http.StateIdle:
		if j := judged(c); j != nil && state == http.StateIdle {
			j.Rest()
		}
		if own := registered(c); own != nil {
			own.rest(state == http.StateIdle)
		}
	}
}

// registered is what a connection of the server is in the register.
func registered(c net.Conn) *conn {
	for {
		switch under := c.(type) {
		case *conn:
			return under
		case *framing.Conn:
			c = under.Conn
		case *secure:
			c = under.Conn.Conn
		case *tls.Conn:
			c = under.NetConn()
		default:
			return nil
		}
	}
}

// front stands before the handler.
type front struct{ next http.Handler }

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c := framing.ConnOf(r.Context()); c != nil && !c.Serve() {
		return
	}
	if r.ProtoMajor == 1 && (r.Header["Upgrade"] != nil || r.Method == http.MethodConnect) {
		// What follows is not HTTP, or was not judged. Who takes the connection over
		// writes his own head.
		w.Header()["Connection"] = []string{"close"}
	}
	f.next.ServeHTTP(w, r)
}
