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
func (t *table) find(r *http.Request) (*route, *answer) {
	if err := cmp.Or(checkArrival(r), checkTarget(r)); err != nil {
		return nil, &answer{code: wire.CodeRequestInvalid, detail: err.Error()}
	}
	raw, _ := rawTarget(r)
	rt, err := t.routes.find(r.Host, cmp.Or(r.URL.Path, "/"), raw)
	switch {
	case err != nil:
		return nil, &answer{code: wire.CodeRequestInvalid, detail: err.Error()}
	case rt == nil:
		return nil, &answer{code: wire.CodeNoRoute, detail: "no configured route matches this host and path; nothing is passed through without one"}
	}
	if err := checkUpgrade(rt, r); err != nil {
		return rt, &answer{code: wire.CodeRequestInvalid, detail: err.Error()}
	}
	return rt, nil
}

// serve takes a request from its headers to its answer.
func (ex *exchange) serve() {
	body, whole, refused := ex.admit()
	if refused != nil && ex.rt.Observe && refused.byFence() {
		ex.unfence(refused)
		refused = nil
	}
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
// whether that is all, also beside a refusal. A request that the route does not fence is
// let through as it is; a write is judged before its body is read, and admitted after.
func (ex *exchange) admit() (body []byte, whole bool, refused *answer) {
	whole = ex.r.ContentLength == 0
	if !ex.fenced {
		_, ex.fence.rawKey = ex.p.fences.key(ex.r.Header) // it is echoed, and means nothing else
		return nil, whole, nil
	}
	if refused := ex.identify(); refused != nil {
		return nil, false, refused
	}
	var err error
	ex.fence, err = ex.p.fences.read(ex.r.Header)
	switch {
	case errors.Is(err, errNoFence) && ex.rt.Fencing == FencingOptional:
		ex.fenced = false
		return nil, whole, nil
	case errors.Is(err, errNoFence):
		return nil, whole, ex.fenceRequired()
	case err != nil:
		return nil, whole, &answer{code: wire.CodeFenceInvalid, detail: err.Error()}
	case ex.upgrade && ex.fence.key != "":
		return nil, whole, &answer{code: wire.CodeFenceInvalid, detail: ex.p.fences.names[3] + " " + errUpgradeKey.Error()}
	}
	at := &ex.attempt
	if at.Job, refused = ex.job(); refused != nil {
		return nil, false, refused
	}
	at.Generation, at.LeaseID = ex.fence.generation, ex.fence.lease
	at.RequireLease, at.LiveLease, at.IssuedOnly = ex.rt.RequireLease, ex.rt.LiveLease, ex.rt.IssuedOnly
	at.TakeoverWait, at.AbortSent = ex.rt.TakeoverWait, ex.rt.AbortSent
	at.Cutter = ex

	if ex.r.ProtoMajor == 2 && ex.r.ContentLength == 0 && ex.r.Header["Content-Length"] != nil {
		// Data may follow all the same, and then reading them fails.
		ex.r.ContentLength, whole = -1, false
	}
	admission := ex.span.Child("admission") // the reception of what is received before it, too
	defer admission.End()
	ctx, authority := ex.r.Context(), ex.p.authority
	keyless := ex.rt.RequireKey && ex.fence.key == "" && !ex.upgrade
	if !whole || keyless {
		if err := ex.watch(ctx); err != nil {
			ex.rt.metrics.Admission(time.Since(ex.start).Seconds(), ex.traceID)
			return nil, whole, ex.judged(err)
		}
		defer ex.unwatch()
	}
	if keyless {
		return nil, whole, ex.keyRequired()
	}
	ex.keying()
	if !whole {
		// 100 Continue goes out at the first read, so whatever can be judged
		// without the body comes before it. A body that is streamed is first read
		// when its upstream is ready for it.
		if ex.r.Header["Expect"] != nil && ex.buffers() && !ex.rt.Observe {
			if err := authority.Ready(ctx, at); err != nil && !ex.needsBody(err) {
				ex.rt.metrics.Admission(time.Since(ex.start).Seconds(), ex.traceID)
				return nil, false, ex.judged(err)
			}
		}
		if body, whole, err = ex.receive(); err != nil {
			if errors.Is(ex.stopped(), errOvertaken) {
				ex.outcome = tokens.NotSent // its caller can not know that its write was not admitted yet
				return nil, false, ex.judged(authority.Overtaken(at))
			}
			return nil, false, brokenBody(ex, err)
		}
	}
	ex.digestBody(body, whole)
	began := time.Now()
	err = ex.register(ctx)
	ex.rt.metrics.Admission(time.Since(began).Seconds(), ex.traceID)
	if !ex.rt.Observe && at.Waited > 0 { // an observed write waits for nobody, and may have been given up under way
		ex.rt.metrics.TakeoverWait(at.Waited.Seconds(), ex.traceID)
	}
	if err != nil {
		var ref *tokens.Refusal
		if errors.As(err, &ref) && errors.Is(err, tokens.ErrAlreadyApplied) {
			return body, whole, ex.duplicate(ref, whole)
		}
		return body, whole, ex.judged(err)
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
	var ctx context.Context = &ex.ctx // stop ends it, and aborts the send
	cancel := ex.ctx.cancel
	if ex.send.Aborted = ex.fenced; !ex.fenced {
		ctx, cancel = context.WithCancelCause(ex.r.Context())
	}
	if !ex.begin(cancel) {
		ex.failed(ex.stopped())
		return
	}
	ex.send.Once = ex.fenced || ex.upgrade || ex.would != "" || !isRead(ex.r.Method)
	req, refused := ex.outRequest(ctx)
	if refused != nil {
		if ex.fenced {
			ex.record(tokens.Settlement{Outcome: tokens.NotSent})
			ex.settle(tokens.NotSent)
		}
		ex.refuse(*refused)
		return
	}
	ex.send.Watcher, ex.send.Cancel, ex.send.Window = ex, cancel, ex.rt.IdleTimeout
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
	if err == nil {
		if bad := ex.checkStatus(res); bad != nil {
			err = errors.Join(bad, res.Body.Close())
		}
	}
	if err != nil {
		up.End()
		ex.failed(errors.Join(causeOf(ctx), err))
		return
	}
	up.SetStatus(res.StatusCode)
	up.End()
	if res.StatusCode == http.StatusSwitchingProtocols {
		ex.tunnel(res)
		return
	}
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
		if n := r.ContentLength; ex.grpc || n < 0 || n > rt.BodyBuffer {
			ex.lasts()
		}
	case len(ex.send.Body) > 0:
		req.ContentLength = int64(len(ex.send.Body))
	case r.Header["Content-Length"] != nil:
		req.TransferEncoding = announceNothing
	}
	// A span adds headers of its own, and so does an upgrade: they need the map.
	if c, ok := rt.Sender.(Composer); ok && ex.span == nil && !ex.upgrade && c.Composes(req, &ex.send) {
		ex.send.Fields = ex
	} else {
		req.Header = ex.p.outHeader(rt, r, ex.streamed)
	}
	if ex.upgrade {
		askUpgrade(req.Header)
	}
	return req.WithContext(ctx), nil
}

// AppendFields makes the exchange its Send's Fields.
func (ex *exchange) AppendFields(b []byte) ([]byte, error) {
	return ex.p.appendHeader(b, ex.rt, ex.r, ex.streamed)
}

// announceNothing makes the senders say Content-Length: 0 also where the method expects no
// body. It is how net/http is told so.
var announceNothing = []string{"identity"}

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

// settleGone ends an attempt of which no reply came. Its connection is closed.
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
	ex.settleClosed(tokens.OutcomeUnknown)
}

// settleClosed ends an attempt whose connection had to be closed after something of it was
// sent. It counts as under way for the route's linger more, because an upstream may go on
// working on it: also one that has answered, if it had not got all of the request. It
// returns the job's floor now.
func (ex *exchange) settleClosed(o tokens.Outcome) tokens.Generation {
	if ex.rt.Linger == 0 {
		return ex.settle(o)
	}
	ex.admitted = false
	ex.outcome = o
	ex.rt.metrics.Outcome(counted(o))
	if o == tokens.OutcomeUnknown {
		ex.p.log.Warn("outcome unknown", ex.attrs("linger_ms", ex.rt.Linger.Milliseconds())...)
	}
	authority, at := ex.p.authority, &ex.attempt
	time.AfterFunc(ex.rt.Linger, func() { authority.Settle(at, o) })
	return authority.Floor(at.Job)
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
	if namespace := ex.namespace(); namespace != "" {
		out = append(out, "namespace", namespace)
	}
	if ex.writer != nil {
		out = append(out, "who", ex.writer.Name())
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
