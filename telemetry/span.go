package telemetry

import (
	"context"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// upstreamSpan is the one child that is a request of our own, and so a client span.
const upstreamSpan = "upstream"

// maxJobID is the longest job_id that the protocol allows, in bytes. A refused write may name a longer one.
const maxJobID = 256

// Span is one timed piece of a write. A nil Span stands for tracing switched off: every method of it does nothing. Safe
// for concurrent use.
type Span struct {
	ctx     context.Context // carries span, for its children
	span    trace.Span
	tracer  trace.Tracer
	failsAt int // the first status that is an error: 500 on a server span, 400 on a client span
}

// Child starts a span below s. "upstream" is a client span, any other name an internal one. Below a span that is not
// sampled it returns s: there is nothing to time, and ending s twice does no harm.
func (s *Span) Child(name string) *Span {
	if s == nil || !s.span.IsRecording() {
		return s
	}
	kind, failsAt := trace.SpanKindInternal, s.failsAt
	if name == upstreamSpan {
		kind, failsAt = trace.SpanKindClient, http.StatusBadRequest
	}
	ctx, span := s.tracer.Start(s.ctx, name, trace.WithSpanKind(kind))
	return &Span{ctx: ctx, span: span, tracer: s.tracer, failsAt: failsAt}
}

// End closes the span. Only the first call counts, so it may be deferred as well as called early.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

// SetFence records what the fence decided. Zero numbers and empty words are left out.
func (s *Span) SetFence(jobID string, generation, floor uint64, decision, reason, outcome string) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	attributes := make([]attribute.KeyValue, 0, 6)
	label := func(key, value string) {
		if value != "" {
			attributes = append(attributes, attribute.String(key, value))
		}
	}
	number := func(key string, value uint64) {
		if value != 0 {
			attributes = append(attributes, attribute.Int64(key, int64(value))) // at most 2^53-1 by the protocol
		}
	}
	label("fence.job_id", text(jobID, maxJobID))
	number("fence.generation", generation)
	number("fence.floor", floor)
	label("fence.decision", decision)
	label("fence.reason", reason)
	label("fence.outcome", outcome)
	s.span.SetAttributes(attributes...)
}

// SetWouldRefuse records the code of a refusal that was only reported. An empty one is left out.
func (s *Span) SetWouldRefuse(code string) {
	if s != nil && code != "" && s.span.IsRecording() {
		s.span.SetAttributes(attribute.String("fence.would_refuse", code))
	}
}

// SetStatus records the HTTP status that was sent (a server span) or received (an upstream span). A 5xx marks the span
// as failed, and so does a 4xx on an upstream span, as the HTTP conventions ask: a refusal is no fault of the server.
func (s *Span) SetStatus(code int) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	s.span.SetAttributes(attribute.Int("http.response.status_code", code))
	if code >= s.failsAt {
		s.span.SetAttributes(attribute.String("error.type", strconv.Itoa(code)))
		s.span.SetStatus(codes.Error, "")
	}
}

// Link points from s to another span, given by its W3C traceparent: from a refused write to the one that raised the
// floor, or from a replay to the original. A malformed traceparent is ignored.
func (s *Span) Link(traceparent string) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	if target, ok := spanContext(traceparent); ok {
		s.span.AddLink(trace.Link{SpanContext: target})
	}
}

// TraceParent returns the span as a W3C traceparent of version 00, to be stored for a later Link; "" on a nil Span.
func (s *Span) TraceParent() string {
	if s == nil {
		return ""
	}
	c := s.span.SpanContext()
	if !c.IsValid() {
		return ""
	}
	traceID, spanID := c.TraceID(), c.SpanID()
	b := make([]byte, 0, traceParentLength)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, traceID[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, spanID[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, []byte{byte(c.TraceFlags() & knownFlags)})
	return string(b)
}

// TraceID returns the trace id as 32 hex digits for exemplars and log lines; "" on a nil Span or a trace that nobody
// keeps, since a link to it would lead nowhere.
func (s *Span) TraceID() string {
	if s == nil || !s.span.SpanContext().IsSampled() {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Inject makes s the parent of the request that h belongs to: it replaces traceparent and tracestate. A nil Span leaves
// h alone, so that the caller's own context passes through.
func (s *Span) Inject(h http.Header) {
	if s == nil {
		return
	}
	traceparent := s.TraceParent()
	if traceparent == "" {
		return
	}
	// tracestate belongs to the traceparent it came with: a stale one must not survive beside the new parent.
	h.Set("Traceparent", traceparent)
	if state := s.span.SpanContext().TraceState().String(); state != "" {
		h.Set("Tracestate", state)
	} else {
		h.Del("Tracestate")
	}
}

// text makes a caller's string fit for export: one string that is not UTF-8 makes OTLP drop the whole batch it is in.
func text(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
