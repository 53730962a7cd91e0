package proxy

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// Fencing says which requests of a route must carry a fence.
type Fencing uint8

// The ways in which a route fences.
const (
	// FencingRequired refuses writes without a fence.
	FencingRequired Fencing = iota
	// FencingOptional forwards writes without a fence as they are.
	FencingOptional
	// FencingOff forwards everything as it is.
	FencingOff
)

// Route says where requests go and how they are fenced. It must not be changed once it
// was given to New.
type Route struct {
	// Name is the route's label in metrics and logs.
	Name string
	// Hosts are the request hosts that the route is for, without port; empty
	// means all. Path is a prefix of whole segments.
	Hosts []string
	Path  string
	// Upstream is where requests go; its path is put in front. StripPath takes
	// Path away before.
	Upstream     *url.URL
	StripPath    bool
	PreserveHost bool
	Sender       Sender

	// Namespace keeps the route's jobs apart from those of other namespaces.
	Namespace string
	Fencing   Fencing
	// Observe judges, counts and logs, and forwards all the same: what the fence
	// would have refused goes through like an unfenced write.
	Observe bool
	// Methods are the fenced ones; empty means all but GET, HEAD, OPTIONS and
	// TRACE.
	Methods      []string
	IssuedOnly   bool
	RequireLease bool
	LiveLease    bool
	RequireKey   bool
	// RefuseDuplicates answers a repeated write with already-applied instead of
	// the stored reply; DuplicateWait is how long it waits for one in flight.
	// ForwardUnknown sends a write again whose earlier attempt is unknown.
	// OncePerGeneration allows one write per generation of a job.
	RefuseDuplicates  bool
	DuplicateWait     time.Duration
	ForwardUnknown    bool
	OncePerGeneration bool
	// Retention is how long a settled key is remembered. StoreReply keeps
	// replies of at most MaxReply bytes; without it only that and how the write
	// was settled.
	Retention  time.Duration
	StoreReply bool
	MaxReply   int64
	// WebSocket lets an upgrade to it through. It is judged like a write whatever
	// Methods says, is under way for as long as the connection lives, and is cut at
	// a takeover.
	WebSocket bool
	// ForwardFence sends the fence headers on to the upstream.
	ForwardFence bool

	// Timeout runs from the request sent whole to the reply's head; IdleTimeout
	// is the longest pause between two pieces of either body.
	Timeout     time.Duration
	IdleTimeout time.Duration
	// TakeoverWait is how long a write waits for older attempts. Linger is how
	// long an attempt whose reply never came counts as under way after its
	// connection was closed. AbortSent cuts attempts at a takeover even after
	// they were sent whole.
	TakeoverWait time.Duration
	Linger       time.Duration
	AbortSent    bool

	// Outcomes overrides the class of single statuses.
	Outcomes map[int]tokens.Outcome
	// BodyBuffer is the largest body that is read whole before admission;
	// BodyMax the largest that is accepted, zero for any. In bytes.
	BodyBuffer int64
	BodyMax    int64
}

// route is a Route with what is resolved once.
type route struct {
	Route
	metrics *telemetry.Route
	// base is the upstream's path without a slash at its end.
	base string
	// loose is Path as the most lenient servers read it.
	loose string
}

// fences reports whether the route fences a request. A method-override header is never
// obeyed, but an upstream might obey it: so a read that carries one is a write.
func (rt *route) fences(r *http.Request) bool {
	if rt.Fencing == FencingOff {
		return false
	}
	if len(rt.Methods) > 0 {
		// Some servers ignore the case of a method.
		return slices.ContainsFunc(rt.Methods, func(m string) bool { return strings.EqualFold(m, r.Method) }) || overridden(r.Header)
	}
	return !isRead(r.Method) || overridden(r.Header)
}

func overridden(h http.Header) bool {
	for name := range h {
		if len(name) < len("X-Http-Method") || name[0] != 'X' {
			continue
		}
		switch http.CanonicalHeaderKey(strings.Map(dashed, name)) {
		case "X-Http-Method-Override", "X-Http-Method", "X-Method-Override":
			return true
		}
	}
	return false
}

// isRead reports whether a method only reads (RFC 9110, section 9.2.1).
func isRead(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// routes finds the route of a request.
type routes []*route

// newRoutes sorts: routes for a host before routes for all, longer paths first.
func newRoutes(rs []*route) routes {
	sorted := slices.Clone(rs)
	slices.SortStableFunc(sorted, func(a, b *route) int {
		if d := min(len(b.Hosts), 1) - min(len(a.Hosts), 1); d != 0 {
			return d
		}
		return len(b.Path) - len(a.Path)
	})
	return sorted
}

// find returns the route of a request, nil if none matches, and errPathRoutes if it
// depends on who reads the path.
func (rs routes) find(host, decoded, raw string) (*route, error) {
	if strings.IndexByte(host, ':') >= 0 {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
	}
	host = strings.TrimSuffix(host, ".")
	a := rs.match(host, decoded)
	if decoded != raw && rs.match(host, raw) != a {
		return nil, errPathRoutes
	}
	// A server may also merge slashes, take a backslash for one, cut parameters and
	// trailing dots, or ignore case. Who reads the path must not decide whether it is fenced.
	if rs.matchLoosely(host, loosely(decoded)) != a {
		return nil, errPathRoutes
	}
	return a, nil
}

// loosely reads a path as the most lenient servers do.
func loosely(path string) string {
	path, _, _ = strings.Cut(path, "#") // no path has one, but some servers take it for a fragment
	if !strings.ContainsAny(path, `\;. `) && !strings.Contains(path, "//") {
		return strings.ToLower(path)
	}
	var b strings.Builder
	for seg := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		seg, _, _ = strings.Cut(seg, ";")
		if seg = strings.TrimRight(seg, ". "); seg == "" {
			continue
		}
		b.WriteByte('/')
		b.WriteString(strings.ToLower(seg))
	}
	if b.Len() == 0 || strings.HasSuffix(path, "/") {
		b.WriteByte('/')
	}
	return b.String()
}

func (rs routes) match(host, path string) *route {
	for _, rt := range rs {
		if rt.matchesHost(host) && underPath(rt.Path, path) {
			return rt
		}
	}
	return nil
}

// matchLoosely is match for a loose path.
func (rs routes) matchLoosely(host, path string) *route {
	for _, rt := range rs {
		if rt.matchesHost(host) && underPath(rt.loose, path) {
			return rt
		}
	}
	return nil
}

func (rt *route) matchesHost(host string) bool {
	if len(rt.Hosts) == 0 {
		return true
	}
	return slices.ContainsFunc(rt.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// underPath reports whether path is prefix or lies below it.
func underPath(prefix, path string) bool {
	if !strings.HasPrefix(path, prefix) {
		return false
	}
	return len(path) == len(prefix) || strings.HasSuffix(prefix, "/") || path[len(prefix)] == '/'
}
