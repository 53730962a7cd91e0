package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// maxDrain is how much of a reply is still taken from the upstream after its caller
// hung up, in bytes, so that the upstream is not disturbed.
const maxDrain = 1 << 20

// copyBuffers are what replies are copied through.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// reply settles the attempt by the reply's head and passes the reply on.
func (ex *exchange) reply(res *http.Response) {
	if ex.fenced && ex.grpc && res.StatusCode == http.StatusOK {
		ex.replyCall(res)
		return
	}
	defer func() { _ = res.Body.Close() }() // read to its end, or given up
	sentWhole := ex.headCame()
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
		ex.span.SetFence(ex.fence.jobID, uint64(ex.fence.generation), uint64(floor), wire.DecisionForwarded, "", ex.outcome.String())
		ex.span.SetStatus(res.StatusCode)
	}
	h := ex.w.Header()
	copyReplyHeader(h, res.Header)
	if ex.rt.Fencing != FencingOff {
		ex.fenceHeaders(h, decisionForwarded, floor)
	}
	if ex.broken() {
		ex.closeAfter(h)
	}
	announce(h, res)
	if len(res.Trailer) > 0 && ex.r.ProtoMajor == 1 {
		delete(h, "Content-Length") // HTTP/1 has trailers behind chunks only
	}
	ex.talk(true)
	ex.w.WriteHeader(res.StatusCode)
	if ex.grpc && res.ContentLength != 0 {
		_ = ex.rc.Flush() // its caller may wait for the head before it says more
	}
	err := ex.copyBody(res)
	if kept != nil && kept.whole && !kept.over && err == nil && len(res.Trailer) == 0 {
		ex.record(tokens.Settlement{
			Outcome: ex.outcome, Status: res.StatusCode, Location: res.Header.Get("Location"),
			Reply: &tokens.Reply{Header: keptHeader(res.Header), Body: kept.body},
		})
	}
	ex.complete, ex.unbounded = err == nil, res.ContentLength < 0
	if err != nil {
		// Too late for an answer: the caller must not take this for a whole
		// reply. The server closes the connection.
		panic(http.ErrAbortHandler)
	}
	passTrailer(h, res)
}

// settleEarly ends an attempt whose reply came before its request had been sent whole.
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
	ex.settle(o)
	if ex.broken() && ex.r.ProtoMajor == 1 && ex.complete && ex.rc.Flush() == nil {
		// The caller is still sending: it must find the reply, not a reset.
		ex.partWays(ex.unbounded && ex.r.ProtoMinor > 0)
	}
}

// copyBody passes the reply's body on. An error means that the caller has an
// incomplete reply.
func (ex *exchange) copyBody(res *http.Response) error {
	if res.Body == http.NoBody {
		return nil
	}
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	flush := res.ContentLength < 0 || isEventStream(res.Header)
	var gone error
	fresh := true // the deadline that was set for the head
	for drained := 0; ; fresh = false {
		n, err := res.Body.Read(*buf)
		ex.timer.Reset(ex.rt.IdleTimeout)
		if n > 0 && gone == nil && (fresh || ex.talk(true)) {
			if _, gone = ex.w.Write((*buf)[:n]); gone == nil && flush {
				gone = ex.rc.Flush()
			}
		}
		if gone != nil {
			if drained += n; drained > maxDrain {
				return gone
			}
		}
		switch {
		case err == io.EOF:
			return gone
		case err != nil:
			return fmt.Errorf("read reply: %w", err)
		}
	}
}

func isEventStream(h http.Header) bool {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && t == "text/event-stream"
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
	ex.endUpload()
	ex.refuse(*ex.failure(err))
}

// failure is the answer for a request that got no reply.
func (ex *exchange) failure(err error) *answer {
	untouched := !ex.send.Touched()
	unknown := "the upstream may have done it: find out before it is repeated"
	switch {
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
	for _, known := range []error{errShutdown, errTimeout, errStalled, errSentBefore, errStatus, errTooLarge, errBody, errNotTaken, errNotHTTP2} {
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
