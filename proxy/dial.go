package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// dialTimeout bounds resolving and connecting, and again the TLS handshake.
const dialTimeout = 10 * time.Second

// Protocols as TLS names them.
const (
	protoHTTP1 = "http/1.1"
	protoHTTP2 = "h2"
)

// dialer makes connections with a gate.
type dialer struct {
	net    net.Dialer
	secure *tls.Config
	proto  string // that TLS has to agree on (RFC 7301)
}

func newDialer(secure *tls.Config) *dialer {
	return &dialer{net: net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}, secure: secure, proto: protoHTTP1}
}

// dial connects to addr, with TLS if secure is set.
func (d *dialer) dial(ctx context.Context, addr string, secure bool) (*gateConn, error) {
	c, err := d.net.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	g, err := newGateConn(c.(*net.TCPConn))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if secure {
		if err := g.handshake(ctx, d.secure, addr, d.proto); err != nil {
			return nil, errors.Join(err, g.tcp.Close())
		}
	}
	return g, nil
}

// handshake turns c into a TLS connection whose plaintext writes pass the gate.
func (c *gateConn) handshake(ctx context.Context, config *tls.Config, addr, proto string) error {
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
	config.NextProtos = []string{proto}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw := &countingConn{Conn: c.Conn}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("tls handshake with %s: %w", addr, err)
	}
	if got := secure.ConnectionState().NegotiatedProtocol; got != proto && proto != protoHTTP1 {
		return fmt.Errorf("tls handshake with %s: it does not speak %s", addr, proto)
	}
	c.Conn, c.records = secure, &raw.n
	return nil
}

// hostPort is the address of an upstream.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
