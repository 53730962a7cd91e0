package proxy

import "errors"

// Why a write was stopped after it had been admitted.
var (
	// errOvertaken: a newer generation took over.
	errOvertaken = errors.New("a newer generation took over")
	// errVetoed is returned by a connection's Write when the gate refused the
	// first byte.
	errVetoed = errors.New("vetoed at the gate")
	// errSentBefore is returned by a connection's Write when bytes of the same
	// request went out on another connection: the transport tried to send it a
	// second time.
	errSentBefore = errors.New("the request was sent before")
	// errNotQuiet is returned by a connection's Write when the connection had
	// been idle and the upstream has closed it meanwhile, or said something
	// that nobody asked for.
	errNotQuiet = errors.New("the upstream closed the idle connection")
	// errTimeout: the reply's head did not come in time.
	errTimeout = errors.New("the upstream did not answer in time")
	// errStalled: a body stood still longer than the idle timeout.
	errStalled = errors.New("the body stood still for too long")
	// errShutdown: the drain time was over.
	errShutdown = errors.New("the proxy is shutting down")
	// errTooLarge: the body exceeds the route's limit.
	errTooLarge = errors.New("the body is too large")
	// errStatus: the reply's status is none.
	errStatus = errors.New("the upstream answered with a status that is none")
	// errLength: the reply's length is none, or said twice.
	errLength = errors.New("the upstream answered with a length that is none")
	// errCallBroke: the reply to a gRPC call did not come to its end.
	errCallBroke = errors.New("the reply broke off")
	// errSwitch: the upstream changed protocols, and not to what was asked for.
	errSwitch = errors.New("the upstream changed to a protocol that nobody asked for")
	// errTunnel: one side of a tunnel broke off.
	errTunnel = errors.New("one side of the tunnel broke off")
	// errBody: the caller's body could not be read to its end.
	errBody = errors.New("the request body broke off")
)

// Why a request as it arrived has more than one reading.
var (
	errMethodToken  = errors.New("the method is not a token")
	errTargetBytes  = errors.New("the request target has a blank or a control byte; percent-encode it")
	errUserinfo     = errors.New("the request target names a user; send credentials in Authorization")
	errTargetPath   = errors.New(":path must begin with a slash")
	errNoHost       = errors.New("the request names no host")
	errHostBytes    = errors.New("the host has bytes that no host has")
	errTwoHosts     = errors.New("Host and :authority name different hosts; send :authority only")
	errLengthHeader = errors.New("Content-Length must be the length of the body, in decimal digits, once")
	errLengthAlias  = errors.New("a header looks like Content-Length or Transfer-Encoding to some servers; leave it out")
	errExpect       = errors.New("the only expectation that can be met is 100-continue, sent once")
)

// Why a request is ambiguous.
var (
	errPathForm   = errors.New("the request target must be a path or a URL with one")
	errPathDots   = errors.New("the path has dot segments, which servers resolve differently; send the resolved path")
	errPathNUL    = errors.New("the path has a NUL byte")
	errPathRoutes = errors.New("the path matches different routes as different servers read it; send it decoded, in the route's case, without // \\ and ;")
	errPathBytes  = errors.New("the path begins with // and has bytes that can not be passed on unchanged; percent-encode them")
	errUpgrade    = errors.New("the request wants to upgrade its connection, and messages inside a tunnel can not be fenced")
)

// Why an upgrade is not let through, on a route that allows WebSocket.
var (
	errNotWebSocket = errors.New("the only upgrade that this route lets through is Upgrade: websocket, alone")
	errHandshake    = errors.New("an upgrade to websocket is a GET of HTTP/1.1 without a body, with Connection: Upgrade, one Sec-WebSocket-Key and Sec-WebSocket-Version: 13")
	errUpgradeKey   = errors.New("is on an upgrade, which has no reply that could be repeated; send it without")
)

// Why an HTTP/2 upstream was given up.
var (
	errNotTaken = errors.New("the upstream did not take the request's body")
	errNotHTTP2 = errors.New("the upstream does not speak HTTP/2")
)

// Why a reply was given up before its head was whole.
var (
	errHeadTooLarge = errors.New("the reply's head is too large")
	errInterim      = errors.New("the upstream sent too many 1xx replies")
)

// errNewline is returned for a header that would not end where it seems to. The server
// lets none in; this is the last wall.
var errNewline = errors.New("a header has a line break in it")

// errNoFence is returned when a request carries neither job nor generation.
var errNoFence = errors.New("neither job nor generation")
