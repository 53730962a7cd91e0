package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"time"
)

// forgetTime is how long the client of a connection may take to forget a request that has
// ended.
const forgetTime = 50 * time.Millisecond

// How much of replies is held for callers that read slowly, in bytes.
const (
	replyWindow     = 512 << 10 // of one reply
	replyConnWindow = 1 << 20   // of a connection
)

// http2Sender sends over HTTP/2, one request per connection at a time. Two requests on
// one connection could not be told apart when one of them is cut: a stream that is reset
// leaves its bytes in the kernel's buffer, and only closing the connection drops them.
//
// It does without the pool of http.Transport, which repeats what an upstream refused
// or did not answer (GOAWAY, REFUSED_STREAM, a connection that died), and with it without
// the repetition: http.ClientConn is one connection, and knows no other.
type http2Sender struct {
	dialer    *dialer
	addr      string
	secure    bool
	transport *http.Transport // makes the clients of connections, and sends nothing itself
	idle      pool[*http2Conn]
}

// NewHTTP2Sender returns the Sender for the HTTP/2 upstream at u: over TLS for https, with
// prior knowledge (RFC 9113, section 3.3) for http. tlsConfig is used for https; nil means
// the system's roots. idle bounds the unused connections that are kept.
func NewHTTP2Sender(u *url.URL, tlsConfig *tls.Config, idle int) Sender {
	h := &http2Sender{dialer: newDialer(tlsConfig), addr: hostPort(u), secure: u.Scheme == "https", idle: pool[*http2Conn]{most: idle}}
	h.dialer.proto = protoHTTP2
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // TLS is below, where the gate is
	h.transport = &http.Transport{
		// No environment proxy: a write must not take a way that nobody
		// configured.
		Proxy:                  nil,
		DialContext:            h.dial,
		Protocols:              protocols,
		DisableCompression:     true,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxReplyHeader,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: replyWindow, MaxReceiveBufferPerConnection: replyConnWindow},
	}
	return h
}

// dialled is where dial leaves the connection that it made, for connect.
type dialled struct{}

// dial makes a connection for the transport.
func (h *http2Sender) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	g, err := h.dialer.dial(ctx, h.addr, h.secure)
	if err != nil {
		return nil, err
	}
	c := newFrameConn(g)
	*ctx.Value(dialled{}).(**frameConn) = c
	return c, nil
}

// CloseIdle implements Sender.
func (h *http2Sender) CloseIdle() { h.idle.close() }

// http2Conn is a connection with its client.
type http2Conn struct {
	*frameConn
	client *http.ClientConn
}

// Close closes the connection.
func (c *http2Conn) Close() error { return c.client.Close() }

// connect dials and waits until the upstream has shown that it speaks HTTP/2: a request
// to one that does not would be unknown, and this way nothing was sent.
func (h *http2Sender) connect(ctx context.Context) (*http2Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*dialTimeout)
	defer cancel()
	var fc *frameConn
	client, err := h.transport.NewClientConn(context.WithValue(ctx, dialled{}, &fc), "http", h.addr)
	if err != nil {
		return nil, fmt.Errorf("connect to upstream: %w", err)
	}
	c := &http2Conn{frameConn: fc, client: client}
	select {
	case <-c.ready:
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("connect to upstream: %w", ctx.Err()), c.abandon())
	}
	if !c.speaks() {
		return nil, errors.Join(errNotHTTP2, c.abandon())
	}
	return c, nil
}

// giveBack keeps a connection whose request and reply were whole.
func (h *http2Sender) giveBack(c *http2Conn) {
	// The client has its own goroutine for each request, and forgets it a moment later.
	// Its state hook is no help: it misses a request that comes and goes while the
	// hook of the one before is returning.
	for pause := time.Microsecond; c.client.InFlight() > 0 && pause < forgetTime; pause *= 2 {
		time.Sleep(pause)
	}
	if c.done() && c.client.InFlight() == 0 && c.client.Err() == nil {
		h.idle.put(c)
		return
	}
	_ = c.abandon() // it is of no more use
}

// lend returns a connection for one request, and whether it carried others before.
func (h *http2Sender) lend(ctx context.Context, try int) (c *http2Conn, reused bool, err error) {
	for {
		ok := false
		if try < freshTries { // the last try does not trust what was idle
			c, ok = h.idle.take()
		}
		if !ok {
			if c, err = h.connect(ctx); err != nil {
				return nil, false, err
			}
		}
		if err = c.client.Reserve(); err == nil {
			return c, ok, nil
		}
		_ = c.abandon() // the upstream has closed it, or takes no more streams
		if !ok {
			return nil, false, fmt.Errorf("reserve stream: %w", err)
		}
	}
}

// Send implements Sender.
func (h *http2Sender) Send(req *http.Request, s *Send) (*http.Response, error) {
	interim := 0
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			if interim++; interim > maxInterim {
				return errInterim
			}
			if code == http.StatusSwitchingProtocols {
				return errSwitch // there is none in HTTP/2 (RFC 9113, section 8.6)
			}
			return s.Watcher.Informational(code, header)
		},
	}))
	for try := 0; ; try++ {
		c, reused, err := h.lend(req.Context(), try)
		var u *upload
		if err == nil {
			var res *http.Response
			u = newUpload(c, req, s)
			if res, err = h.exchange(c, req, s, u); err == nil {
				return res, nil
			}
			_ = c.abandon() // the error that counts is err
		}
		// A connection that had been idle may have been closed at the other end.
		again := reused && try < freshTries && !s.Touched() && !s.Vetoed() && req.Context().Err() == nil && !u.used()
		if !again {
			if req.Body != nil {
				_ = req.Body.Close() // nobody reads it any more
			}
			return nil, err
		}
	}
}

// exchange sends the request on c and waits for the reply's head.
func (h *http2Sender) exchange(c *http2Conn, req *http.Request, s *Send, u *upload) (*http.Response, error) {
	if !s.moveTo(c.gateConn) {
		return nil, errSentBefore
	}
	ctx, cancel := context.WithCancel(req.Context())
	req = req.WithContext(ctx)
	if u != nil {
		req.Body = u
	}
	// The client would wait for ever if the upstream has just forbidden streams.
	patience := time.AfterFunc(dialTimeout, func() {
		if !c.carries(s) {
			_ = c.abandon() // the round trip fails
		}
	})
	defer patience.Stop()
	res, err := c.client.RoundTrip(req)
	if err == nil {
		err = checkHTTP2Head(res)
	}
	if err != nil {
		cancel()
		u.stop()
		return nil, fmt.Errorf("read reply: %w", err)
	}
	body := res.Body
	if res.StatusCode == http.StatusNotModified && res.ContentLength > 0 {
		body = http.NoBody // the length is that of a body which is not sent
	}
	reply := &http2Reply{ReadCloser: body, sender: h, conn: c, s: s, upload: u, cancel: cancel}
	if res.Body = reply; req.Method == http.MethodHead {
		_ = reply.Close() // there is none
		res.Body = http.NoBody
	}
	return res, nil
}
