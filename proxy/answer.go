package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/framing"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

const (
	// retrySoon is the Retry-After of what is over in a moment.
	retrySoon = time.Second
	// partTime is how long a caller that is still sending gets to read its answer.
	partTime = framing.PartTime
)

// answer is an answer that the proxy makes itself.
type answer struct {
	code    wire.Code
	detail  string
	headers []string
	after   time.Duration
	refusal *tokens.Refusal
	replay  *tokens.WriteRecord // to be answered with, instead of a problem
}

func overloaded(why string) answer {
	return answer{code: wire.CodeOverloaded, detail: why + "; nothing was sent", after: time.Second}
}

func (ex *exchange) fenceRequired() *answer {
	n := ex.p.fences.names
	return &answer{
		code:    wire.CodeFenceRequired,
		detail:  fmt.Sprintf("a %s on route %s must carry %s and %s; claim the job to get a generation", ex.r.Method, ex.rt.Name, n[0], n[1]),
		headers: []string{n[0], n[1]},
	}
}

func (ex *exchange) keyRequired() *answer {
	return &answer{
		code:    wire.CodeKeyRequired,
		detail:  fmt.Sprintf("route %s requires %s, a name for what this write is meant to do", ex.rt.Name, ex.p.fences.names[3]),
		headers: []string{ex.p.fences.names[3]},
	}
}

// judged turns an error of the authority into an answer.
func (ex *exchange) judged(err error) *answer {
	a := &answer{}
	errors.As(err, &a.refusal)
	code, ok := wire.ForError(err)
	a.code = code
	g := ex.fence.generation
	if ok && ex.rt.Observe && a.byFence() {
		return a // nobody is told more of it
	}
	switch {
	case !ok:
		// The caller is gone, or the proxy gives up a drain.
		*a = overloaded("the request was given up while it waited: " + err.Error())
	case errors.Is(err, tokens.ErrKeyReused), errors.Is(err, tokens.ErrWriteInProgress),
		errors.Is(err, tokens.ErrAlreadyApplied), errors.Is(err, tokens.ErrOutcomeUnknown):
		ex.keyAnswer(a, err)
	case errors.Is(err, tokens.ErrStaleGeneration):
		if a.refusal.Write == nil {
			a.refusal.Key, a.refusal.Write = ex.fence.key, ex.p.authority.Known(ex.r.Context(), ex.attempt.Job, ex.fence.key)
		}
		a.detail = fmt.Sprintf("generation %d was %s, the floor is %d; stop this worker", g, a.refusal.Ended, a.refusal.Floor)
	case errors.Is(err, tokens.ErrUnissuedGeneration):
		a.detail = fmt.Sprintf("generation %d was never issued for this job; use the one that the claim returned", g)
	case errors.Is(err, tokens.ErrUnknownJob):
		a.detail = fmt.Sprintf("route %s accepts only generations issued here, and the job was never claimed here; claim it first", ex.rt.Name)
	case errors.Is(err, tokens.ErrLeaseMismatch):
		a.detail = fmt.Sprintf("%s is missing or is not the lease id of generation %d; send the one that the claim returned, to a proxy on the same store", ex.p.fences.names[2], g)
	case errors.Is(err, tokens.ErrLeaseExpired):
		a.detail = fmt.Sprintf("route %s requires a live lease and generation %d has none; renew it", ex.rt.Name, g)
	case errors.Is(err, tokens.ErrTakeoverPending):
		a.detail = fmt.Sprintf("writes of older generations did not settle within %s; nothing was sent, try again", ex.rt.TakeoverWait)
		a.after = time.Second
	case errors.Is(err, tokens.ErrOverloaded):
		a.detail = "too many writes of this job are in flight; nothing was sent, try again"
		a.after = time.Second
	default:
		a.detail = "the store can not be read or written, so nothing was admitted and nothing was sent; try again, and look at /readyz of the control listener for the reason"
		a.after = 5 * time.Second
		ex.p.log.Error("store unavailable", ex.attrs("error", err.Error())...)
	}
	return a
}

// refuse answers with a problem and logs it.
func (ex *exchange) refuse(a answer) {
	ex.decision, ex.code = telemetry.Refused, a.code.Name
	var floor tokens.Generation
	var ended tokens.Ended
	if a.refusal != nil {
		floor, ended = a.refusal.Floor, a.refusal.Ended
		if errors.Is(a.refusal, tokens.ErrStaleGeneration) {
			ex.span.Link(a.refusal.RaisedBy)
		}
	} else {
		floor = ex.floor()
	}
	ex.span.SetFence(ex.fence.jobID, uint64(ex.fence.generation), uint64(floor), wire.DecisionRefused, a.code.Name, ex.outcome.String())
	ex.span.SetWouldRefuse(ex.would)
	ex.span.SetStatus(a.code.Status)
	ex.p.log.Info("write refused", ex.attrs("code", a.code.Name, "floor", uint64(floor), "ended", string(ended), "remote", ex.r.RemoteAddr)...)

	p := wire.NewProblem(a.code, a.detail)
	p.JobID, p.Generation, p.Floor, p.Ended = ex.fence.jobID, ex.fence.generation, floor, ended
	if a.refusal != nil {
		p.About = writeOf(a.refusal.Key, a.refusal.Write)
	}
	p.Headers, p.RetryAfter, p.Outcome = a.headers, a.after, ex.outcome.String()
	h := ex.w.Header()
	ex.fenceHeaders(h, decisionRefused, floor)
	h[wire.HeaderReason] = []string{a.code.Name}
	ex.write(p)
}

// write sends a problem. What is left of a large body is not worth reading to the end.
func (ex *exchange) write(p wire.Problem) {
	n := ex.r.ContentLength
	part := ex.unframed || ex.broken() || !ex.received() && (n < 0 || n > smallBody)
	// Behind a request for an upgrade nothing can be read as the next request.
	if part || ex.p.draining.Load() || ex.r.Header["Upgrade"] != nil {
		ex.closeAfter(ex.w.Header())
	}
	if !part && !ex.received() && ex.r.ProtoMajor == 1 {
		// The server reads the rest before it answers, for a small body that is
		// coming: not for long.
		_ = ex.rc.SetReadDeadline(time.Now().Add(4 * partTime)) // else the body's own pace decides
	}
	ex.talk(false)
	if ex.grpc {
		p.WriteGRPC(ex.w) // whose callers know what a reset behind it means
		return
	}
	p.Write(ex.w)
	if ex.r.ProtoMajor == 1 && part && ex.rc.Flush() == nil {
		ex.partWays(false)
	}
	if ex.r.ProtoMajor > 1 && (part || !ex.received()) && ex.rc.Flush() == nil {
		ex.partStream(!part)
	}
}

// closeAfter tells the caller that its connection ends with the reply. In HTTP/2 that
// would end those of all others as well.
func (ex *exchange) closeAfter(h http.Header) {
	if ex.r.ProtoMajor == 1 {
		h["Connection"] = []string{"close"}
	}
}

// partWays closes the caller's connection so that a caller which is still sending reads
// its answer and not a reset: first our side only, the other one after a while. The
// server would read 256 KiB first, or close at once where a read had been cut. lastChunk
// ends a chunked reply, which the server can not do any more.
func (ex *exchange) partWays(lastChunk bool) {
	conn, _, err := ex.rc.Hijack()
	if err != nil {
		return // then the server closes it in its own way
	}
	if lastChunk {
		if _, err := io.WriteString(conn, "0\r\n\r\n"); err != nil {
			_ = conn.Close() // nobody is left to tell
			return
		}
	}
	framing.Part(conn, ex.p.base.Done())
}

// resetCaller resets the caller's connection. A reply of HTTP/1.0 without a length ends with its
// connection (RFC 9112, section 6.3), so one that broke off must not end like others; over TLS
// it ends without a close_notify.
func (ex *exchange) resetCaller() {
	conn, _, err := ex.rc.Hijack()
	if err != nil {
		return // then the server closes it in its own way
	}
	under := conn
	for {
		if tcp, ok := under.(interface{ SetLinger(int) error }); ok {
			_ = tcp.SetLinger(0) // best effort: the caller is told less
			break
		}
		outer, ok := under.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		under = outer.NetConn()
	}
	_ = under.Close() // nobody is left to tell
	_ = conn.Close()  // for those who count
}

// partStream gives a caller of HTTP/2 that is still sending a moment to read its answer. The
// server resets a stream whose request it has not read, right behind the answer, and curl up to 8
// takes the two together for a broken stream. Who has the whole answer mostly hangs up by itself.
// A small rest is read, so that there is nothing to reset.
func (ex *exchange) partStream(small bool) {
	if small && ex.r.Header["Expect"] == nil { // a read would send 100 Continue behind the answer
		_ = ex.rc.SetReadDeadline(time.Now().Add(partTime)) // without it the read below fails or ends
		if _, err := io.CopyN(io.Discard, ex.r.Body, smallBody+1); errors.Is(err, io.EOF) {
			return
		}
	}
	wait := time.NewTimer(partTime)
	defer wait.Stop()
	select {
	case <-ex.r.Context().Done():
	case <-wait.C:
	case <-ex.p.base.Done():
	}
}

// noRoute answers a request that belongs to no route.
func (ex *exchange) noRoute(a *answer) {
	ex.p.countNoRoute(a.code, time.Since(ex.start))
	ex.p.log.Info("request refused", "code", a.code.Name, "method", ex.r.Method, "host", ex.r.Host, "remote", ex.r.RemoteAddr)
	h := ex.w.Header()
	h[wire.HeaderDecision] = decisionRefused
	h[wire.HeaderReason] = []string{a.code.Name}
	ex.write(wire.NewProblem(a.code, a.detail))
}

// countNoRoute counts a refusal that belongs to no route.
func (p *Proxy) countNoRoute(code wire.Code, took time.Duration) {
	p.noRoute.Finished(telemetry.Refused, took.Seconds(), "")
	p.noRoute.Rejected(code.Name)
}

// Header values that never change are shared by all replies.
var (
	decisionForwarded = []string{wire.DecisionForwarded}
	decisionRefused   = []string{wire.DecisionRefused}
	decisionReplayed  = []string{wire.DecisionReplayed}
	outcomeValues     = [...][]string{
		tokens.Applied:        {tokens.Applied.String()},
		tokens.Declined:       {tokens.Declined.String()},
		tokens.NotSent:        {tokens.NotSent.String()},
		tokens.OutcomeUnknown: {tokens.OutcomeUnknown.String()},
	}
)

// fenceHeaders sets the proxy's own response headers.
func (ex *exchange) fenceHeaders(h http.Header, decision []string, floor tokens.Generation) {
	h[wire.HeaderDecision] = decision
	if floor != 0 {
		h[wire.HeaderGeneration] = []string{strconv.FormatUint(uint64(floor), 10)}
	}
	if ex.outcome != 0 {
		h[wire.HeaderOutcome] = outcomeValues[ex.outcome]
	}
	if ex.fence.rawKey != "" {
		h[wire.HeaderKey] = []string{ex.fence.rawKey}
	}
	if ex.would != "" {
		h[wire.HeaderWouldRefuse] = []string{ex.would}
	}
}
