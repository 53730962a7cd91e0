package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"
)

const (
	// dialTimeout bounds resolving, connecting and the TLS handshake together.
	dialTimeout = 10 * time.Second
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

// NewTransportSender returns a Sender for HTTP/1.1 upstreams. tlsConfig is used for
// https; nil means the system's roots. idle bounds the unused connections that are kept.
func NewTransportSender(tlsConfig *tls.Config, idle int) Sender {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	dial := func(ctx context.Context, network, addr string) (*gateConn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		g, err := newGateConn(c.(*net.TCPConn))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return g, nil
	}
	return &transportSender{transport: &http.Transport{
		// No environment proxy: a write must not take a way that nobody
		// configured.
		Proxy: nil,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dial(ctx, network, addr)
		},
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			g, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			if err := g.handshake(ctx, tlsConfig, addr); err != nil {
				return nil, errors.Join(err, g.Close())
			}
			return g, nil
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

// handshake turns c into a TLS connection whose plaintext writes pass the gate.
func (c *gateConn) handshake(ctx context.Context, config *tls.Config, addr string) error {
	if config == nil {
		config = &tls.Config{}
	}
	config = config.Clone()
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return fmt.Errorf("split upstream address: %w", err)
		}
		config.ServerName = host
	}
	config.NextProtos = []string{"http/1.1"}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw := &countingConn{Conn: c.Conn}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("tls handshake with %s: %w", addr, err)
	}
	c.Conn, c.records = secure, &raw.n
	return nil
}

// CloseIdle implements Sender.
func (t *transportSender) CloseIdle() { t.transport.CloseIdleConnections() }

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
				s.Watcher.SentWhole()
			}
		},
		Got1xxResponse: s.Watcher.Informational,
	}
	ctx := httptrace.WithClientTrace(req.Context(), trace)
	req = req.WithContext(ctx)
	for try := 0; ; try++ {
		if len(s.Body) > 0 {
			// A reader of its own for each try: the last one's may still be
			// in use by a goroutine of the transport.
			req.Body = io.NopCloser(bytes.NewReader(s.Body))
		}
		res, err := t.transport.RoundTrip(req)
		if err == nil {
			return res, nil
		}
		// A request of which no byte was taken has not been sent, however it
		// failed. Only a connection that had been idle is worth another try.
		again := reused && try < freshTries && !s.Touched() && ctx.Err() == nil && (len(s.Body) > 0 || req.Body == nil)
		if !again {
			return nil, err
		}
	}
}
