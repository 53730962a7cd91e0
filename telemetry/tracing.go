package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope of every span that the proxy makes.
const scope = "github.com/fenceproxy/fenceproxy"

// Tracer starts the spans of writes. A nil Tracer and one whose Enabled is false make none. Safe for concurrent use.
type Tracer struct {
	tracer trace.Tracer // nil when off
}

// NewTracer sets tracing up from the environment. Mode "none" is off. Mode "auto" is on when OTEL_TRACES_EXPORTER,
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, unless the exporter is "none" or
// OTEL_SDK_DISABLED is true: the SDK itself knows nothing of OTEL_SDK_DISABLED, and its exporter would otherwise dial
// localhost in every installation that has no collector.
//
// getenv decides on or off; the exporter, the sampler, the resource and the batches then follow the process environment
// (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_EXPORTER_OTLP_*), which is where the
// SDK reads it. The sampler is parentbased_always_on by default.
//
// The function returned flushes and stops the exporter, within its context; it is never nil and may be called again. No connection is made before
// the first batch. An unknown mode, exporter or protocol is an error.
func NewTracer(ctx context.Context, mode string, getenv func(string) string, b Build) (*Tracer, func(context.Context) error, error) {
	off := func(context.Context) error { return nil }
	switch mode {
	case "none":
		return &Tracer{}, off, nil
	case "auto":
		if !wanted(getenv) {
			return &Tracer{}, off, nil
		}
	default:
		return &Tracer{}, off, fmt.Errorf("read traces mode %q: want auto or none", mode)
	}

	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return &Tracer{}, off, fmt.Errorf("create trace exporter: %w", err)
	}
	// Later options win, so the environment can rename the service.
	about, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", "fenceproxy"),
			attribute.String("service.version", b.Version),
		),
		resource.WithTelemetrySDK(),
		resource.WithFromEnv(),
	)
	if err != nil {
		_ = exporter.Shutdown(ctx) // the first error is the one worth telling
		return &Tracer{}, off, fmt.Errorf("read trace resource: %w", err)
	}
	batches := sdktrace.NewBatchSpanProcessor(exporter)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(batches), sdktrace.WithResource(about))
	stop := func(ctx context.Context) error {
		// A provider that is shut down with a context already over leaves its processor running for good; the
		// processor itself stops in any case, and only once.
		return errors.Join(provider.Shutdown(ctx), batches.Shutdown(ctx))
	}
	return NewTracerFrom(provider), stop, nil
}

// NewTracerFrom returns a Tracer on a provider that the caller owns and shuts down.
func NewTracerFrom(tp trace.TracerProvider) *Tracer { return &Tracer{tracer: tp.Tracer(scope)} }

// ReportExportErrors sends the OpenTelemetry SDK's own errors, such as an unreachable collector, to log. The SDK has one
// handler for the whole process and prints plain text to standard error without one, so this belongs in main and
// nowhere else.
func ReportExportErrors(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces not exported", "error", err)
	}))
}

// Enabled reports whether StartWrite makes spans.
func (t *Tracer) Enabled() bool { return t != nil && t.tracer != nil }

// StartWrite starts the server span of one write, as a child of the W3C trace context in h, if there is one. The
// returned context carries the span. When tracing is off it returns ctx as it is and a nil Span, at no cost.
func (t *Tracer) StartWrite(ctx context.Context, h http.Header, method, route string) (context.Context, *Span) {
	if !t.Enabled() {
		return ctx, nil
	}
	// Read here rather than by the SDK's propagator, which takes more than the recommendation allows: a trace id in a log
	// line (ParseTraceParent) and the span's must never differ.
	if parent, ok := spanContext(h.Get("Traceparent")); ok {
		// A broken tracestate must not cost the traceparent; several fields are one list (W3C Trace Context 3.3.1.1).
		if state, err := trace.ParseTraceState(strings.Join(h.Values("Tracestate"), ",")); err == nil {
			parent = parent.WithTraceState(state)
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}

	// Names and attributes follow the stable HTTP conventions: a method that the convention does not list is _OTHER,
	// and the span is then named HTTP, so that a caller cannot invent span names.
	name, attributes := method, make([]attribute.KeyValue, 0, 3)
	attributes = append(attributes, attribute.String("http.route", route))
	if !standardMethod(method) {
		name = "HTTP"
		attributes = append(attributes, attribute.String("http.request.method_original", text(method, 64)))
		method = "_OTHER"
	}
	attributes = append(attributes, attribute.String("http.request.method", method))

	ctx, span := t.tracer.Start(ctx, name+" "+route,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	return ctx, &Span{ctx: ctx, span: span, tracer: t.tracer, failsAt: http.StatusInternalServerError}
}

func wanted(getenv func(string) string) bool {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch getenv("OTEL_TRACES_EXPORTER") {
	case "none":
		return false
	case "":
		return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	default:
		return true
	}
}

// standardMethod lists RFC 9110, PATCH (RFC 5789) and QUERY, as the semantic conventions do. Methods are case-sensitive.
func standardMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace, "QUERY":
		return true
	}
	return false
}
