package proxy

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/telemetry"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestARefusedStaleWriteLinksToTheTraceThatRaisedTheFloor(t *testing.T) {
	u := newUpstream(t, nil)
	spans := tracetest.NewSpanRecorder()
	f := newTracedFixture(t, u.URL, telemetry.NewTracerFrom(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))))
	const raiser = "00-11111111111111111111111111111111-2222222222222222-01"
	up := f.request("j", "7", nil)
	up.Header.Set("Traceparent", raiser)
	want(t, f.send(up), 200, "forwarded", "", "applied")
	want(t, f.post("j", "6"), 412, "refused", "stale-generation", "")
	eventually(t, "both spans have ended", func() bool { return len(spans.Ended()) >= 3 })

	var linked, raised bool
	for _, s := range spans.Ended() {
		attributes := make(map[string]string)
		for _, a := range s.Attributes() {
			attributes[string(a.Key)] = a.Value.String()
		}
		switch {
		case attributes["fence.reason"] == "stale-generation":
			if attributes["fence.job_id"] != "j" || attributes["fence.generation"] != "6" || attributes["fence.floor"] != "7" || attributes["fence.decision"] != "refused" {
				t.Errorf("the refused span has %v", attributes)
			}
			for _, l := range s.Links() {
				linked = linked || l.SpanContext.TraceID().String() == strings.Repeat("1", 32)
			}
		case attributes["fence.decision"] == "forwarded":
			raised = s.SpanContext().TraceID().String() == strings.Repeat("1", 32) && attributes["fence.outcome"] == "applied"
		}
	}
	if !linked || !raised {
		t.Errorf("linked %v, raised in the caller's trace %v", linked, raised)
	}
	seen := <-u.arrived
	if tp := seen.Header.Get("Traceparent"); !strings.HasPrefix(tp, "00-11111111111111111111111111111111-") || tp == raiser {
		t.Errorf("the upstream got traceparent %q", tp)
	}
}

func newTracedFixture(t *testing.T, upstream string, tracer *telemetry.Tracer) *fixture {
	t.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	return newFixtureOf(t, Options{Tracer: tracer, Routes: []Route{{
		Name: "default", Path: "/", Upstream: u, Sender: NewSender(u, nil, 8),
		Timeout: 10 * time.Second, IdleTimeout: 10 * time.Second, TakeoverWait: 10 * time.Second, BodyBuffer: 1 << 20,
	}}})
}

func TestEveryWriteIsCountedOnceByItsDecision(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL)
	f.claim("j")
	f.post("j", "1")
	f.takeOver("j")
	f.post("j", "1")
	f.send(f.request("j", "x", nil))
	for _, line := range []string{
		`fenceproxy_writes_total{decision="forwarded",route="default"} 1`,
		`fenceproxy_writes_total{decision="refused",route="default"} 2`,
		`fenceproxy_rejections_total{code="stale-generation",route="default"} 1`,
		`fenceproxy_rejections_total{code="fence-invalid",route="default"} 1`,
		`fenceproxy_outcomes_total{outcome="applied",route="default"} 1`,
		`fenceproxy_in_flight{route="default"} 0`,
		`fenceproxy_request_duration_seconds_count{decision="refused",route="default"} 2`,
	} {
		eventually(t, line, func() bool { return strings.Contains(f.scrape(), line+"\n") })
	}
	if strings.Contains(f.scrape(), `"j"`) {
		t.Error("a job id is in a label")
	}
}

func TestARefusalIsLoggedOnceWithoutSecrets(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL)
	l := f.claim("j")
	r := f.keyed("j", "2", "secret-key", "b")
	r.Header.Set("Fence-Lease", l.ID)
	r.Header.Set("Traceparent", "00-11111111111111111111111111111111-2222222222222222-01")
	want(t, f.send(r), 412, "refused", "unissued-generation", "")
	logs := f.logs.String()
	if strings.Count(logs, "\n") != 1 || !strings.Contains(logs, `"code":"unissued-generation"`) || !strings.Contains(logs, `"trace_id":"11111111111111111111111111111111"`) {
		t.Errorf("logged %s", logs)
	}
	if strings.Contains(logs, l.ID) || strings.Contains(logs, "secret-key") {
		t.Errorf("a secret was logged: %s", logs)
	}
}
