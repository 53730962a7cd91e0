package main

import (
	"fmt"
	"net/url"
	"time"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/internal/certs"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// proxyRoutes turns the configured routes into the proxy's. Senders come from the pool.
func proxyRoutes(cfg *config.Config, m *material, pool *senders) ([]proxy.Route, error) {
	routes := make([]proxy.Route, 0, len(cfg.Routes))
	for i, r := range cfg.Routes {
		out, err := proxyRoute(r, m.upstreams[i], pool)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", r.Name, err)
		}
		routes = append(routes, out)
	}
	return routes, nil
}

func proxyRoute(r config.Route, secure *certs.Client, pool *senders) (proxy.Route, error) {
	upstream, err := url.Parse(r.Upstream)
	if err != nil {
		return proxy.Route{}, fmt.Errorf("parse upstream: %w", err)
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
		Sender:    pool.sender(r, upstream, secure),
		Namespace: r.Namespace, Fencing: fencing[r.Fencing], Methods: r.Methods,
		WebSocket:    r.WebSocket,
		Observe:      r.Enforcement == config.EnforcementObserve,
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

// longestLinger is how long the attempts of a dead process may still be worked on.
func longestLinger(cfg *config.Config) (d time.Duration) {
	for _, r := range cfg.Routes {
		d = max(d, r.Takeover.Linger)
	}
	return d
}
