package proxy

import (
	"context"
	"net"
	"net/http"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/framing"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// defaultIdle is the idle timeout of requests that belong to no route.
const defaultIdle = 60 * time.Second

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// exchange is one request from its arrival to the end of its answer.
type exchange struct {
	p     *Proxy
	rt    *route
	w     http.ResponseWriter
	r     *http.Request
	rc    *http.ResponseController // is control, which is here to be allocated with the rest
	start time.Time
	span  *telemetry.Span
	// traceID is of the caller's trace, or of ours.
	traceID string

	// grpc tells that the request is a gRPC call, hasty that little patience is left
	// for the rest of its body.
	grpc, hasty bool

	unframed   bool             // the head has a fault in its framing
	principals *auth.Principals // that count for it
	// writer is whom the caller's certificate names; nil where certificates mean
	// nothing.
	writer   *auth.Principal
	upgrade  bool // it asks to become a tunnel
	fenced   bool
	fence    fence
	attempt  tokens.Attempt
	admitted bool
	outcome  tokens.Outcome
	decision telemetry.Decision
	code     string
	took     time.Duration // to the head of the answer, where more followed it
	// would is the code of a refusal that a route which observes has not made, and
	// overtaken tells that one was due after the admission. late tells that a record
	// is being made that nobody waits for.
	would     string
	overtaken atomic.Bool
	late      bool

	send   Send
	ctx    sendContext
	digest bodyDigest // of the caller's body; nil for a write without a key
	early  tokens.Settlement
	// complete tells that a reply was passed on whole, unbounded that it has no
	// length and so ends with a last chunk.
	complete, unbounded bool
	trailed             bool  // it has trailers
	whole               bool  // the body is in memory
	kept                int64 // of it, in bytes, beyond the pooled buffer
	pooled              *[]byte
	hushed              *framing.Conn // on which the server does not look ahead
	// lasting tells that recheck has to look at the exchange, checked is the count of reloads at
	// which it did; flows is when a reply without a length began.
	lasting atomic.Bool
	checked atomic.Uint64
	flows   time.Time // under mu
	// streamed tells that the body is passed on as it comes, after prefix; the
	// stream is made when it is handed to the sender, which then ends it.
	streamed bool
	prefix   []byte
	stream   *stream

	control http.ResponseController

	// shard, next and prev are the register's.
	shard      *registerShard
	next, prev *exchange

	mu sync.Mutex
	// cause is why the exchange was stopped, the first one counts.
	cause  error
	cancel context.CancelCauseFunc
	caller net.Conn // once it was taken from the server, for a tunnel
	// timer bounds the wait for the reply's head, then each pause in its body.
	timer bound
	// pause bounds a read from the caller.
	pause    bound
	muted    bool // that read was broken off, and may go on
	reading  bool // the caller's body is being received
	deaf     bool // a read from the caller was broken off
	sent     bool // the request was sent whole
	answered bool // the reply's head came
	talking  bool // a reply, or a 1xx one, is being passed on to the caller
	over     bool // nothing of the caller's connection may be touched any more

	// final protects the header map: 1xx replies come in a goroutine of the
	// transport until sealed is set.
	final  sync.Mutex
	sealed bool
}

// Cut implements tokens.Cutter.
func (ex *exchange) Cut() {
	if ex.rt.Observe {
		ex.overtaken.Store(true)
		return
	}
	ex.stop(errOvertaken)
}

// stop breaks the exchange off: the reception of its body, its way to the upstream and
// its connection. It may be called at any time from any goroutine.
func (ex *exchange) stop(cause error) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.over {
		return
	}
	if ex.cause == nil {
		ex.cause = cause
	}
	if ex.reading {
		// A read from the caller may block, and whoever reads holds the body.
		// Never without a reader: the server's own look-ahead would take it
		// for the end of the connection.
		ex.deaf = true
		_ = ex.rc.SetReadDeadline(longAgo) // else the idle timeout ends it
	}
	if ex.talking {
		// A caller that does not read must not keep a newer generation waiting.
		_ = ex.rc.SetWriteDeadline(ex.lastWrite()) // else the idle timeout ends it
	}
	if ex.caller != nil {
		_ = ex.caller.SetDeadline(longAgo) // else the idle timeout ends it
	}
	ex.send.Abort()
	if ex.cancel != nil {
		ex.cancel(cause)
	}
}

// lastWrite is the deadline for what is being written to a caller when the exchange is
// stopped: at once, but a gRPC call can still be told why, in its trailers, and over HTTP/2 so
// can whoever has got 1xx replies only: a deadline that has passed resets the stream there.
func (ex *exchange) lastWrite() time.Time {
	if ex.grpc || ex.r.ProtoMajor > 1 && !ex.answered {
		return time.Now().Add(partTime)
	}
	return longAgo
}

// shutdown breaks the exchange off at the end of a drain.
func (ex *exchange) shutdown() { ex.stop(errShutdown) }

// talk bounds what is written to the caller next by the idle timeout. False means that
// the exchange was stopped, and with reply set that nothing may be passed on any more.
func (ex *exchange) talk(reply bool) bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.talking = reply
	if reply && ex.cause != nil {
		_ = ex.rc.SetWriteDeadline(ex.lastWrite()) // the writes fail, as they should
		return false
	}
	idle := defaultIdle
	if ex.rt != nil {
		idle = ex.rt.IdleTimeout
	}
	if ex.r.ProtoMajor > 1 {
		// It strikes a stream also while nothing is written. An upstream that pauses for
		// too long is for timer to end, which leaves its caller an answer.
		idle += partTime
	}
	_ = ex.rc.SetWriteDeadline(time.Now().Add(idle)) // a transport without deadlines has its own bounds
	return true
}

// said notes that all there was to pass on has been written, and that nobody knows when there
// will be more.
func (ex *exchange) said() {
	if ex.r.ProtoMajor == 1 {
		ex.talk(false)
		return
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.talking = false
	_ = ex.rc.SetWriteDeadline(time.Time{}) // one could be set, so it can be lifted
}

// seal lets no 1xx reply through any more.
func (ex *exchange) seal() {
	ex.final.Lock()
	ex.sealed = true
	ex.final.Unlock()
}

// stopped returns why the exchange was stopped, or nil.
func (ex *exchange) stopped() error {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.cause
}

// begin sets how the way to the upstream is cancelled. False means that the exchange
// has been stopped already.
func (ex *exchange) begin(cancel context.CancelCauseFunc) bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.cancel = cancel
	return ex.cause == nil
}

// Gate implements Watcher. An observed write passes it whatever it says.
func (ex *exchange) Gate() bool { return !ex.fenced || ex.attempt.Gate() || ex.rt.Observe }

// SentWhole implements Watcher. The route's timeout runs from here. An upgrade is never
// whole: whatever its caller sends belongs to it.
func (ex *exchange) SentWhole() {
	if ex.fenced && !ex.upgrade {
		ex.attempt.SentWhole()
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.sent = true
	if !ex.answered && !ex.over {
		ex.timer.Reset(ex.rt.Timeout)
	}
}

// overdue is called by the register when a bound has passed.
func (ex *exchange) overdue(now time.Time) {
	ex.mu.Lock()
	if ex.pause.passed(now) && ex.reading && ex.cause == nil && !ex.over {
		ex.pause.Stop()
		ex.muted = true
		_ = ex.rc.SetReadDeadline(longAgo) // a transport without deadlines has its own bounds
	}
	struck := ex.timer.passed(now) && !ex.over
	ex.mu.Unlock()
	if struck {
		ex.timer.Stop()
		ex.expire()
	}
}

// expire breaks off the wait for the upstream.
func (ex *exchange) expire() {
	ex.mu.Lock()
	cause := errTimeout
	if ex.answered {
		cause = errStalled
	}
	ex.mu.Unlock()
	ex.stop(cause)
}

// headCame notes that the reply's head is there, and reports whether the request had
// been sent whole by then.
func (ex *exchange) headCame() (sentWhole bool) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.answered = true
	ex.timer.Reset(ex.rt.IdleTimeout)
	return ex.sent
}

// Informational implements Watcher: 1xx replies are passed on (RFC 9110, section 15.2).
// It runs in a goroutine of the transport while the handler waits for the final head.
func (ex *exchange) Informational(code int, header textproto.MIMEHeader) error {
	if code == http.StatusContinue {
		return nil // the server sends its own when the body is first read
	}
	if !ex.r.ProtoAtLeast(1, 1) {
		return nil // HTTP/1.0 would take it for the reply
	}
	ex.final.Lock()
	defer ex.final.Unlock()
	if ex.sealed || !ex.talk(true) {
		return nil
	}
	h := ex.w.Header()
	copyReplyHeader(h, http.Header(header))
	delete(h, "Content-Type")
	for name, values := range header {
		if name == "Content-Type" {
			h[name] = values
		}
	}
	if ex.r.ProtoMajor == 2 {
		// Makes the server copy the map. It reads it in a goroutine of its own,
		// also after a caller that hangs up has made WriteHeader return.
		h["Content-Length"] = nil
	}
	ex.w.WriteHeader(code)
	clear(h)
	ex.said()
	return nil
}

// endUpload makes sure that nobody reads the caller's body any more.
func (ex *exchange) endUpload() {
	s := ex.stream
	if s == nil {
		return
	}
	select {
	case <-s.done:
	default:
		// The reply is there and the upload is not: nobody wants the rest. What
		// the server still holds of the reply has to go out all the same.
		ex.talk(false)
		ex.stop(errBody)
		<-s.done
	}
}

// receiving notes whether the caller's body is being received, and reports whether the
// exchange goes on.
func (ex *exchange) receiving(on bool) bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.reading = on
	return ex.cause == nil
}

// broken reports whether the caller's connection can not be used for another request.
func (ex *exchange) broken() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.deaf || ex.reading
}

// finish ends the exchange: what was still running for it is stopped before the server
// gets its connection back.
func (ex *exchange) finish() {
	ex.endUpload()
	ex.mu.Lock()
	ex.over = true
	if ex.deaf {
		// The server reads a little more, so that a caller which is still
		// sending finds its answer before the connection is reset.
		_ = ex.rc.SetReadDeadline(time.Now().Add(partTime)) // else it closes at once
	}
	ex.timer.Stop()
	if ex.cancel != nil {
		ex.cancel(nil)
	}
	sent := ex.sent
	ex.mu.Unlock()
	ex.send.Done()
	if ex.hushed != nil {
		ex.hushed.Mute(false)
	}
	if ex.kept > 0 {
		ex.p.kept.Add(-ex.kept)
	}
	if ex.pooled != nil && (sent || !ex.admitted && !ex.streamed) {
		// Only now nobody reads the body any more. What was received ahead of a stream
		// may still be read if that was broken off.
		small.Put(ex.pooled)
	}
}
