package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// maxIdleConns bounds the unused connections that are kept for each route's upstream.
const maxIdleConns = 512

// proxyRoutes turns the configured routes into the proxy's.
func proxyRoutes(cfg *config.Config) ([]proxy.Route, error) {
	routes := make([]proxy.Route, 0, len(cfg.Routes))
	for _, r := range cfg.Routes {
		out, err := proxyRoute(r)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", r.Name, err)
		}
		routes = append(routes, out)
	}
	return routes, nil
}

func proxyRoute(r config.Route) (proxy.Route, error) {
	upstream, err := url.Parse(r.Upstream)
	if err != nil {
		return proxy.Route{}, fmt.Errorf("parse upstream: %w", err)
	}
	secure, err := clientTLS(r.UpstreamTLS)
	if err != nil {
		return proxy.Route{}, err
	}
	fencing := map[string]proxy.Fencing{
		config.FencingRequired: proxy.FencingRequired,
		config.FencingOptional: proxy.FencingOptional,
		config.FencingOff:      proxy.FencingOff,
	}
	outcomes := make(map[int]tokens.Outcome)
	for outcome, statuses := range map[tokens.Outcome][]int{
		tokens.Applied: r.Outcomes.Applied, tokens.Declined: r.Outcomes.Declined, tokens.OutcomeUnknown: r.Outcomes.Unknown,
	} {
		for _, status := range statuses {
			outcomes[status] = outcome
		}
	}
	return proxy.Route{
		Name: r.Name, Hosts: r.Hosts, Path: r.Path, Upstream: upstream,
		StripPath: r.StripPath, PreserveHost: r.PreserveHost,
		Sender:    sender(r.UpstreamProtocol, upstream, secure),
		Namespace: r.Namespace, Fencing: fencing[r.Fencing], Methods: r.Methods,
		IssuedOnly:   r.Generations == config.GenerationsIssued,
		RequireLease: r.RequireLease, LiveLease: r.LiveLease,
		RequireKey:        r.Idempotency.Key == config.KeyRequired,
		RefuseDuplicates:  r.Idempotency.OnDuplicate == config.DuplicateRefuse,
		DuplicateWait:     r.Idempotency.Wait,
		ForwardUnknown:    r.Idempotency.OnUnknown == config.UnknownForward,
		OncePerGeneration: r.OncePerGeneration,
		Retention:         r.Idempotency.Retention,
		StoreReply:        r.Idempotency.StoreReply,
		MaxReply:          int64(r.Idempotency.MaxReply),
		ForwardFence:      r.ForwardFenceHeaders,
		Timeout:           r.Timeout, IdleTimeout: r.IdleTimeout,
		TakeoverWait: r.Takeover.Wait, Linger: r.Takeover.Linger, AbortSent: r.Takeover.Sent == config.SentAbort,
		Outcomes: outcomes, BodyBuffer: int64(r.Body.Buffer), BodyMax: int64(r.Body.Max),
	}, nil
}

// sender returns the way to an upstream that speaks the configured protocol.
func sender(protocol string, upstream *url.URL, secure *tls.Config) proxy.Sender {
	switch protocol {
	case config.ProtocolH2, config.ProtocolH2C:
		return proxy.NewHTTP2Sender(upstream, secure, maxIdleConns)
	}
	return proxy.NewSender(upstream, secure, maxIdleConns)
}

// longestLinger is how long the attempts of a dead process may still be worked on.
func longestLinger(cfg *config.Config) (d time.Duration) {
	for _, r := range cfg.Routes {
		d = max(d, r.Takeover.Linger)
	}
	return d
}

// clientTLS loads the files with which an upstream is trusted and the proxy shows
// itself to it.
func clientTLS(c config.ClientTLS) (*tls.Config, error) {
	out := &tls.Config{ServerName: c.ServerName, MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read ca_file: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read ca_file %s: no certificate in it", c.CAFile)
		}
	}
	if c.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("load cert_file and key_file: %w", err)
		}
		out.Certificates = []tls.Certificate{cert}
	}
	return out, nil
}
