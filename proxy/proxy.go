package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// NoRoute is the metrics label of requests that no route matches.
const NoRoute = "none"

// Options of a Proxy.
type Options struct {
	Authority *tokens.Authority
	Routes    []Route
	Headers   Headers
	// MaxInFlight bounds the requests that are being served; 10,000 if zero.
	MaxInFlight int
	// Metrics must know the name of every route, and NoRoute.
	Metrics *telemetry.Metrics
	// Tracer may be nil.
	Tracer *telemetry.Tracer
	Logger *slog.Logger
}

// Proxy is the handler of the data listener. Its methods may be called concurrently.
type Proxy struct {
	authority *tokens.Authority
	routes    routes
	fences    *fenceReader
	most      int64
	noRoute   *telemetry.Route
	tracer    *telemetry.Tracer
	log       *slog.Logger

	// base is the parent of everything that outlives its caller.
	base   context.Context
	cancel context.CancelCauseFunc

	active   atomic.Int64
	draining atomic.Bool
	idle     chan struct{} // told when active falls to zero while draining
}

// New returns a proxy. It is ready to serve.
func New(opt Options) (*Proxy, error) {
	if len(opt.Routes) == 0 {
		return nil, errors.New("make proxy: no routes")
	}
	if opt.Headers == (Headers{}) {
		opt.Headers = DefaultHeaders()
	}
	if opt.MaxInFlight == 0 {
		opt.MaxInFlight = 10_000
	}
	p := &Proxy{
		authority: opt.Authority,
		fences:    newFenceReader(opt.Headers),
		most:      int64(opt.MaxInFlight),
		noRoute:   opt.Metrics.Route(NoRoute),
		tracer:    opt.Tracer,
		log:       opt.Logger,
		idle:      make(chan struct{}, 1),
	}
	p.base, p.cancel = context.WithCancelCause(context.Background())
	rs := make([]*route, 0, len(opt.Routes))
	for _, r := range opt.Routes {
		if r.Upstream == nil || r.Sender == nil || !strings.HasPrefix(r.Path, "/") || r.Timeout <= 0 || r.IdleTimeout <= 0 {
			return nil, fmt.Errorf("make proxy: route %q needs an upstream, a sender, a path and timeouts", r.Name)
		}
		rs = append(rs, &route{
			Route:   r,
			metrics: opt.Metrics.Route(r.Name),
			base:    strings.TrimSuffix(r.Upstream.EscapedPath(), "/"),
			loose:   loosely(r.Path),
		})
	}
	p.routes = newRoutes(rs)
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
	for _, rt := range p.routes {
		rt.Sender.CloseIdle()
	}
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ex := &exchange{p: p, w: w, r: r, rc: http.NewResponseController(w), start: time.Now(), grpc: isGRPC(r)}
	// The end of a drain reaches every exchange, whatever it waits for.
	defer context.AfterFunc(p.base, ex.shutdown)()
	n := p.active.Add(1)
	defer func() {
		if p.active.Add(-1) == 0 && p.draining.Load() {
			select {
			case p.idle <- struct{}{}:
			default:
			}
		}
	}()
	rt, refused := p.find(r)
	if rt == nil {
		ex.noRoute(refused)
		return
	}
	ex.rt = rt
	ex.fenced = refused == nil && rt.fences(r)
	defer ex.account()
	defer ex.finish()
	if ex.trace(); ex.span != nil {
		defer ex.span.End()
	}
	switch {
	case refused != nil:
		ex.refuse(*refused)
	case p.draining.Load():
		ex.refuse(overloaded("the proxy is shutting down"))
	case n > p.most:
		ex.refuse(overloaded(fmt.Sprintf("%d requests are being served already", p.most)))
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
	ex.rt.metrics.Finished(ex.decision, time.Since(ex.start).Seconds(), ex.traceID)
	if ex.code != "" {
		ex.rt.metrics.Rejected(ex.code)
	}
}

// counts tells a fenced write, or a request that was refused, from plain traffic.
func (ex *exchange) counts() bool { return ex.fenced || ex.code != "" }
