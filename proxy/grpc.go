package proxy

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// isGRPC reports whether a request is a gRPC call. gRPC-Web is not: it has its status in
// the body and passes as ordinary HTTP.
func isGRPC(r *http.Request) bool {
	if r.Method != http.MethodPost {
		return false
	}
	t := r.Header["Content-Type"]
	if len(t) != 1 || len(t[0]) < len(wire.TypeGRPC) || !strings.EqualFold(t[0][:len(wire.TypeGRPC)], wire.TypeGRPC) {
		return false
	}
	rest := t[0][len(wire.TypeGRPC):]
	return rest == "" || rest[0] == '+' || rest[0] == ';'
}

// classifyCall says what the status of a gRPC call tells about the write. h is where the
// status stands: the trailers, or the head of a reply that has nothing else.
func classifyCall(rt *Route, res *http.Response, h http.Header) tokens.Outcome {
	if o, ok := rt.Outcomes[res.StatusCode]; ok {
		return o
	}
	values := h[wire.HeaderGRPCStatus]
	if len(values) != 1 {
		return tokens.OutcomeUnknown
	}
	status, err := strconv.ParseUint(values[0], 10, 8)
	if err != nil {
		return tokens.OutcomeUnknown
	}
	switch status {
	case wire.GRPCOK:
		return tokens.Applied
	case wire.GRPCInvalidArgument, wire.GRPCNotFound, wire.GRPCAlreadyExists, wire.GRPCPermissionDenied,
		wire.GRPCResourceExhausted, wire.GRPCFailedPrecondition, wire.GRPCAborted, wire.GRPCOutOfRange,
		wire.GRPCUnimplemented, wire.GRPCUnauthenticated:
		return tokens.Declined
	}
	// CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE and the like may come from halfway.
	return tokens.OutcomeUnknown
}

// replyCall passes the reply to a gRPC call on. Its attempt is settled at the end, where
// its status comes, and not at the head, which says only that the call has begun.
func (ex *exchange) replyCall(res *http.Response) {
	defer func() { _ = res.Body.Close() }() // read to its end, or given up
	ex.headCame()
	ex.seal()
	h := ex.w.Header()
	copyReplyHeader(h, res.Header)
	if headIsAll(res) {
		floor := ex.settleCall(res, classifyCall(&ex.rt.Route, res, res.Header))
		ex.fenceHeaders(h, decisionForwarded, floor)
		h["Content-Length"] = nil // else the server makes one up, and so a body
		ex.talk(true)
		ex.w.WriteHeader(res.StatusCode)
		ex.complete = true
		return
	}
	ex.fenceHeaders(h, decisionForwarded, ex.p.authority.Floor(ex.attempt.Job))
	announced := ex.announce(h, res.Trailer)
	ex.talk(true)
	ex.w.WriteHeader(res.StatusCode)
	_ = ex.rc.Flush() // a caller that has gone shows at the next write
	ex.flow()
	if err := ex.copyCall(res); err != nil {
		ex.callBroke(err)
		return
	}
	ex.settleCall(res, classifyCall(&ex.rt.Route, res, res.Trailer))
	ex.talk(false)
	ex.passTrailer(h, res.Trailer, announced)
	h[http.TrailerPrefix+wire.HeaderOutcome] = outcomeValues[ex.outcome]
	ex.complete = true
}

// headIsAll reports whether the status of a call is in its head: only if nothing follows that
// (Trailers-Only). There a status is worth nothing for a call that goes on.
func headIsAll(res *http.Response) bool {
	if res.ContentLength != 0 || res.Header[wire.HeaderGRPCStatus] == nil {
		return false
	}
	_, err := res.Body.Read(make([]byte, 1)) // there is none, but an end
	return err == io.EOF && res.Trailer[wire.HeaderGRPCStatus] == nil
}

// copyCall passes the messages of the reply on, each at once. An error means that the
// reply did not come to its end. A caller that hangs up does not end it: its outcome
// is still to come, for which the route's timeout is left.
func (ex *exchange) copyCall(res *http.Response) error {
	buf := copyBuffers.Get().(*[]byte)
	defer func() { copyBuffers.Put(buf) }()
	var gone time.Time
	for {
		n, err := res.Body.Read(*buf)
		if gone.IsZero() {
			ex.timer.Reset(ex.rt.IdleTimeout)
		} else {
			ex.timer.Reset(min(ex.rt.IdleTimeout, time.Until(gone.Add(ex.rt.Timeout))))
		}
		if n > 0 && gone.IsZero() && ex.talk(true) {
			_, failed := ex.w.Write((*buf)[:n])
			if failed == nil {
				failed = ex.rc.Flush()
			}
			if failed != nil {
				gone, buf = time.Now(), ex.leave(buf)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// settleCall ends the attempt of a call whose status came, and returns the job's floor.
func (ex *exchange) settleCall(res *http.Response, o tokens.Outcome) tokens.Generation {
	ex.outcome = o
	ex.mu.Lock()
	whole := ex.sent
	ex.mu.Unlock()
	whole = whole && ex.send.Rests(lastWriteTime) && ex.send.Arrived()
	if !whole {
		// The upstream has its mind made up while the caller is still sending, or while
		// the last write stands still.
		ex.endUpload()
		ex.send.Abort()
		ex.send.Quiesce()
	}
	// The reply is not kept: it is nothing without its trailers.
	s := tokens.Settlement{Outcome: o, Status: res.StatusCode}
	if !ex.received() {
		s.BodyDigest = tokens.BodyNeverKnown
	}
	ex.record(s)
	settle := ex.settle
	if !whole {
		settle = ex.settleClosed
	}
	floor := settle(o)
	ex.noteOvertaken()
	ex.span.SetWouldRefuse(ex.would)
	ex.span.SetFence(ex.fence.jobID, uint64(ex.fence.generation), uint64(floor), wire.DecisionForwarded, "", o.String())
	ex.span.SetStatus(res.StatusCode)
	return floor
}

// callBroke settles a call whose reply broke off, and says so in the trailers: the head
// has gone out, but the status has not.
func (ex *exchange) callBroke(err error) {
	ex.settleGone()
	if cause := ex.stopped(); cause != nil {
		err = cause
	}
	ex.noteOvertaken()
	ex.endUpload()
	a := ex.failure(errors.Join(errCallBroke, err))
	ex.code = a.code.Name
	ex.p.log.Info("call broken off", ex.attrs("code", a.code.Name, "remote", ex.r.RemoteAddr)...)
	p := wire.NewProblem(a.code, a.detail)
	p.Outcome = ex.outcome.String()
	ex.talk(false)
	h := ex.w.Header()
	for name, values := range p.GRPCTrailer() {
		h[http.TrailerPrefix+name] = values
	}
	h[http.TrailerPrefix+wire.HeaderReason] = []string{a.code.Name}
	h[http.TrailerPrefix+wire.HeaderOutcome] = outcomeValues[ex.outcome]
}
