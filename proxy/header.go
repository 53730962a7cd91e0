package proxy

import (
	"net"
	"net/http"
	"strings"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

// noUserAgent keeps net/http from adding its own.
var noUserAgent = []string{""}

// teTrailers is all of a TE header that is passed on.
var teTrailers = []string{"trailers"}

// outHeader returns the headers for the upstream.
func (p *Proxy) outHeader(rt *route, r *http.Request, streamed bool) http.Header {
	out := make(http.Header, len(r.Header)+4)
	p.eachField(rt, r, streamed, func(name string, values []string) { out[name] = values })
	if out["User-Agent"] == nil {
		out["User-Agent"] = noUserAgent
	}
	eachForwarding(r, func(name, value string) { out[name] = []string{value} })
	return out
}

// appendHeader appends the same headers to b as lines, and so without a map. The error is
// errNewline.
func (p *Proxy) appendHeader(b []byte, rt *route, r *http.Request, streamed bool) (_ []byte, err error) {
	p.eachField(rt, r, streamed, func(name string, values []string) {
		var failed error
		if b, failed = appendFields(b, name, values); failed != nil {
			err = failed
		}
	})
	eachForwarding(r, func(name, value string) {
		var failed error
		if b, failed = appendField(b, name, value); failed != nil {
			err = failed
		}
	})
	return b, err
}

// eachField calls add for the caller's headers without what is meant for this hop only
// (RFC 9110, section 7.6.1), without forwarding headers that the caller may have made up,
// and by default without the fence.
func (p *Proxy) eachField(rt *route, r *http.Request, streamed bool, add func(name string, values []string)) {
	in := r.Header
	listed := in["Connection"]
	for name, values := range in {
		switch name {
		case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
			"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings":
			continue
		case "Expect":
			// A body that is in memory is simply sent.
			if !streamed {
				continue
			}
		}
		if forwarding(name) || !rt.ForwardFence && p.isFence(name) || listed != nil && names(listed, name) {
			continue
		}
		add(name, values)
	}
	if names(in["Te"], "trailers") {
		add("Te", teTrailers)
	}
}

// forwarding reports whether a header says where a request came from. Servers of the CGI
// kind also read it under a name with underscores or dots.
func forwarding(name string) bool {
	switch {
	case name == "Forwarded":
		return true
	case len(name) < len("X-Real-Ip") || name[0] != 'X':
		return false
	case name[1] != '-' || strings.ContainsAny(name, "_."):
		name = http.CanonicalHeaderKey(strings.Map(dashed, name))
	}
	return name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-")
}

// eachForwarding calls add for the headers that say where the request came from, in the
// form that everybody reads and in that of RFC 7239.
func eachForwarding(r *http.Request, add func(name, value string)) {
	proto, node := "http", "unknown"
	if r.TLS != nil {
		proto = "https"
	}
	b := append(make([]byte, 0, 128), "for="...)
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		add("X-Forwarded-For", host)
		if node = host; strings.Contains(host, ":") {
			node = "[" + host + "]"
		}
	}
	b = appendQuoted(b, node)
	add("X-Forwarded-Host", r.Host)
	if r.Host != "" { // HTTP/1.0 allows that
		b = appendQuoted(append(b, ";host="...), r.Host)
	}
	add("X-Forwarded-Proto", proto)
	add("Forwarded", string(append(append(b, ";proto="...), proto...)))
}

// appendQuoted appends a value of a Forwarded header, as a quoted string if it is no token
// (RFC 7239, section 4).
func appendQuoted(b []byte, s string) []byte {
	if !strings.ContainsFunc(s, func(c rune) bool {
		return (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_'
	}) {
		return append(b, s...)
	}
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

// outTrailer returns the trailers that go on to the upstream, announced by name; those
// that were not announced are added when they have come. Nil means that there are none.
func (p *Proxy) outTrailer(r *http.Request) http.Header {
	if r.ContentLength >= 0 {
		return nil
	}
	out := make(http.Header, len(r.Trailer))
	for name := range r.Trailer {
		if p.late(name) {
			out[name] = nil
		}
	}
	return out
}

// late reports whether a field may follow a body. A fence there counts for nothing, so it
// does not go on; and what servers look for at the head must not come past the checks of
// the head (RFC 9110, section 6.5.1).
func (p *Proxy) late(name string) bool {
	switch name = undisguised(name); name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Host", "Content-Length", "Content-Type", "Content-Encoding", "Content-Range", "Authorization", "Cookie", "Expect":
		return false
	}
	return !forwarding(name) && !p.isFence(name) && name != p.fences.names[3]
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
	case wire.HeaderDecision, wire.HeaderReason, wire.HeaderGeneration, wire.HeaderOutcome, wire.HeaderWouldRefuse, wire.HeaderReplayed, wire.HeaderKey:
		return true
	}
	return false
}

// keepOwn lets those headers through after all: on a route that fences nothing the proxy
// does not speak, and an upstream that fences may.
func keepOwn(dst, src http.Header) {
	for name, values := range src {
		if ownHeader(name) {
			dst[name] = values
		}
	}
}

// describeUnsent keeps net/http from taking away what a 304 says of the body that it does
// not have (RFC 9110, section 15.4.5): it only knows the names as it writes them itself.
func describeUnsent(h http.Header) {
	for name, as := range map[string]string{"Content-Length": "content-length", "Content-Type": "content-type"} {
		if values := h[name]; values != nil {
			h[as] = values
			delete(h, name)
		}
	}
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
