package telemetry

import (
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const testParent = "00-" + testTraceID + "-00f067aa0ba902b7-01"

func TestATraceParentIsReadAsTheRecommendationSays(t *testing.T) {
	for name, c := range map[string]struct {
		in string
		ok bool
	}{
		"sampled":                      {testParent, true},
		"not sampled":                  {testParent[:53] + "00", true},
		"unknown flags":                {testParent[:53] + "ff", true},
		"higher version":               {"01" + testParent[2:], true},
		"higher version with more":     {"cc" + testParent[2:] + "-what-comes-later", true},
		"higher version, no delimiter": {"cc" + testParent[2:] + ".x", false},
		"version 00 with more":         {testParent + "-01", false},
		"version 00 with a dash more":  {testParent + "-", false}, // the SDK's propagator takes it
		"version ff":                   {"ff" + testParent[2:], false},
		"version not hex":              {"0x" + testParent[2:], false},
		"empty":                        {"", false},
		"one short":                    {testParent[:54], false},
		"upper case":                   {strings.ToUpper(testParent), false},
		"zero trace id":                {"00-" + strings.Repeat("0", 32) + testParent[35:], false},
		"zero parent id":               {testParent[:36] + strings.Repeat("0", 16) + "-01", false},
		"flags not hex":                {testParent[:53] + "0g", false},
		"wrong delimiter":              {strings.ReplaceAll(testParent, "-", "_"), false},
		"blank before":                 {" " + testParent, false},
		"blank after":                  {testParent + " ", false},
		"two values":                   {testParent + "," + testParent, false},
	} {
		id, ok := ParseTraceParent(c.in)
		if ok != c.ok {
			t.Errorf("%s: ok is %v, want %v", name, ok, c.ok)
		}
		if want := map[bool]string{true: testTraceID}[c.ok]; id != want {
			t.Errorf("%s: id is %q, want %q", name, id, want)
		}
		if n := testing.AllocsPerRun(10, func() { _, _ = ParseTraceParent(c.in) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// An id is returned if and only if the header is accepted, and it is the span context's. What the SDK's propagator reads
// must be read here alike, but for its tolerance of a dash after version 00.
func FuzzParseTraceParent(f *testing.F) {
	for _, seed := range []string{"", testParent, testParent + "-x", "cc" + testParent[2:] + "-x", "ff" + testParent[2:], testParent[:53] + "ff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, ok := ParseTraceParent(s)
		if ok != (id != "") {
			t.Fatalf("id %q with ok %v", id, ok)
		}
		c, also := spanContext(s)
		if also != ok || ok && (!c.IsValid() || c.TraceID().String() != id || !c.IsRemote()) {
			t.Fatalf("span context %+v, ok %v, for id %q, ok %v", c, also, id, ok)
		}
		theirs := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(),
			propagation.HeaderCarrier(http.Header{"Traceparent": {s}})))
		if loose := s[:min(2, len(s))] == "00" && len(s) > traceParentLength; loose {
			return
		}
		if theirs.IsValid() && (theirs.TraceID() != c.TraceID() || theirs.SpanID() != c.SpanID() || theirs.TraceFlags() != c.TraceFlags()) {
			t.Fatalf("%q: the SDK reads %+v, we read %+v", s, theirs, c)
		}
	})
}
