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
