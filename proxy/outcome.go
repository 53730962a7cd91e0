package proxy

import (
	"net/http"

	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// classify says what an upstream's answer tells about the write. Only an answer that
// cannot come from halfway through counts as a decision: a gateway's 5xx may hide a
// write that was done.
func classify(rt *Route, res *http.Response) tokens.Outcome {
	if o, ok := rt.Outcomes[res.StatusCode]; ok {
		return o
	}
	switch s := res.StatusCode; {
	case s >= 200 && s < 300, s == http.StatusSeeOther:
		return tokens.Applied
	case s == http.StatusRequestTimeout:
		return tokens.OutcomeUnknown
	case s >= 300 && s < 500:
		return tokens.Declined
	case s == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "":
		return tokens.Declined
	}
	return tokens.OutcomeUnknown
}

// counted is the outcome as the metrics know it.
func counted(o tokens.Outcome) telemetry.Outcome {
	switch o {
	case tokens.Applied:
		return telemetry.Applied
	case tokens.Declined:
		return telemetry.Declined
	case tokens.NotSent:
		return telemetry.NotSent
	}
	return telemetry.Unknown
}
