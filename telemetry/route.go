package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Route holds the resolved series of one route. All methods may be called concurrently; without a trace id none of them
// allocates.
type Route struct {
	writes   [3]prometheus.Counter // by Decision
	request  [3]observer           // by Decision
	outcomes [4]prometheus.Counter // by Outcome

	rejections map[string]prometheus.Counter // by code; read only
	rejected   prometheus.Counter            // a code that is not on the list
	would      map[string]prometheus.Counter // the same of refusals that were only reported
	wouldOther prometheus.Counter

	admission, upstream, takeoverWait observer
	inFlight                          prometheus.Gauge
	takeovers                         prometheus.Counter
}

func newRoute(m *Metrics, name string) *Route {
	r := &Route{
		rejections:   make(map[string]prometheus.Counter, len(m.codes)),
		rejected:     m.rejections.WithLabelValues(name, other),
		would:        make(map[string]prometheus.Counter, len(m.codes)),
		wouldOther:   m.would.WithLabelValues(name, other),
		admission:    observe(m.admission, name),
		upstream:     observe(m.upstream, name),
		inFlight:     m.inFlight.WithLabelValues(name),
		takeovers:    m.takeovers.WithLabelValues(name),
		takeoverWait: observe(m.takeoverWait, name),
	}
	for i, decision := range decisions {
		r.writes[i] = m.writes.WithLabelValues(name, decision)
		r.request[i] = observe(m.request, name, decision)
	}
	for i, outcome := range outcomes {
		r.outcomes[i] = m.outcomes.WithLabelValues(name, outcome)
	}
	for _, code := range m.codes {
		r.rejections[code] = m.rejections.WithLabelValues(name, code)
		r.would[code] = m.would.WithLabelValues(name, code)
	}
	return r
}

// Finished counts a write that was answered, and the seconds from its arrival. A trace id of 32 hex digits becomes the
// duration's exemplar. A decision outside the constants is not counted.
func (r *Route) Finished(d Decision, seconds float64, traceID string) {
	if int(d) >= len(r.writes) {
		return
	}
	r.writes[d].Inc()
	r.request[d].record(seconds, traceID)
}

// Rejected counts an answer that the proxy made itself, by its code. A code that was not given to NewMetrics counts as
// "other".
func (r *Route) Rejected(code string) {
	c := r.rejections[code]
	if c == nil {
		c = r.rejected
	}
	c.Inc()
}

// WouldRefuse counts a write that was forwarded though its route's fence would have refused it, by the code. A code that
// was not given to NewMetrics counts as "other".
func (r *Route) WouldRefuse(code string) {
	c := r.would[code]
	if c == nil {
		c = r.wouldOther
	}
	c.Inc()
}

// Outcome counts a settled attempt. An outcome outside the constants is not counted.
func (r *Route) Outcome(o Outcome) {
	if int(o) < len(r.outcomes) {
		r.outcomes[o].Inc()
	}
}

// Admission records the seconds from a write's arrival to its admission or refusal.
func (r *Route) Admission(seconds float64, traceID string) { r.admission.record(seconds, traceID) }

// Upstream records the seconds from the first byte sent to the upstream's reply head.
func (r *Route) Upstream(seconds float64, traceID string) { r.upstream.record(seconds, traceID) }

// InFlight adds delta to the attempts that are not settled: +1 at admission, -1 when the outcome is known.
func (r *Route) InFlight(delta int) { r.inFlight.Add(float64(delta)) }

// Takeover counts a floor raise that found older attempts in flight.
func (r *Route) Takeover() { r.takeovers.Inc() }

// TakeoverWait records the seconds that a newer generation's write waited for older attempts.
func (r *Route) TakeoverWait(seconds float64, traceID string) {
	r.takeoverWait.record(seconds, traceID)
}

// observer is a histogram with both of its faces resolved: the type assertion costs more than the observation.
type observer struct {
	plain    prometheus.Observer
	exemplar prometheus.ExemplarObserver
}

func observe(v *prometheus.HistogramVec, labels ...string) observer {
	h := v.WithLabelValues(labels...)
	return observer{plain: h, exemplar: h.(prometheus.ExemplarObserver)} // every histogram of client_golang is both
}

// record observes seconds. client_golang panics on an exemplar that is too long or not UTF-8, so only what looks like a
// trace id is passed on.
func (o observer) record(seconds float64, traceID string) {
	if len(traceID) != traceIDLength || !isHex(traceID) {
		o.plain.Observe(seconds)
		return
	}
	o.exemplar.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": traceID})
}
