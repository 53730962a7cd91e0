package telemetry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// clearEnvironment makes the SDK's view the test's own; t.Setenv restores it afterwards.
func clearEnvironment(t *testing.T, env map[string]string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
}

func TestTheEnvironmentDecidesWhetherThereAreTraces(t *testing.T) {
	endpoint := "http://127.0.0.1:1"
	for _, c := range []struct {
		name, mode string
		env        map[string]string
		on         bool
		fails      string
	}{
		{name: "nothing set", mode: "auto"},
		{name: "endpoint", mode: "auto", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}, on: true},
		{name: "endpoint for traces", mode: "auto", env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint}, on: true},
		{name: "endpoint for metrics only", mode: "auto", env: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": endpoint}},
		{name: "otlp", mode: "auto", env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, on: true},
		{name: "otlp over grpc", mode: "auto", env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, on: true},
		{name: "console", mode: "auto", env: map[string]string{"OTEL_TRACES_EXPORTER": "console"}, on: true},
		{name: "none beats endpoint", mode: "auto", env: map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}},
		{name: "disabled beats exporter", mode: "auto", env: map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}},
		{name: "disabled in capitals", mode: "auto", env: map[string]string{"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "otlp"}},
		{name: "any other word does not disable", mode: "auto", env: map[string]string{"OTEL_SDK_DISABLED": "1", "OTEL_TRACES_EXPORTER": "otlp"}, on: true},
		{name: "mode none", mode: "none", env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}},
		{name: "unknown exporter", mode: "auto", env: map[string]string{"OTEL_TRACES_EXPORTER": "carrier-pigeon"}, fails: "create trace exporter"},
		{name: "unknown protocol", mode: "auto", env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "morse"}, fails: "create trace exporter"},
		{name: "broken resource", mode: "auto", env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_RESOURCE_ATTRIBUTES": "no-equals-sign"}, fails: "read trace resource"},
		{name: "unknown mode", mode: "always", fails: `"always"`},
		{name: "empty mode", mode: "", fails: "want auto or none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clearEnvironment(t, c.env)
			tracer, stop, err := NewTracer(t.Context(), c.mode, os.Getenv, Build{})
			if stop == nil || tracer == nil {
				t.Fatal("nil tracer or stop function")
			}
			if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("error is %v, want %q", err, c.fails)
			}
			if tracer.Enabled() != c.on {
				t.Errorf("enabled is %v, want %v", tracer.Enabled(), c.on)
			}
			if err := stop(t.Context()); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

func TestASpanReachesTheCollectorBeforeStopReturns(t *testing.T) {
	for name, c := range map[string]struct{ env, want map[string]string }{
		"as built": {
			want: map[string]string{"service.name": "fenceproxy", "service.version": "9.8.7"},
		},
		"renamed by the environment": {
			env:  map[string]string{"OTEL_SERVICE_NAME": "fence-of-payments", "OTEL_RESOURCE_ATTRIBUTES": "team=billing"},
			want: map[string]string{"service.name": "fence-of-payments", "service.version": "9.8.7", "team": "billing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			batches := make(chan []byte, 10)
			collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || r.URL.Path != "/v1/traces" {
					w.WriteHeader(http.StatusBadRequest)
					return
				}
				batches <- body
			}))
			defer collector.Close()
			clearEnvironment(t, c.env)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)

			tracer, stop, err := NewTracer(t.Context(), "auto", os.Getenv, Build{Version: "9.8.7"})
			if err != nil {
				t.Fatal(err)
			}
			_, span := tracer.StartWrite(t.Context(), http.Header{}, "POST", "payments")
			span.SetFence("bad\xffjob", 1, 1, "refused", "fence-invalid", "") // must not cost the batch
			span.End()
			if err := stop(t.Context()); err != nil {
				t.Fatal(err)
			}

			close(batches)
			var got tracepb.TracesData
			if err := proto.Unmarshal(<-batches, &got); err != nil || len(got.GetResourceSpans()) != 1 {
				t.Fatalf("received %v, error %v", &got, err)
			}
			about := map[string]string{}
			for _, a := range got.GetResourceSpans()[0].GetResource().GetAttributes() {
				about[a.GetKey()] = a.GetValue().GetStringValue()
			}
			for key, want := range c.want {
				if about[key] != want {
					t.Errorf("%s is %q, want %q", key, about[key], want)
				}
			}
			if name := got.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName(); name != "POST payments" {
				t.Errorf("the span is named %q", name)
			}
		})
	}
}

func TestTracingSwitchedOffCostsNothingAndTouchesNothing(t *testing.T) {
	h := http.Header{"Traceparent": {testParent}, "Tracestate": {"vendor=1"}}
	for name, tracer := range map[string]*Tracer{"off": {}, "nil": nil} {
		ctx, span := tracer.StartWrite(t.Context(), h, "POST", "payments")
		if ctx != t.Context() || span != nil || tracer.Enabled() {
			t.Errorf("%s: a span was made", name)
		}
		if trace.SpanContextFromContext(ctx).IsValid() {
			t.Errorf("%s: the context carries a span", name)
		}
		n := testing.AllocsPerRun(100, func() {
			_, span := tracer.StartWrite(ctx, h, "POST", "payments")
			child := span.Child("upstream")
			child.Inject(h)
			child.SetStatus(200)
			child.End()
			span.Link(testParent)
			span.SetFence("job", 7, 8, "refused", "stale-generation", "")
			if span.TraceID() != "" || span.TraceParent() != "" {
				t.Error("a span that does not exist has an id")
			}
			span.End()
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if h.Get("Traceparent") != testParent || h.Get("Tracestate") != "vendor=1" {
		t.Errorf("the caller's context became %v", h)
	}
}

func TestErrorsOfTheExporterGoToTheLog(t *testing.T) {
	before := otel.GetErrorHandler()
	defer otel.SetErrorHandler(before)
	var out bytes.Buffer
	ReportExportErrors(newTestLogger(t, &out, "info", "json"))
	otel.Handle(errors.New("collector is away"))
	if !strings.Contains(out.String(), "collector is away") || !strings.Contains(out.String(), `"level":"WARN"`) {
		t.Errorf("logged %q", out.String())
	}
}

func TestAStopThatRunsOutOfTimeSaysSo(t *testing.T) {
	release := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer collector.Close()
	defer close(release)
	clearEnvironment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL})
	tracer, stop, err := NewTracer(t.Context(), "auto", os.Getenv, Build{})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracer.StartWrite(t.Context(), http.Header{}, "POST", "payments")
	span.End()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stop(ctx); err == nil {
		t.Error("no error")
	}
	_ = stop(t.Context()) // a second call must not hang or panic
}
