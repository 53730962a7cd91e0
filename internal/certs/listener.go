package certs

import (
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
)

// Listener is the TLS of one listener. Its files can be changed while it serves: a
// handshake uses those of the moment in which it began, and connections that are open
// stay as they are. All methods may be called concurrently.
type Listener struct {
	demand tls.ClientAuthType
	protos []string
	base   *tls.Config
	now    atomic.Pointer[generation]
}

// generation is a Server as the handshakes see it.
type generation struct {
	*Server
	config *tls.Config
}

// NewListener returns the TLS of a listener. demand is what is asked of clients while s
// has authorities for their certificates; protos are the protocols offered by ALPN,
// the best first.
func NewListener(s *Server, demand tls.ClientAuthType, protos ...string) *Listener {
	l := &Listener{demand: demand, protos: protos}
	// The session tickets' keys belong to the base, so they live on over a change
	// of files. A ticket does not bring a client back in whose authority has gone:
	// crypto/tls holds the chains in it against the authorities of now.
	l.base = &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return l.now.Load().config, nil },
	}
	l.Use(s)
	return l
}

// Config is for the listener; it need not be asked for again after Use.
func (l *Listener) Config() *tls.Config { return l.base }

// Use makes new handshakes use s.
func (l *Listener) Use(s *Server) {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: l.protos,
		Certificates: []tls.Certificate{s.certificate},
	}
	if len(s.authorities) > 0 {
		c.ClientAuth = l.demand
		c.ClientCAs = x509.NewCertPool()
		for _, ca := range s.authorities {
			c.ClientCAs.AddCert(ca)
		}
	}
	l.now.Store(&generation{Server: s, config: c})
}

// Admits reports whether a connection that was made earlier would be let in now, as far
// as its client's certificate goes: authorities may have been exchanged since.
func (l *Listener) Admits(state *tls.ConnectionState) bool {
	s := l.now.Load()
	switch {
	case len(s.authorities) == 0:
		// Nobody is known by a certificate any more, so none may count.
		return state == nil || len(state.VerifiedChains) == 0
	case state == nil:
		return false
	case len(state.PeerCertificates) == 0:
		return l.demand != tls.RequireAndVerifyClientCert
	}
	return s.believes(state.VerifiedChains)
}
