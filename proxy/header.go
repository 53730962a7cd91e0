package proxy

import (
	"net"
	"net/http"
	"strings"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// noUserAgent keeps net/http from adding its own.
var noUserAgent = []string{""}

// outHeader returns the headers for the upstream: those of the caller without what is
// meant for this hop only (RFC 9110, section 7.6.1), without forwarding headers that
// the caller may have made up, and by default without the fence.
func (p *Proxy) outHeader(rt *route, r *http.Request, streamed bool) http.Header {
	in := r.Header
	out := make(http.Header, len(in)+4)
	listed := in["Connection"]
	for name, values := range in {
		switch name {
		case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
			"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
			"Forwarded", "X-Real-Ip":
			continue
		case "Expect":
			// A body that is in memory is simply sent.
			if !streamed {
				continue
			}
		}
		if strings.HasPrefix(name, "X-Forwarded-") || !rt.ForwardFence && p.isFence(name) || listed != nil && names(listed, name) {
			continue
		}
		out[name] = values
	}
	if names(in["Te"], "trailers") {
		out["Te"] = []string{"trailers"}
	}
	if out["User-Agent"] == nil {
		out["User-Agent"] = noUserAgent
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		out["X-Forwarded-For"] = []string{host}
	}
	out["X-Forwarded-Host"] = []string{r.Host}
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	out["X-Forwarded-Proto"] = []string{proto}
	return out
}

// outTrailer returns the names of the trailers that go on to the upstream. A fence in a
// trailer counts for nothing, so it does not go on either.
func (p *Proxy) outTrailer(r *http.Request) http.Header {
	var out http.Header
	for name := range r.Trailer {
		if !p.isFence(name) && name != p.fences.names[3] {
			if out == nil {
				out = make(http.Header, len(r.Trailer))
			}
			out[name] = nil
		}
	}
	return out
}

// isFence reports whether a header carries a part of the fence, the key apart: that
// one belongs to the upstream too.
func (p *Proxy) isFence(name string) bool {
	n := &p.fences.names
	return name == n[0] || name == n[1] || name == n[2]
}

// names reports whether a comma-separated list names a token.
func names(list []string, token string) bool {
	for _, line := range list {
		for t := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

// ownHeader reports whether the proxy speaks for itself under a response header's name.
func ownHeader(name string) bool {
	switch name {
	case wire.HeaderDecision, wire.HeaderReason, wire.HeaderGeneration, wire.HeaderOutcome, wire.HeaderWouldRefuse, wire.HeaderReplayed:
		return true
	}
	return false
}

// copyReplyHeader copies the head of an upstream's reply, without what is meant for
// this hop only and without headers under the names that the proxy speaks for itself.
func copyReplyHeader(dst, src http.Header) {
	listed := src["Connection"]
	for name, values := range src {
		switch name {
		case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailer",
			"Transfer-Encoding", "Upgrade":
			continue
		}
		if ownHeader(name) || listed != nil && names(listed, name) {
			continue
		}
		dst[name] = values
	}
	if dst["Content-Type"] == nil {
		dst["Content-Type"] = nil // else the server makes one up from the body
	}
}
