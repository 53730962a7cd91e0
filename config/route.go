package config

import "time"

// Route sends the requests of some hosts and of one path prefix to an upstream.
type Route struct {
	// Name is the route's name, and its only label in metrics: 1 to 64 of
	// a-z, 0-9, _ and -. Required, and unique.
	Name string `yaml:"name"`

	// Hosts are the host names or addresses that the route answers, without
	// port. Default empty: every host.
	Hosts []string `yaml:"hosts"`

	// Path is a prefix of the request's path; of several that match the
	// longest wins. Two routes of one host may not have the same. Default /.
	Path string `yaml:"path"`

	// Upstream is where the requests go: an absolute http or https URL,
	// without query and fragment; its path goes before the request's.
	// Required.
	Upstream string `yaml:"upstream" secret:"userinfo"`

	// RouteOptions are the options that defaults can set as well.
	RouteOptions
}

// The values of the options that are words.
const (
	ProtocolHTTP1 = "http1"
	ProtocolH2    = "h2"
	ProtocolH2C   = "h2c"

	FencingRequired = "required"
	FencingOptional = "optional"
	FencingOff      = "off"

	EnforcementEnforce = "enforce"
	EnforcementObserve = "observe"

	GenerationsAuto   = "auto"
	GenerationsIssued = "issued"

	SentWait  = "wait"
	SentAbort = "abort"

	KeyOptional = "optional"
	KeyRequired = "required"

	DuplicateReplay = "replay"
	DuplicateRefuse = "refuse"

	UnknownRefuse  = "refuse"
	UnknownForward = "forward"
)

// RouteOptions is everything about a route that can have a default of yours
// under defaults.
type RouteOptions struct {
	// StripPath removes the route's path from the front of the request's
	// before it is sent on. Default false.
	StripPath bool `yaml:"strip_path"`

	// UpstreamProtocol is http1, h2 (HTTP/2 over TLS) or h2c (HTTP/2 in the
	// clear). Default http1.
	UpstreamProtocol string `yaml:"upstream_protocol" enum:"http1,h2,h2c"`

	// UpstreamTLS is how an https upstream is spoken to.
	UpstreamTLS ClientTLS `yaml:"upstream_tls"`

	// PreserveHost sends the caller's Host on instead of the upstream's.
	// Default false.
	PreserveHost bool `yaml:"preserve_host"`

	// Namespace is the namespace of the jobs of this route: two namespaces
	// never share a floor, a key or a view. At most 256 bytes of printable
	// ASCII without comma, quote and backslash. Default empty.
	Namespace string `yaml:"namespace"`

	// Fencing is required (a write without job and generation is refused),
	// optional (such a write passes unfenced) or off (nothing is judged).
	// Default required.
	Fencing string `yaml:"fencing" enum:"required,optional,off"`

	// Enforcement is enforce, or observe: judge, count and log everything and
	// forward all the same, for a careful roll-out. Default enforce.
	Enforcement string `yaml:"enforcement" enum:"enforce,observe"`

	// Methods are the methods that are writes. Default empty: all but GET,
	// HEAD, OPTIONS and TRACE, unknown ones included.
	Methods []string `yaml:"methods"`

	// Generations is auto (a job never claimed here follows the highest
	// generation seen, so an outside lock service can issue them) or issued
	// (such a job is refused as unknown-job). Default auto.
	Generations string `yaml:"generations" enum:"auto,issued"`

	// RequireLease refuses writes without the lease id of their claim.
	// Default false.
	RequireLease bool `yaml:"require_lease"`

	// LiveLease refuses writes whose lease has run out, though nobody took
	// over. Default false.
	LiveLease bool `yaml:"live_lease"`

	// OncePerGeneration lets a job make one write per generation on this
	// route. Default false.
	OncePerGeneration bool `yaml:"once_per_generation"`

	// ForwardFenceHeaders sends the job, generation and lease headers on to
	// the upstream. Default false.
	ForwardFenceHeaders bool `yaml:"forward_fence_headers"`

	// Timeout is the longest time from the request sent whole to the head of
	// the reply; past it the attempt is unknown. Default 60s.
	Timeout time.Duration `yaml:"timeout"`

	// IdleTimeout is the longest pause between two pieces of either body;
	// uploads and replies as such may last for hours. Default 60s.
	IdleTimeout time.Duration `yaml:"idle_timeout"`

	// Takeover is what happens to older attempts when the floor rises.
	Takeover Takeover `yaml:"takeover"`

	// Idempotency is what an idempotency key does.
	Idempotency Idempotency `yaml:"idempotency"`

	// Outcomes changes which outcome a status of the upstream means.
	Outcomes Outcomes `yaml:"outcomes"`

	// Body bounds request bodies.
	Body Body `yaml:"body"`

	// WebSocket lets Upgrade: websocket through, judged like a write; every
	// other upgrade is refused always. It needs upstream_protocol: http1.
	// Default false.
	WebSocket bool `yaml:"websocket"`
}

// Takeover is the barrier between the generations of a job.
type Takeover struct {
	// Wait is how long the newer generation's write waits for older attempts
	// to settle before it is answered takeover-pending. 0 does not wait.
	// Default 10s.
	Wait time.Duration `yaml:"wait"`

	// Linger is how long after its connection was closed a cut or timed-out
	// attempt still counts as in flight: for upstreams that go on working
	// after their caller is gone. Default 0s.
	Linger time.Duration `yaml:"linger"`

	// Sent is wait (an older attempt that was sent whole is waited for) or
	// abort (it is cut too, its outcome is unknown). Default wait.
	Sent string `yaml:"sent" enum:"wait,abort"`
}

// Idempotency is the treatment of keyed writes. A key belongs to its job.
type Idempotency struct {
	// Key is optional, or required: a write without a key is refused.
	// Default optional.
	Key string `yaml:"key" enum:"optional,required"`

	// OnDuplicate is replay (the stored reply is returned) or refuse
	// (already-applied) for a key that was applied. Default replay.
	OnDuplicate string `yaml:"on_duplicate" enum:"replay,refuse"`

	// OnUnknown is refuse (outcome-unknown) or forward (send it again) for a
	// key whose outcome is unknown. Default refuse.
	OnUnknown string `yaml:"on_unknown" enum:"refuse,forward"`

	// Wait is how long a write waits for another in flight under its key
	// before it is answered write-in-progress. Default 0s.
	Wait time.Duration `yaml:"wait"`

	// Retention is how long an applied key is kept after it was settled; it
	// is kept at least while its job is leased. Default 24h.
	Retention time.Duration `yaml:"retention"`

	// MaxReply is the largest reply that is kept for replay, in bytes. A
	// larger one reaches its first caller whole, later ones get
	// already-applied. Default 64KiB.
	MaxReply Size `yaml:"max_reply"`

	// StoreReply keeps replies at all; without, a duplicate is answered
	// already-applied. Default true.
	StoreReply bool `yaml:"store_reply"`
}

// Outcomes lists statuses of the upstream, 100 to 599, whose class differs from
// the usual one (2xx and 303 applied, 3xx and 4xx declined, 5xx unknown). A
// status stands in one list at most.
type Outcomes struct {
	// Applied are the statuses that say that the write was done. Default
	// empty.
	Applied []int `yaml:"applied"`

	// Declined are the statuses that say that it was not done. Default empty.
	Declined []int `yaml:"declined"`

	// Unknown are the statuses after which nobody can say. Default empty.
	Unknown []int `yaml:"unknown"`
}

// Body bounds the bodies of writes.
type Body struct {
	// Buffer is up to which size, in bytes, a body is read whole before its
	// write is admitted; a larger one is streamed, and so is what does not
	// fit the 256 MiB that all bodies have together. 0 streams all.
	// Default 1MiB.
	Buffer Size `yaml:"buffer"`

	// Max is the largest body that is taken, in bytes; beyond it the answer
	// is body-too-large. Default 0: no limit.
	Max Size `yaml:"max"`
}
