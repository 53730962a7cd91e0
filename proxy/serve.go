package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// find returns the route of a request, and a refusal if there is none or the request
// is ambiguous. A request may have both: then the refusal is counted for the route.
func (p *Proxy) find(r *http.Request) (*route, *answer) {
	if err := checkTarget(r); err != nil {
		return nil, &answer{code: wire.CodeRequestInvalid, detail: err.Error()}
	}
	raw, _ := rawTarget(r)
	rt, err := p.routes.find(r.Host, cmp.Or(r.URL.Path, "/"), raw)
	switch {
	case err != nil:
		return nil, &answer{code: wire.CodeRequestInvalid, detail: err.Error()}
	case rt == nil:
		return nil, &answer{code: wire.CodeNoRoute, detail: "no configured route matches this host and path; nothing is passed through without one"}
	case r.Header["Upgrade"] != nil:
		return rt, &answer{code: wire.CodeRequestInvalid, detail: errUpgrade.Error()}
	}
	return rt, nil
}

// serve takes a request from its headers to its answer.
func (ex *exchange) serve() {
	body, whole, refused := ex.admit()
	switch {
	case refused != nil && refused.replay != nil:
		ex.replay(refused.replay, refused.refusal.Floor)
		return
	case refused != nil:
		ex.refuse(*refused)
		return
	}
	if ex.fenced {
		defer ex.settleLost()
		ex.rt.metrics.InFlight(1)
		defer ex.rt.metrics.InFlight(-1)
	}
	if whole {
		ex.send.Body = body
	} else {
		ex.streamed, ex.prefix = true, body
	}
	ex.forward()
}

// admit is the only way to an upstream. It returns what was received of the body, and
// whether that is all. A request that the route does not fence is let through as it is;
// a write is judged before its body is read, and admitted after.
func (ex *exchange) admit() (body []byte, whole bool, refused *answer) {
	if !ex.fenced {
		return nil, ex.r.ContentLength == 0, nil
	}
	var err error
	ex.fence, err = ex.p.fences.read(ex.r.Header)
	switch {
	case errors.Is(err, errNoFence) && ex.rt.Fencing == FencingOptional:
		ex.fenced = false
		return nil, ex.r.ContentLength == 0, nil
	case errors.Is(err, errNoFence):
		return nil, false, ex.fenceRequired()
	case err != nil:
		return nil, false, &answer{code: wire.CodeFenceInvalid, detail: err.Error()}
	}
	at := &ex.attempt
	at.Job = tokens.Job{Namespace: ex.rt.Namespace, ID: ex.fence.jobID}
	at.Generation, at.LeaseID = ex.fence.generation, ex.fence.lease
	at.RequireLease, at.LiveLease, at.IssuedOnly = ex.rt.RequireLease, ex.rt.LiveLease, ex.rt.IssuedOnly
	at.TakeoverWait, at.AbortSent = ex.rt.TakeoverWait, ex.rt.AbortSent
	at.Cutter = ex

	ctx, authority := ex.r.Context(), ex.p.authority
	whole = true
	if ex.r.ContentLength != 0 || ex.rt.RequireKey && ex.fence.key == "" {
		if err := authority.Watch(ctx, at); err != nil {
			return nil, false, ex.judged(err)
		}
		defer authority.Unwatch(at)
	}
	if ex.rt.RequireKey && ex.fence.key == "" {
		return nil, false, ex.keyRequired()
	}
	if ex.r.ContentLength != 0 {
		if body, whole, err = ex.receive(); err != nil {
			if errors.Is(ex.stopped(), errOvertaken) {
				return nil, false, ex.judged(authority.Overtaken(at))
			}
			return nil, false, brokenBody(ex, err)
		}
	}
	ex.keying(body, whole)
	began := time.Now()
	err = authority.Admit(ctx, at)
	ex.rt.metrics.Admission(time.Since(began).Seconds(), ex.traceID)
	if at.Waited > 0 {
		ex.rt.metrics.TakeoverWait(at.Waited.Seconds())
	}
	var ref *tokens.Refusal
	switch {
	case errors.As(err, &ref) && errors.Is(err, tokens.ErrAlreadyApplied):
		return nil, false, ex.duplicate(ref, whole)
	case err != nil:
		return nil, false, ex.judged(err)
	}
	ex.admitted = true
	if at.Took {
		ex.rt.metrics.Takeover()
		ex.p.log.Info("takeover", ex.attrs("waited_ms", at.Waited.Milliseconds())...)
	}
	return body, whole, nil
}

// forward sends the request once, settles its outcome and answers.
func (ex *exchange) forward() {
	// An admitted write goes on to its outcome when its caller hangs up; a read, or
	// whatever is not fenced, ends with its caller.
	parent := context.Background() // stop ends it
	if !ex.fenced {
		parent = ex.r.Context()
	}
	ctx, cancel := context.WithCancelCause(parent)
	if !ex.begin(cancel) {
		ex.failed(ex.stopped())
		return
	}
	req, refused := ex.outRequest(ctx)
	if refused != nil {
		if ex.fenced {
			ex.record(tokens.Settlement{Outcome: tokens.NotSent})
			ex.settle(tokens.NotSent)
		}
		ex.refuse(*refused)
		return
	}
	ex.send.Watcher, ex.send.Cancel = ex, cancel
	ex.send.Once = ex.fenced || !isRead(ex.r.Method)
	if ex.streamed || len(ex.send.Body) > smallBody {
		ex.send.Stall = ex.rt.IdleTimeout
	}
	began := time.Now()
	up := ex.span.Child("upstream")
	up.Inject(req.Header)
	res, err := ex.rt.Sender.Send(req, &ex.send)
	if ex.fenced {
		ex.rt.metrics.Upstream(time.Since(began).Seconds(), ex.traceID)
	}
	if err == nil && (res.StatusCode < 200 || res.StatusCode > 999) {
		err = errors.Join(errStatus, res.Body.Close())
	}
	if err != nil {
		up.End()
		ex.failed(errors.Join(context.Cause(ctx), err))
		return
	}
	up.SetStatus(res.StatusCode)
	up.End()
	ex.reply(res)
}

// outRequest makes the request for the upstream.
func (ex *exchange) outRequest(ctx context.Context) (*http.Request, *answer) {
	rt, r := ex.rt, ex.r
	path, query := rawTarget(r)
	if rt.StripPath {
		path = strip(rt.Path, path)
	}
	u, err := outURL(rt.Upstream.Scheme, rt.Upstream.Host, rt.base+path, query)
	if err != nil {
		return nil, &answer{code: wire.CodeRequestInvalid, detail: err.Error()}
	}
	req := &http.Request{
		Method: r.Method, URL: u, Host: rt.Upstream.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: ex.p.outHeader(rt, r, ex.streamed),
	}
	if rt.PreserveHost {
		req.Host = r.Host
	}
	switch {
	case ex.streamed:
		if err := ex.rc.EnableFullDuplex(); err != nil && r.ProtoMajor == 1 {
			return nil, &answer{code: wire.CodeInternal, detail: "the connection can not be read and written at once"}
		}
		// From here on the sender has it, and ends it.
		ex.stream = newStream(ex, ex.prefix)
		ex.stream.trailer = ex.p.outTrailer(r)
		req.Body, req.ContentLength, req.Trailer = ex.stream, r.ContentLength, ex.stream.trailer
	case len(ex.send.Body) > 0:
		req.ContentLength = int64(len(ex.send.Body))
	}
	return req.WithContext(ctx), nil
}

// strip takes a route's path away from the path of a request.
func strip(prefix, path string) string {
	path = path[min(len(path), len(prefix)):]
	if len(path) == 0 || path[0] != '/' {
		path = "/" + path
	}
	return path
}

// settle ends the attempt with what became of it and returns the job's floor now.
func (ex *exchange) settle(o tokens.Outcome) tokens.Generation {
	ex.admitted = false
	ex.outcome = o
	ex.rt.metrics.Outcome(counted(o))
	if o == tokens.OutcomeUnknown {
		ex.p.log.Warn("outcome unknown", ex.attrs()...)
	}
	return ex.p.authority.Settle(&ex.attempt, o)
}

// settleGone ends an attempt of which no reply came. Its connection is closed; if
// anything of it may have reached the upstream, it counts as under way for the route's
// linger more, because an upstream may go on working on it.
func (ex *exchange) settleGone() {
	ex.send.Abort()
	ex.send.Quiesce()
	switch {
	case !ex.send.Touched():
		ex.record(tokens.Settlement{Outcome: tokens.NotSent})
		ex.settle(tokens.NotSent)
		return
	case ex.send.Refused():
		ex.record(tokens.Settlement{Outcome: tokens.Declined})
		ex.settle(tokens.Declined)
		return
	}
	ex.record(tokens.Settlement{Outcome: tokens.OutcomeUnknown})
	if ex.rt.Linger == 0 {
		ex.settle(tokens.OutcomeUnknown)
		return
	}
	ex.admitted = false
	ex.outcome = tokens.OutcomeUnknown
	ex.rt.metrics.Outcome(telemetry.Unknown)
	ex.p.log.Warn("outcome unknown", ex.attrs("linger_ms", ex.rt.Linger.Milliseconds())...)
	authority, at := ex.p.authority, &ex.attempt
	time.AfterFunc(ex.rt.Linger, func() { authority.Settle(at, tokens.OutcomeUnknown) })
}

// settleLost settles what a panic left behind.
func (ex *exchange) settleLost() {
	if ex.admitted {
		ex.settleGone()
	}
}

// attrs are the attributes of a log line about the write. Keys are hashed, lease ids
// never appear.
func (ex *exchange) attrs(more ...any) []any {
	out := []any{
		"route", ex.rt.Name, "job_id", ex.fence.jobID, "generation", uint64(ex.fence.generation), "method", ex.r.Method,
	}
	if ex.rt.Namespace != "" {
		out = append(out, "namespace", ex.rt.Namespace)
	}
	if ex.fence.key != "" {
		out = append(out, "key", telemetry.HashKey(ex.fence.key))
	}
	if ex.outcome != 0 {
		out = append(out, "outcome", ex.outcome.String())
	}
	if ex.traceID != "" {
		out = append(out, "trace_id", ex.traceID)
	}
	return append(out, more...)
}

func brokenBody(ex *exchange, err error) *answer {
	if errors.Is(err, errTooLarge) {
		return &answer{code: wire.CodeBodyTooLarge, detail: fmt.Sprintf("route %s accepts bodies of at most %d bytes", ex.rt.Name, ex.rt.BodyMax)}
	}
	return &answer{code: wire.CodeRequestInvalid, detail: "the request body could not be read whole: " + reason(err)}
}
