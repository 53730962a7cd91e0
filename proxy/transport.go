package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"time"
)

const (
	// idleConnTimeout is how long an unused upstream connection is kept.
	idleConnTimeout = 60 * time.Second
	// continueTimeout is how long a streamed body waits for the upstream's 100
	// Continue.
	continueTimeout = time.Second
	// maxReplyHeader bounds the head of a reply, in bytes.
	maxReplyHeader = 1 << 20
	// freshTries is how often a request that has not sent a byte is tried again
	// because the idle connection that was picked for it had just been closed.
	freshTries = 2
)

// transportSender sends over http.Transport, whose willingness to repeat a request (on
// a reused connection that dies, for GET and for anything that carries an
// Idempotency-Key) it takes away.
type transportSender struct {
	transport *http.Transport
}

// NewTransportSender returns a Sender for HTTP/1.1 upstreams that leaves everything to
// http.Transport. tlsConfig is used for https; nil means the system's roots. idle bounds
// the unused connections that are kept.
func NewTransportSender(tlsConfig *tls.Config, idle int) Sender {
	d := newDialer(tlsConfig)
	return &transportSender{transport: &http.Transport{
		// No environment proxy: a write must not take a way that nobody
		// configured.
		Proxy: nil,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return asConn(d.dial(ctx, addr, false))
		},
		DialTLSContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return asConn(d.dial(ctx, addr, true))
		},
		DisableCompression:     true,
		MaxIdleConns:           idle,
		MaxIdleConnsPerHost:    idle,
		IdleConnTimeout:        idleConnTimeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxReplyHeader,
		Protocols:              http1Only(),
	}}
}

func http1Only() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

// CloseIdle implements Sender.
func (t *transportSender) CloseIdle() { t.transport.CloseIdleConnections() }

// asConn makes a new connection the transport's.
func asConn(c *gateConn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err // a nil *gateConn would be a net.Conn that is not nil
	}
	c.attended = true
	return c, nil
}

// memory is a body in memory of which it is known when the transport began to read it.
type memory struct {
	s *Send
	r *bytes.Reader
}

// Read implements io.Reader.
func (m *memory) Read(p []byte) (int, error) {
	m.s.bodyBegins(m.r.Size())
	return m.r.Read(p)
}

// Close implements io.Closer.
func (m *memory) Close() error { return nil }

// Send implements Sender.
func (t *transportSender) Send(req *http.Request, s *Send) (*http.Response, error) {
	reused := false
	trace := &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			reused = info.Reused
			if !s.moveTo(info.Conn.(*gateConn)) {
				// The transport repeats the request by itself; its write
				// would be refused, so spare it the connections.
				s.Cancel(errSentBefore)
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				s.composed()
			}
		},
		GotFirstResponseByte: func() {
			if !s.Touched() {
				s.drop() // nothing of it may be taken for a reply to this request
			}
		},
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			if !s.Touched() {
				return errNotQuiet
			}
			return s.Watcher.Informational(code, header)
		},
	}
	ctx := httptrace.WithClientTrace(req.Context(), trace)
	req = req.WithContext(ctx)
	body := req.Body
	if req.TransferEncoding != nil {
		req.Body = http.NoBody // else the transport forgets that it is to be announced
	}
	for try := 0; ; try++ {
		if len(s.Body) > 0 {
			// A reader of its own for each try: the last one's may still be
			// in use by a goroutine of the transport.
			req.Body = &memory{s: s, r: bytes.NewReader(s.Body)}
		}
		var u *upload
		if body != nil {
			u = &upload{body: body, s: s}
			req.Body = u
		}
		res, err := t.transport.RoundTrip(req)
		if err == nil && s.Touched() {
			return res, nil
		}
		if err == nil {
			// It came behind another reply.
			s.drop()
			err = errors.Join(errNotQuiet, res.Body.Close())
		}
		u.stop()
		// A request of which no byte was taken has not been sent, however it
		// failed. Only a connection that had been idle is worth another try.
		again := reused && try < freshTries && !s.Touched() && ctx.Err() == nil && !u.used()
		if !again {
			if body != nil {
				_ = body.Close() // nobody reads it any more
			}
			return nil, err
		}
		if try == freshTries-1 {
			t.transport.CloseIdleConnections() // the last try is to dial
		}
	}
}
