package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/auth"
	"github.com/fenceproxy/fenceproxy/internal/framing"
	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// mostKept bounds the bodies that are in memory at a time, in bytes. Beyond it bodies are streamed
// as if they were larger than their route's buffer.
const mostKept = 256 << 20

// NoRoute is the metrics label of requests that no route matches.
const NoRoute = "none"

// Options of a Proxy.
type Options struct {
	Authority *tokens.Authority
	Routes    []Route
	Headers   Headers
	// Principals are who may write where callers show a certificate. Without any,
	// certificates mean nothing here.
	Principals *auth.Principals
	// Admits reports whether a connection would be let in now, as far as its certificate goes; nil
	// means that all would.
	Admits func(*tls.ConnectionState) bool
	// MaxInFlight bounds the requests that are being served; 10,000 if zero.
	MaxInFlight int
	// Metrics must know NoRoute; it is told the names of the routes.
	Metrics *telemetry.Metrics
	// Tracer may be nil.
	Tracer *telemetry.Tracer
	Logger *slog.Logger
}

// Proxy is the handler of the data listener. Its methods may be called concurrently.
type Proxy struct {
	authority *tokens.Authority
	table     atomic.Pointer[table]
	fences    *fenceReader
	metrics   *telemetry.Metrics
	noRoute   *telemetry.Route
	tracer    *telemetry.Tracer
	log       *slog.Logger
	admits    func(*tls.ConnectionState) bool
	// doors counts the reloads, from 1 on.
	doors atomic.Uint64

	// base is the parent of everything that outlives its caller.
	base   context.Context
	cancel context.CancelCauseFunc

	underway register
	active   atomic.Int64
	kept     atomic.Int64 // bytes of bodies in memory
	mostKept int64
	draining atomic.Bool
	idle     chan struct{} // told when active falls to zero while draining
}

// New returns a proxy. It is ready to serve.
func New(opt Options) (*Proxy, error) {
	if opt.Headers == (Headers{}) {
		opt.Headers = DefaultHeaders()
	}
	p := &Proxy{
		authority: opt.Authority,
		fences:    newFenceReader(opt.Headers),
		metrics:   opt.Metrics,
		noRoute:   opt.Metrics.Route(NoRoute),
		tracer:    opt.Tracer,
		log:       opt.Logger,
		admits:    opt.Admits,
		mostKept:  mostKept,
		idle:      make(chan struct{}, 1),
	}
	p.doors.Store(1)
	p.base, p.cancel = context.WithCancelCause(context.Background())
	context.AfterFunc(p.base, p.underway.end)
	t, err := p.newTable(opt.Routes, opt.MaxInFlight, opt.Principals)
	if err != nil {
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	p.table.Store(t)
	return p, nil
}

// Base is the context of the proxy; it ends when a drain gives up. It is meant for
// http.Server.BaseContext.
func (p *Proxy) Base() context.Context { return p.base }

// Drain refuses new requests and waits for those under way. When ctx ends first the
// rest is broken off and its callers are told that the outcome is unknown; Drain then
// waits for that and returns false.
func (p *Proxy) Drain(ctx context.Context) bool {
	p.draining.Store(true)
	clean := true
	for done := ctx.Done(); p.active.Load() > 0; {
		select {
		case <-p.idle:
		case <-done:
			clean, done = false, nil
			p.cancel(errShutdown)
		}
	}
	return clean
}

// Draining reports whether Drain was called.
func (p *Proxy) Draining() bool { return p.draining.Load() }

// Close ends everything that is still under way and closes idle upstream connections.
func (p *Proxy) Close() {
	p.cancel(errShutdown)
	for _, rt := range p.table.Load().routes {
		rt.Sender.CloseIdle()
	}
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ex := &exchange{p: p, w: w, r: r, control: *http.NewResponseController(w), start: time.Now(), grpc: isGRPC(r)}
	ex.rc = &ex.control
	ex.timer.since, ex.pause.since = ex.start, ex.start
	// The end of a drain reaches every exchange, whatever it waits for.
	p.underway.add(ex)
	defer p.underway.remove(ex)
	n, t := p.active.Add(1), p.enter()
	defer func() {
		p.leave(t)
		if p.active.Add(-1) == 0 && p.draining.Load() {
			select {
			case p.idle <- struct{}{}:
			default:
			}
		}
	}()
	rt, refused := t.find(r)
	if fault := framing.Verdict(r.Context()); fault != nil {
		// What its head says can not be relied on, and what follows it even less.
		ex.unframed = true
		rt, refused = nil, &answer{code: wire.CodeRequestInvalid, detail: fault.Error()}
	}
	if rt == nil {
		ex.noRoute(refused)
		return
	}
	ex.rt, ex.principals = rt, t.principals
	ex.upgrade = refused == nil && r.Header["Upgrade"] != nil
	ex.fenced = refused == nil && (rt.fences(r) || ex.upgrade && rt.Fencing != FencingOff)
	defer ex.account()
	defer ex.finish()
	if ex.trace(); ex.span != nil {
		defer ex.span.End()
	}
	switch {
	case refused != nil:
		ex.refuse(*refused)
	case p.draining.Load():
		ex.label()
		ex.refuse(overloaded("the proxy is shutting down"))
	case n > t.most:
		ex.label()
		ex.refuse(overloaded(fmt.Sprintf("%d requests are being served already", t.most)))
	default:
		ex.serve()
	}
}

// trace starts the request's span, or takes the trace id from the caller's.
func (ex *exchange) trace() {
	if !ex.fenced {
		return
	}
	if ex.p.tracer.Enabled() {
		_, ex.span = ex.p.tracer.StartWrite(ex.r.Context(), ex.r.Header, ex.r.Method, ex.rt.Name)
		ex.traceID = ex.span.TraceID()
		ex.attempt.Trace = ex.span.TraceParent()
	} else if tp := ex.r.Header["Traceparent"]; len(tp) == 1 {
		if id, ok := telemetry.ParseTraceParent(tp[0]); ok {
			ex.traceID, ex.attempt.Trace = id, tp[0]
		}
	}
}

// account counts the write, whatever became of it.
func (ex *exchange) account() {
	if !ex.counts() {
		return
	}
	ex.rt.metrics.Finished(ex.decision, cmp.Or(ex.took, time.Since(ex.start)).Seconds(), ex.traceID)
	if ex.code != "" {
		ex.rt.metrics.Rejected(ex.code)
	}
}

// counts tells a fenced write, or a request that was refused, from plain traffic.
func (ex *exchange) counts() bool { return ex.fenced || ex.code != "" || ex.would != "" }
