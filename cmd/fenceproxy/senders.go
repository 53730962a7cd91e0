package main

import (
	"crypto/sha256"
	"net/url"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/internal/certs"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// maxIdleConns bounds the unused connections that are kept for each route's upstream.
const maxIdleConns = 512

// sending is everything that a route's way to its upstream depends on. Two
// configurations whose route has an equal one share its connections.
type sending struct {
	route, scheme, host, protocol string
	tls                           [sha256.Size]byte
}

// senders gives the routes of one configuration their senders, and takes over those of
// the one before that still fit.
type senders struct {
	before, now map[sending]proxy.Sender
}

// newSenders returns the pool of the configuration that follows before's; nil for the
// first.
func newSenders(before *senders) *senders {
	s := &senders{now: make(map[sending]proxy.Sender)}
	if before != nil {
		s.before = before.now
	}
	return s
}

func (s *senders) sender(r config.Route, upstream *url.URL, secure *certs.Client) proxy.Sender {
	key := sending{
		route: r.Name, scheme: upstream.Scheme, host: upstream.Host, protocol: r.UpstreamProtocol, tls: secure.Digest,
	}
	out := s.before[key]
	if out == nil {
		out = newSender(r.UpstreamProtocol, upstream, secure)
	}
	s.now[key] = out
	return out
}

// newSender returns the way to an upstream that speaks the configured protocol.
func newSender(protocol string, upstream *url.URL, secure *certs.Client) proxy.Sender {
	switch protocol {
	case config.ProtocolH2, config.ProtocolH2C:
		return proxy.NewHTTP2Sender(upstream, secure.Config, maxIdleConns)
	}
	return proxy.NewSender(upstream, secure.Config, maxIdleConns)
}
