package proxy

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// impostor is an upstream that speaks under the proxy's names.
func impostor(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Trailer", "Idempotency-Key, Fence-Outcome, X-Sum")
	w.Header().Set("Idempotency-Key", "made-up")
	w.Header().Set("Fence-Decision", "made-up")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte("done"))
	w.Header().Set("Fence-Outcome", "made-up")
	w.Header().Set("X-Sum", "1")
}

func TestTheKeyInAnAnswerIsTheCallers(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u := newUpstream(t, impostor)
		f := newFixture(t, u.URL, sender, func(r *Route) { r.Fencing = FencingOptional })
		for _, c := range []struct{ name, method, job, generation, key string }{
			{"a write", "POST", "j", "7", "k"},
			{"a write without a key", "POST", "j", "7", ""},
			{"a read", "GET", "", "", ""},
			{"a read with a key", "GET", "", "", "k"},
			{"a write that is not fenced", "POST", "", "", `"k"`},
			{"a stale write", "POST", "j", "6", "k"},
			{"a malformed generation", "POST", "j", "07", "k"},
			{"a job alone", "POST", "j", "", "k"},
		} {
			r := f.request(c.job, c.generation, nil)
			r.Method = c.method
			for name, value := range map[string]string{"Fence-Job-Id": c.job, "Fence-Generation": c.generation, "Idempotency-Key": c.key} {
				if r.Header.Set(name, value); value == "" {
					r.Header.Del(name)
				}
			}
			got := f.send(r)
			if got.err != nil || strings.Join(got.Header.Values("Idempotency-Key"), "+") != c.key || strings.Contains(got.Header.Get("Fence-Decision"), "made-up") {
				t.Errorf("%s: %v, head %v, want the key %q", c.name, got.err, got.Header, c.key)
			}
			for _, name := range []string{"Idempotency-Key", "Fence-Outcome"} {
				if v := got.Trailer.Get(name); v == "made-up" {
					t.Errorf("%s: the trailers have %v", c.name, got.Trailer)
				}
			}
		}
	})
}

func TestAnUpstreamSpeaksForItselfWhereNothingIsFenced(t *testing.T) {
	u := newUpstream(t, impostor)
	f := newFixture(t, u.URL, func(r *Route) { r.Fencing = FencingOff })
	got := f.post("j", "7")
	if h := got.Header; h.Get("Idempotency-Key") != "made-up" || h.Get("Fence-Decision") != "made-up" {
		t.Errorf("got %v", h)
	}
}

func TestARefusalNamesWhatIsWellFormed(t *testing.T) {
	f := newFixture(t, newUpstream(t, nil).URL)
	for _, c := range []struct {
		job, generation string
		want            wire.Problem
	}{
		{"j", "07", wire.Problem{JobID: "j"}},
		{"j", "", wire.Problem{JobID: "j"}},
		{"a b", "7", wire.Problem{Generation: 7}},
		{"", "7", wire.Problem{Generation: 7}},
	} {
		r := f.request(c.job, c.generation, nil)
		for name, value := range map[string]string{"Fence-Job-Id": c.job, "Fence-Generation": c.generation} {
			if value == "" {
				r.Header.Del(name)
			}
		}
		got := f.send(r)
		want(t, got, 400, "refused", "fence-invalid", "")
		if p := problemOf(t, got); p.JobID != c.want.JobID || p.Generation != c.want.Generation || p.Floor != 0 {
			t.Errorf("job %q, generation %q: %s", c.job, c.generation, got.body)
		}
	}
}

func TestARefusalForLackOfRoomNamesTheJob(t *testing.T) {
	names := func(t *testing.T, f *fixture) {
		t.Helper()
		got := f.send(f.keyed("j", "7", "k", "b"))
		want(t, got, 503, "refused", "overloaded", "")
		if p := problemOf(t, got); p.JobID != "j" || p.Generation != 7 || p.Floor != 9 {
			t.Errorf("got %s", got.body)
		}
		if h := got.Header; h.Get("Fence-Generation") != "9" || h.Get("Idempotency-Key") != "k" {
			t.Errorf("got %v", h)
		}
	}
	t.Run("too many", func(t *testing.T) {
		slow, release := held(t)
		f := newFixtureOf(t, Options{Routes: []Route{routeTo(t, "a", "/", slow.URL)}, MaxInFlight: 1})
		first := f.start(f.request("j", "9", strings.NewReader("a")))
		<-slow.arrived
		names(t, f)
		release()
		want(t, <-first, 200, "forwarded", "", "applied")
	})
	t.Run("draining", func(t *testing.T) {
		f := newFixture(t, newUpstream(t, nil).URL)
		want(t, f.post("j", "9"), 200, "forwarded", "", "applied")
		f.proxy.Drain(context.Background())
		names(t, f)
	})
}

func TestTheAdmissionHasASpanAndATimeOfItsOwn(t *testing.T) {
	u := newUpstream(t, nil)
	spans := tracetest.NewSpanRecorder()
	f := newTracedFixture(t, u.URL, telemetry.NewTracerFrom(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))))
	want(t, f.post("j", "7"), 200, "forwarded", "", "applied")
	want(t, f.post("j", "6"), 412, "refused", "stale-generation", "")
	eventually(t, "the spans have ended", func() bool { return len(spans.Ended()) >= 5 })
	parents, children := make(map[string]string), make(map[string]int)
	for _, s := range spans.Ended() {
		parents[s.SpanContext().SpanID().String()] = s.Name()
	}
	for _, s := range spans.Ended() {
		if parents[s.Parent().SpanID().String()] == "POST default" {
			children[s.Name()]++
		}
	}
	if children["admission"] != 2 || children["upstream"] != 1 {
		t.Errorf("the writes have the children %v, want 2 admissions and 1 upstream", children)
	}
	if got := f.scrape(); !strings.Contains(got, `fenceproxy_admission_duration_seconds_count{route="default"} 2`+"\n") {
		t.Error("the refusal of a write before its body is not in the time of the admission")
	}
}
