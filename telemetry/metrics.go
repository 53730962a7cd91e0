package telemetry

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Build says which program is running. It labels fenceproxy_build_info and the traces' resource.
type Build struct{ Version, Commit, GoVersion string }

// Metrics holds every series of one daemon, in a registry of its own. All methods may be called concurrently.
type Metrics struct {
	registry *prometheus.Registry
	codes    []string // rejection codes, without "other"

	writes, rejections, would, outcomes, takeovers      *prometheus.CounterVec
	inFlight                                            *prometheus.GaugeVec
	request, admission, upstream, takeoverWait, storage *prometheus.HistogramVec
	batch                                               prometheus.Histogram
	purged                                              prometheus.Counter
	reloads                                             [2]prometheus.Counter // refused, ok

	leases map[string]map[string]prometheus.Counter // by operation and result; read only after NewMetrics

	mu     sync.RWMutex
	routes map[string]*Route
}

// NewMetrics registers every series for the named routes and the given refusal codes, and the process and Go collectors.
// Names and codes may repeat. All series of a route exist from now on, at zero, so that a first increase is seen by rate().
func NewMetrics(b Build, routes, codes []string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		codes:    codes,
		routes:   make(map[string]*Route, len(routes)),

		writes:     counters("writes_total", "Writes judged, by decision.", "route", "decision"),
		rejections: counters("rejections_total", "Writes refused or failed, by the code in Fence-Reason.", "route", "code"),
		would: counters("would_refuse_total", "Writes forwarded though the fence would have refused them, on routes that only observe.",
			"route", "code"),
		outcomes:  counters("outcomes_total", "Attempts settled, by outcome.", "route", "outcome"),
		takeovers: counters("takeovers_total", "Floor raises that found older attempts in flight.", "route"),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "fenceproxy", Name: "in_flight", Help: "Attempts not settled yet.",
		}, []string{"route"}),

		request: histograms("request_duration_seconds", "From a write's arrival to its answer.",
			requestBuckets, "route", "decision"),
		admission: histograms("admission_duration_seconds", "From a write's arrival to its admission or refusal.",
			admissionBuckets, "route"),
		upstream: histograms("upstream_duration_seconds", "From the first byte sent to the upstream's reply head.",
			requestBuckets, "route"),
		takeoverWait: histograms("takeover_wait_seconds", "Time that newer generations waited for older attempts.",
			takeoverBuckets, "route"),
		storage: histograms("store_duration_seconds", "Time of one operation of the store.",
			storeBuckets, "engine", "operation"),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "fenceproxy", Name: "store_batch_size", Help: "Commits that shared one durable write.",
			Buckets: batchBuckets,
		}),
	}

	m.purged = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "fenceproxy", Name: "keys_purged_total",
		Help: "Keys forgotten after their retention; a later write under one is a new write.",
	})
	reloads := counters("config_reloads_total", "Reloads of the configuration, by result: ok or refused.", "result")
	for i, result := range []string{"refused", "ok"} {
		m.reloads[i] = reloads.WithLabelValues(result)
	}
	leases := counters("lease_operations_total", "Calls of the lease API, by result.", "operation", "result")
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "fenceproxy", Name: "build_info", Help: "Always 1; the labels say which program runs.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "goversion": b.GoVersion},
	})
	info.Set(1)

	m.registry.MustRegister(
		m.writes, m.rejections, m.would, m.outcomes, m.takeovers, m.inFlight,
		m.request, m.admission, m.upstream, m.takeoverWait, m.storage, m.batch, m.purged, reloads, leases, info,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)

	m.leases = make(map[string]map[string]prometheus.Counter, len(leaseOperations))
	for _, operation := range leaseOperations {
		byResult := make(map[string]prometheus.Counter, len(leaseResults))
		for _, result := range leaseResults {
			byResult[result] = leases.WithLabelValues(operation, result)
		}
		m.leases[operation] = byResult
	}
	m.AddRoutes(routes...)
	return m
}

// Handler serves the registry for GET /metrics. OpenMetrics is offered, because exemplars travel in no other text
// format; a scraper that asks for it sees le="1.0" where the older format has le="1".
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// AddRoutes resolves the series of routes that a reload of the configuration has brought. A route that is known keeps
// its counts, and one that is gone keeps its series: a counter that vanishes and returns would look like a restart.
func (m *Metrics) AddRoutes(names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if m.routes[name] == nil {
			m.routes[name] = newRoute(m, name)
		}
	}
}

// Route returns the handles of one route; callers keep it rather than ask per request. It panics on a name that was given
// neither to NewMetrics nor to AddRoutes, which is a programming error.
func (m *Metrics) Route(name string) *Route {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := m.routes[name]
	if r == nil {
		panic("telemetry: no metrics for route " + name)
	}
	return r
}

// LeaseOperation counts one call of the lease API. Words that are not on the fixed lists count as "other".
// Operations: claim, renew, complete, release, revoke, fence, reopen, resolve. Results: granted, repeated, held,
// completed, ok, lapsed, lost, invalid, unauthenticated, forbidden, not-found, conflict, unavailable.
func (m *Metrics) LeaseOperation(operation, result string) {
	m.leases[known(leaseOperations, operation)][known(leaseResults, result)].Inc()
}

// StoreOperation records one operation of the store that took so many seconds. Words that are not on the fixed lists
// count as "other". Engines: badger, postgres, etcd, memory. Operations: load, commit, list, sweep, watch, heartbeat,
// backup, restore, probe.
//
// The series are made on first use, since a process has one engine and the others' would stay empty for ever; the look-up
// is small beside the I/O it measures.
func (m *Metrics) StoreOperation(engine, operation string, seconds float64) {
	m.storage.WithLabelValues(known(engines, engine), known(storeOperations, operation)).Observe(seconds)
}

// StoreBatch records that n commits shared one durable write.
func (m *Metrics) StoreBatch(n int) { m.batch.Observe(float64(n)) }

// Observe registers gauges that are read at each scrape: leases with a live holder, and jobs known to the store. The
// functions are called concurrently, must be quick and must not do I/O. Observe is called at most once.
func (m *Metrics) Observe(leasesHeld, jobs func() float64) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "fenceproxy", Name: "leases_held", Help: "Leases with a live holder.",
		}, leasesHeld),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "fenceproxy", Name: "jobs", Help: "Jobs with a record in the store.",
		}, jobs),
	)
}

// ObserveUnknown reports the keyed writes whose outcome is unknown, and the age of the oldest in seconds. It must be called
// at most once; read may be called concurrently.
func (m *Metrics) ObserveUnknown(read func() (n, oldestSeconds float64)) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "fenceproxy", Name: "unknown_writes", Help: "Keyed writes whose outcome is unknown and not resolved.",
		}, func() float64 { n, _ := read(); return n }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "fenceproxy", Name: "unknown_oldest_seconds", Help: "Age of the oldest write whose outcome is unknown; 0 if there is none.",
		}, func() float64 { _, age := read(); return age }),
	)
}

// KeysPurged counts keys that were forgotten after their retention: a later write under one of them is a new write.
func (m *Metrics) KeysPurged(n int) { m.purged.Add(float64(n)) }

// Reload counts a reload of the configuration that took effect, or was refused.
func (m *Metrics) Reload(ok bool) {
	if ok {
		m.reloads[1].Inc()
	} else {
		m.reloads[0].Inc()
	}
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "fenceproxy", Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "fenceproxy", Name: name, Help: help, Buckets: buckets,
	}, labels)
}
