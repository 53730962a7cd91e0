package telemetry

import (
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func recording(t *testing.T, options ...sdktrace.TracerProviderOption) (*Tracer, *tracetest.InMemoryExporter) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSyncer(exporter))...)
	t.Cleanup(func() { _ = provider.Shutdown(t.Context()) })
	return NewTracerFrom(provider), exporter
}

// only returns the one span of that name.
func only(t *testing.T, exporter *tracetest.InMemoryExporter, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range exporter.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans named %q in %v", len(found), name, exporter.GetSpans())
	}
	return found[0]
}

func attributes(s tracetest.SpanStub) map[string]string {
	m := map[string]string{}
	for _, a := range s.Attributes {
		m[string(a.Key)] = a.Value.String()
	}
	return m
}

func TestAWriteIsAServerSpanBelowItsCaller(t *testing.T) {
	tracer, exporter := recording(t)
	ctx, span := tracer.StartWrite(t.Context(), http.Header{"Traceparent": {testParent}, "Tracestate": {"vendor=1"}}, "POST", "payments")
	if trace.SpanFromContext(ctx).SpanContext().TraceID().String() != testTraceID {
		t.Error("the context does not carry the span")
	}
	if span.TraceID() != testTraceID {
		t.Errorf("trace id is %q", span.TraceID())
	}
	admission := span.Child("admission")
	admission.End()
	upstream := span.Child("upstream")
	out := http.Header{"Traceparent": {testParent}, "Tracestate": {"vendor=1"}}
	upstream.Inject(out)
	upstream.SetStatus(409)
	upstream.End()
	span.SetFence("nightly", 7, 8, "forwarded", "", "declined")
	span.SetStatus(409)
	span.End()
	span.End()

	server := only(t, exporter, "POST payments")
	if server.SpanKind != trace.SpanKindServer || server.Parent.SpanID().String() != testParent[36:52] || !server.Parent.IsRemote() {
		t.Errorf("server span is %+v", server)
	}
	want := map[string]string{
		"http.request.method": "POST", "http.route": "payments", "http.response.status_code": "409",
		"fence.job_id": "nightly", "fence.generation": "7", "fence.floor": "8",
		"fence.decision": "forwarded", "fence.outcome": "declined",
	}
	got := attributes(server)
	if len(got) != len(want) {
		t.Errorf("attributes are %v, want %v", got, want)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	for _, a := range server.Attributes {
		if a.Key == "fence.generation" && a.Value.Type() != attribute.INT64 {
			t.Error("the generation is not a number")
		}
	}
	if server.Status.Code != codes.Unset {
		t.Error("a 4xx is no fault of the server")
	}

	inner, sent := only(t, exporter, "admission"), only(t, exporter, "upstream")
	if inner.SpanKind != trace.SpanKindInternal || inner.Parent.SpanID() != server.SpanContext.SpanID() {
		t.Errorf("admission span is %+v", inner)
	}
	if sent.SpanKind != trace.SpanKindClient || sent.Parent.SpanID() != server.SpanContext.SpanID() ||
		sent.Status.Code != codes.Error || attributes(sent)["error.type"] != "409" {
		t.Errorf("upstream span is %+v", sent)
	}
	wantParent := "00-" + testTraceID + "-" + sent.SpanContext.SpanID().String() + "-01"
	if out.Get("Traceparent") != wantParent || out.Get("Tracestate") != "vendor=1" {
		t.Errorf("sent on %v, want %s", out, wantParent)
	}
}

func TestABrokenTraceStateDoesNotCostTheParent(t *testing.T) {
	for name, c := range map[string]struct {
		in   http.Header
		id   string
		sent string
	}{
		"broken":         {http.Header{"Traceparent": {testParent}, "Tracestate": {"==="}}, testTraceID, ""},
		"several fields": {http.Header{"Traceparent": {testParent}, "Tracestate": {"a=1", "b=2"}}, testTraceID, "a=1,b=2"},
		"no parent":      {http.Header{"Traceparent": {testParent + "-"}, "Tracestate": {"a=1"}}, "", ""},
	} {
		tracer, _ := recording(t)
		_, span := tracer.StartWrite(t.Context(), c.in, "POST", "payments")
		span.Inject(c.in)
		span.End()
		if (span.TraceID() == testTraceID) != (c.id == testTraceID) || c.in.Get("Tracestate") != c.sent {
			t.Errorf("%s: trace id %s, tracestate %q, want %q", name, span.TraceID(), c.in.Get("Tracestate"), c.sent)
		}
		if len(c.in["Tracestate"]) > 1 {
			t.Errorf("%s: %d tracestate fields", name, len(c.in["Tracestate"]))
		}
	}
}

func TestARefusedWriteLinksToTheTraceThatRaisedTheFloor(t *testing.T) {
	tracer, exporter := recording(t)
	_, raising := tracer.StartWrite(t.Context(), http.Header{}, "POST", "payments")
	stored := raising.TraceParent()
	raising.End()

	_, refused := tracer.StartWrite(t.Context(), http.Header{"Traceparent": {testParent}}, "PUT", "payments")
	refused.Link("")
	refused.Link("not a traceparent")
	refused.Link(stored + "-trailing")
	refused.Link(stored)
	refused.SetFence("nightly", 7, 8, "refused", "stale-generation", "")
	refused.SetStatus(412)
	refused.End()

	takeover, victim := only(t, exporter, "POST payments"), only(t, exporter, "PUT payments")
	if len(victim.Links) != 1 {
		t.Fatalf("%d links, want 1", len(victim.Links))
	}
	to := victim.Links[0].SpanContext
	if to.TraceID() != takeover.SpanContext.TraceID() || to.SpanID() != takeover.SpanContext.SpanID() || !to.IsSampled() {
		t.Errorf("the link leads to %+v, want %+v", to, takeover.SpanContext)
	}
	if to.TraceID() == victim.SpanContext.TraceID() {
		t.Error("the two writes share a trace, so the link proves nothing")
	}
	if got := attributes(victim); got["fence.reason"] != "stale-generation" || got["fence.outcome"] != "" {
		t.Errorf("attributes are %v", got)
	}
}

func TestAnUnsampledWritePassesItsContextOnAndRecordsNothing(t *testing.T) {
	tracer, exporter := recording(t)
	unsampled := testParent[:53] + "00"
	_, span := tracer.StartWrite(t.Context(), http.Header{"Traceparent": {unsampled}}, "POST", "payments")
	child := span.Child("upstream")
	if child != span {
		t.Error("a child was made that nobody will see")
	}
	span.SetFence("nightly", 1, 1, "forwarded", "", "applied")
	span.SetStatus(500)
	span.Link(testParent)
	h := http.Header{"Traceparent": {unsampled}, "Tracestate": {"stale=1"}}
	child.Inject(h)
	child.End()
	span.End()
	if span.TraceID() != "" {
		t.Error("an unsampled trace has an id to show")
	}
	if got := h.Get("Traceparent"); !strings.HasPrefix(got, "00-"+testTraceID+"-") || !strings.HasSuffix(got, "-00") {
		t.Errorf("sent on %q", got)
	}
	if _, there := h["Tracestate"]; there {
		t.Error("a tracestate that is not the parent's was sent on")
	}
	if n := len(exporter.GetSpans()); n != 0 {
		t.Errorf("%d spans exported", n)
	}
}

func TestNoCallerCanInventSpanNames(t *testing.T) {
	for method, want := range map[string]string{
		"POST": "POST", "QUERY": "QUERY", "post": "_OTHER", "PURGE": "_OTHER", "": "_OTHER", strings.Repeat("X", 5000): "_OTHER",
	} {
		tracer, exporter := recording(t)
		_, span := tracer.StartWrite(t.Context(), http.Header{}, method, "payments")
		span.End()
		name := method
		if want == "_OTHER" {
			name = "HTTP"
		}
		got := attributes(only(t, exporter, name+" payments"))
		if got["http.request.method"] != want {
			t.Errorf("method %.20q is recorded as %q", method, got["http.request.method"])
		}
		if original := got["http.request.method_original"]; len(original) > 64 || want == method && original != "" {
			t.Errorf("method %.20q: original is %q", method, original)
		}
	}
}

func TestAServerFaultMarksTheSpan(t *testing.T) {
	tracer, exporter := recording(t)
	_, span := tracer.StartWrite(t.Context(), http.Header{}, "POST", "payments")
	span.SetStatus(503)
	span.SetFence(strings.Repeat("j", 9000)+"\xff", 0, 0, "", "", "")
	span.End()
	s := only(t, exporter, "POST payments")
	got := attributes(s)
	if s.Status.Code != codes.Error || got["error.type"] != "503" {
		t.Errorf("status %v, attributes %v", s.Status, got)
	}
	if len(got["fence.job_id"]) != 256 {
		t.Errorf("a job id of %d bytes was recorded", len(got["fence.job_id"]))
	}
	for _, key := range []string{"fence.generation", "fence.floor", "fence.decision", "fence.reason", "fence.outcome"} {
		if _, there := got[key]; there {
			t.Errorf("%s is there, though it is empty", key)
		}
	}
}

func BenchmarkSampledWrite(b *testing.B) {
	provider := sdktrace.NewTracerProvider()
	benchmarkWrite(b, NewTracerFrom(provider), testParent)
}

func BenchmarkUnsampledWrite(b *testing.B) {
	provider := sdktrace.NewTracerProvider()
	benchmarkWrite(b, NewTracerFrom(provider), testParent[:53]+"00")
}

func BenchmarkWriteWithTracingOff(b *testing.B) { benchmarkWrite(b, &Tracer{}, testParent) }

func benchmarkWrite(b *testing.B, tracer *Tracer, parent string) {
	in, out := http.Header{"Traceparent": {parent}}, http.Header{}
	b.ReportAllocs()
	for b.Loop() {
		_, span := tracer.StartWrite(b.Context(), in, "POST", "payments")
		child := span.Child("upstream")
		child.Inject(out)
		child.End()
		span.SetFence("nightly", 7, 7, "forwarded", "", "applied")
		span.SetStatus(200)
		span.End()
	}
}
