package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/framing"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// maxDrain is how much of a reply is still taken from the upstream after its caller
// hung up, in bytes, so that the upstream is not disturbed.
const maxDrain = 1 << 20

// lastWriteTime is how long a reply that is there waits for the request's last write to
// return, which it nearly always has.
const lastWriteTime = 100 * time.Millisecond

// copyBuffers are what replies are copied through.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// reply settles the attempt by the reply's head and passes the reply on.
func (ex *exchange) reply(res *http.Response) {
	if ex.fenced && ex.grpc && res.StatusCode == http.StatusOK {
		ex.replyCall(res)
		return
	}
	defer func() { _ = res.Body.Close() }() // read to its end, or given up
	// A request counts as sent whole before its last write. If that stands still the
	// upstream has answered early, and could be sent the rest after its successor. So it has
	// if our kernel still holds a part, and if the request was broken off.
	sentWhole := ex.headCame() && ex.send.Rests(lastWriteTime) && ex.send.Arrived() && ex.stopped() == nil
	ex.seal()
	var floor tokens.Generation
	var kept *captured
	if ex.fenced {
		ex.outcome = classify(&ex.rt.Route, res)
		if ex.keyed() {
			// Durable before the caller has its answer, so that the answer and a
			// replay can not contradict each other.
			s, capture := ex.keepReply(res)
			ex.early = s
			ex.record(s)
			if capture {
				kept = &captured{ReadCloser: res.Body, most: ex.rt.MaxReply}
				res.Body = kept
			}
		}
		if sentWhole {
			floor = ex.settle(ex.outcome)
		} else {
			floor = ex.p.authority.Floor(ex.attempt.Job)
			// The upstream answered early and the request is still flowing: a
			// newer generation waits for its end, or cuts it.
			defer ex.settleEarly(ex.outcome)
		}
	}
	if ex.counts() {
		ex.noteOvertaken()
		if !ex.fenced {
			floor = ex.floor()
		}
		ex.span.SetFence(ex.fence.jobID, uint64(ex.fence.generation), uint64(floor), wire.DecisionForwarded, "", ex.outcome.String())
		ex.span.SetWouldRefuse(ex.would)
		ex.span.SetStatus(res.StatusCode)
	}
	h := ex.w.Header()
	copyReplyHeader(h, res.Header)
	if ex.rt.Fencing != FencingOff {
		ex.fenceHeaders(h, decisionForwarded, floor)
	} else {
		keepOwn(h, res.Header)
	}
	if res.StatusCode == http.StatusNotModified && ex.r.ProtoMajor == 1 {
		describeUnsent(h)
	}
	if ex.broken() || ex.r.Header["Upgrade"] != nil {
		ex.closeAfter(h)
	}
	announced := ex.announce(h, res.Trailer)
	if len(res.Trailer) > 0 && ex.r.ProtoMajor == 1 {
		delete(h, "Content-Length") // HTTP/1 has trailers behind chunks only
	}
	ex.talk(true)
	ex.w.WriteHeader(res.StatusCode)
	err := ex.copyBody(res)
	if kept != nil && kept.whole && !kept.over && err == nil && len(res.Trailer) == 0 {
		ex.record(tokens.Settlement{
			Outcome: ex.outcome, Status: res.StatusCode, Location: res.Header.Get("Location"),
			Reply: &tokens.Reply{Header: keptHeader(res.Header), Body: kept.body},
		})
	}
	ex.complete, ex.unbounded, ex.trailed = err == nil, res.ContentLength < 0, len(res.Trailer) > 0
	if err != nil {
		// Too late for an answer: the caller must not take this for a whole
		// reply. It gets what there was, and the server closes the connection.
		_ = ex.rc.Flush() // else it learns less
		if !ex.r.ProtoAtLeast(1, 1) && h["Content-Length"] == nil {
			ex.resetCaller()
		}
		panic(http.ErrAbortHandler)
	}
	ex.passTrailer(h, res.Trailer, announced)
}

// passTrailer passes the upstream's trailers on, those that it did not announce as well.
func (ex *exchange) passTrailer(h, trailer http.Header, announced map[string]bool) {
	for name, values := range trailer {
		switch {
		case ex.rt.Fencing != FencingOff && ownHeader(name):
		case announced[name]:
			h[name] = values
		default:
			h[http.TrailerPrefix+name] = values
		}
	}
}

// announce tells the caller which trailers will follow, and returns their names.
func (ex *exchange) announce(h, trailer http.Header) map[string]bool {
	if len(trailer) == 0 {
		return nil
	}
	announced := make(map[string]bool, len(trailer))
	for name := range trailer {
		if ex.rt.Fencing == FencingOff || !ownHeader(name) {
			announced[name] = true
			h.Add("Trailer", name)
		}
	}
	return announced
}

// settleEarly ends an attempt whose reply came before its request had been sent whole. Whether
// the upstream got the rest nobody can tell once the connection is closed.
func (ex *exchange) settleEarly(o tokens.Outcome) {
	ex.endUpload()
	ex.send.Abort()
	ex.send.Quiesce()
	if ex.keyed() {
		// Whether a later body is the same is known only now, or never will be.
		s := ex.early
		if s.BodyDigest = tokens.BodyNeverKnown; ex.received() {
			s.BodyDigest = ex.digest.Sum()
		}
		ex.record(s)
	}
	ex.settleClosed(o)
	if ex.broken() && ex.complete && ex.rc.Flush() == nil {
		// The caller is still sending: it must find the reply, not a reset.
		if ex.r.ProtoMajor == 1 {
			// With trailers to come the last chunk would end the reply without them, and
			// look whole.
			ex.partWays(ex.unbounded && !ex.trailed && ex.r.ProtoMinor > 0)
		} else if !ex.unbounded {
			ex.partStream(false)
		}
	}
}

// copyBody passes the reply's body on. An error means that the caller has an
// incomplete reply.
func (ex *exchange) copyBody(res *http.Response) error {
	if res.Body == http.NoBody {
		return nil
	}
	if b, ok := res.Body.(*directBodyReader); ok {
		if passed, gone := b.pass(ex.w.Write); passed {
			return gone // it came with its head, so nothing has to be waited for
		}
	}
	buf := copyBuffers.Get().(*[]byte)
	defer func() { copyBuffers.Put(buf) }()
	p := &pacer{w: ex.w, rc: ex.rc}
	defer p.end()
	stream := res.ContentLength < 0 || isEventStream(res.Header)
	if stream {
		ex.flow()
	}
	left := res.ContentLength
	var gone error
	waiting := stream // for the head to be passed on
	if ahead := buffered(res.Body); stream && ahead == 0 {
		gone, waiting = p.flush(), false // a reader of events waits for it
	} else if !stream && ahead < left {
		p.later()
	}
	// The deadline that was set for the head is good for what comes with it; on HTTP/2 it
	// would strike while the upstream pauses.
	fresh := ex.r.ProtoMajor == 1
	for drained := 0; ; fresh = false {
		ex.timer.Reset(ex.rt.IdleTimeout) // what the caller took to take a piece is not the upstream's pause
		n, err := res.Body.Read(*buf)
		ex.timer.Reset(ex.rt.IdleTimeout)
		if n > 0 && gone == nil && (fresh || ex.talk(true)) {
			if gone = p.write((*buf)[:n]); gone != nil {
				buf = ex.leave(buf)
			}
			if left -= int64(n); gone == nil && stream {
				gone, waiting = p.flush(), false
			} else if left > 0 {
				p.later()
			}
		}
		if gone != nil {
			if drained += n; drained > maxDrain {
				return gone
			}
		}
		switch {
		case err == io.EOF && waiting:
			return p.flush() // else the server announces that nothing will come
		case err == io.EOF:
			return gone
		case err != nil:
			return fmt.Errorf("read reply: %w", err)
		}
	}
}

// leave returns what to copy through after a write of buf to the caller failed. A server of
// HTTP/2 returns from it when the stream is reset, perhaps before it has taken what it was
// given: what others read into buf would go to this caller.
func (ex *exchange) leave(buf *[]byte) *[]byte {
	if ex.r.ProtoMajor == 1 {
		return buf
	}
	return copyBuffers.Get().(*[]byte)
}

// buffered is how much of a body is known to have come with its head, in bytes.
func buffered(body io.Reader) int64 {
	if b, ok := body.(interface{ Buffered() int }); ok {
		return int64(b.Buffered())
	}
	return 0
}

func isEventStream(h http.Header) bool {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(t), "text/event-stream")
}

// failed settles an attempt that got no reply, and says what is known.
func (ex *exchange) failed(err error) {
	if ex.fenced {
		ex.settleGone()
	}
	ex.seal()
	if cause := ex.stopped(); cause != nil {
		err = cause
	}
	ex.noteOvertaken()
	ex.endUpload()
	ex.refuse(*ex.failure(err))
}

// failure is the answer for a request that got no reply.
func (ex *exchange) failure(err error) *answer {
	untouched := !ex.send.Touched()
	unknown := "the upstream may have done it: find out before it is repeated"
	var shut *barred
	switch {
	case errors.As(err, &shut):
		a := shut.answer
		if a.detail += "; nothing was sent"; !untouched {
			a.detail = shut.detail + "; this request was cut while it was under way, the upstream saw it incomplete or not at all"
		}
		return &a
	case errors.Is(err, errOvertaken), ex.send.Vetoed():
		a := ex.judged(ex.p.authority.Overtaken(&ex.attempt))
		if !untouched {
			a.detail += "; this write was cut while it was being sent, the upstream saw it incomplete or not at all"
		}
		return a
	case errors.Is(err, errTooLarge), errors.Is(err, errBody), errors.Is(err, errStalled) && !errors.Is(err, errCallBroke):
		return brokenBody(ex, err)
	case untouched:
		return &answer{code: wire.CodeUpstreamUnreachable, detail: "nothing was sent: " + reason(err)}
	case ex.send.Refused():
		return &answer{code: wire.CodeUpstreamUnreachable, detail: "the upstream refused the request before it acted on any of it"}
	case errors.Is(err, errTimeout):
		return &answer{code: wire.CodeUpstreamTimeout, detail: fmt.Sprintf("the upstream did not answer within %s; %s", ex.rt.Timeout, unknown)}
	}
	return &answer{code: wire.CodeUpstreamFailed, detail: reason(err) + "; " + unknown}
}

// reason says what went wrong without the addresses and names that net errors carry.
func reason(err error) string {
	var fault framing.Fault
	if errors.As(err, &fault) {
		return fault.Error()
	}
	for _, known := range []error{
		errShutdown, errTimeout, errStalled, errSentBefore, errStatus, errLength, errSwitch, errTunnel, errTooLarge, errBody, errNotTaken, errNotHTTP2,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the upstream closed the connection before its reply was whole"
	case errors.Is(err, context.Canceled):
		return "the caller hung up"
	}
	return "the connection to the upstream failed"
}
