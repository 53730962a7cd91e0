package telemetry

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

const testTraceID = "4bf92f3577b34da6a3ce929d0e0e4736"

func testMetrics() *Metrics {
	return NewMetrics(Build{Version: "1.2.3", Commit: "abc", GoVersion: "go1.26.8"},
		[]string{"payments", "orders"}, []string{"stale-generation", "no-route"})
}

// golden is the contract with dashboards and alerts: name, type, and every value that each label may have.
const golden = `
fenceproxy_admission_duration_seconds HISTOGRAM route=orders|payments
fenceproxy_build_info GAUGE commit=abc goversion=go1.26.8 version=1.2.3
fenceproxy_config_reloads_total COUNTER result=ok|refused
fenceproxy_in_flight GAUGE route=orders|payments
fenceproxy_jobs GAUGE
fenceproxy_keys_purged_total COUNTER
fenceproxy_lease_operations_total COUNTER operation=claim|complete|fence|other|release|renew|reopen|resolve|revoke result=completed|conflict|forbidden|granted|held|invalid|lapsed|lost|not-found|ok|other|repeated|unauthenticated|unavailable
fenceproxy_leases_held GAUGE
fenceproxy_outcomes_total COUNTER outcome=applied|declined|not-sent|unknown route=orders|payments
fenceproxy_rejections_total COUNTER code=no-route|other|stale-generation route=orders|payments
fenceproxy_request_duration_seconds HISTOGRAM decision=forwarded|refused|replayed route=orders|payments
fenceproxy_store_batch_size HISTOGRAM
fenceproxy_store_duration_seconds HISTOGRAM engine=badger operation=commit
fenceproxy_takeover_wait_seconds HISTOGRAM route=orders|payments
fenceproxy_takeovers_total COUNTER route=orders|payments
fenceproxy_upstream_duration_seconds HISTOGRAM route=orders|payments
fenceproxy_would_refuse_total COUNTER code=no-route|other|stale-generation route=orders|payments
fenceproxy_writes_total COUNTER decision=forwarded|refused|replayed route=orders|payments
`

func TestEverySeriesOfTheContractExistsFromTheStart(t *testing.T) {
	m := testMetrics()
	m.Observe(func() float64 { return 3 }, func() float64 { return 5 })
	m.StoreOperation("badger", "commit", 0.001) // made on first use

	var got []string
	others := map[string]bool{}
	for _, family := range gather(t, m) {
		if !strings.HasPrefix(family.GetName(), "fenceproxy_") {
			others[family.GetName()] = true
			continue
		}
		got = append(got, describe(family))
	}
	if want := strings.TrimSpace(golden); strings.Join(got, "\n") != want {
		t.Errorf("series are\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if !others[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestEachCallMovesItsOwnSeries(t *testing.T) {
	m := testMetrics()
	r := m.Route("payments")
	m.Observe(func() float64 { return 3 }, func() float64 { return 5 })

	r.Finished(Replayed, 0.25, "")
	r.Finished(Decision(9), 1, "") // counted nowhere, and no panic
	r.Rejected("stale-generation")
	r.Rejected("never-heard-of")
	r.WouldRefuse("no-route")
	r.WouldRefuse("never-heard-of")
	r.Outcome(NotSent)
	r.Outcome(Outcome(9))
	r.Admission(0.5, "")
	r.Upstream(0.75, "")
	r.InFlight(3)
	r.InFlight(-1)
	r.Takeover()
	r.TakeoverWait(2, "")
	m.LeaseOperation("claim", "granted")
	m.LeaseOperation("steal", "granted")
	m.LeaseOperation("renew", "eaten")
	m.StoreOperation("etcd", "load", 0.1)
	m.StoreOperation("cassandra", "DROP TABLE", 0.1)
	m.StoreBatch(17)
	m.Reload(true)

	got := values(t, m)
	want := map[string]float64{
		"fenceproxy_build_info{abc,go1.26.8,1.2.3}":              1,
		"fenceproxy_writes_total{replayed,payments}":             1,
		"fenceproxy_request_duration_seconds{replayed,payments}": 0.25,
		"fenceproxy_rejections_total{stale-generation,payments}": 1,
		"fenceproxy_rejections_total{other,payments}":            1,
		"fenceproxy_would_refuse_total{no-route,payments}":       1,
		"fenceproxy_would_refuse_total{other,payments}":          1,
		"fenceproxy_outcomes_total{not-sent,payments}":           1,
		"fenceproxy_admission_duration_seconds{payments}":        0.5,
		"fenceproxy_upstream_duration_seconds{payments}":         0.75,
		"fenceproxy_in_flight{payments}":                         2,
		"fenceproxy_takeovers_total{payments}":                   1,
		"fenceproxy_takeover_wait_seconds{payments}":             2,
		"fenceproxy_lease_operations_total{claim,granted}":       1,
		"fenceproxy_lease_operations_total{other,granted}":       1,
		"fenceproxy_lease_operations_total{renew,other}":         1,
		"fenceproxy_store_duration_seconds{etcd,load}":           0.1,
		"fenceproxy_store_duration_seconds{other,other}":         0.1,
		"fenceproxy_store_batch_size{}":                          17,
		"fenceproxy_leases_held{}":                               3,
		"fenceproxy_jobs{}":                                      5,
		"fenceproxy_config_reloads_total{ok}":                    1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("series that are not zero:\n%v\nwant\n%v", got, want)
	}
}

func TestNoCallerCanCreateASeries(t *testing.T) {
	m := testMetrics()
	r := m.Route("orders")
	for _, engine := range engines {
		for _, operation := range storeOperations {
			m.StoreOperation(engine, operation, 0.1)
		}
	}
	before := series(t, m)
	for i := range 20_000 {
		odd := fmt.Sprintf("job-%d\xff", i)
		r.Rejected(odd)
		r.Finished(Decision(i), 0.1, odd)
		r.Outcome(Outcome(i))
		m.LeaseOperation(odd, odd)
		m.StoreOperation(odd, odd, 0.1)
		m.StoreBatch(i)
	}
	if after := series(t, m); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

func TestTheTraceIDIsAnExemplarInOpenMetricsOnly(t *testing.T) {
	m := testMetrics()
	r := m.Route("payments")
	r.Finished(Forwarded, 0.002, testTraceID)
	r.Admission(0.002, testTraceID)
	r.Upstream(0.002, testTraceID)
	r.TakeoverWait(0.002, testTraceID)
	for _, bad := range []string{"short", strings.Repeat("x", 32), strings.Repeat("\xff", 32), strings.Repeat("a", 500)} {
		r.Finished(Forwarded, 0.3, bad) // must neither panic nor show
	}

	open := scrape(t, m, "application/openmetrics-text; version=1.0.0")
	for _, name := range []string{"request_duration", "admission_duration", "upstream_duration", "takeover_wait"} {
		found := false
		for line := range strings.Lines(open) {
			found = found || strings.HasPrefix(line, "fenceproxy_"+name+"_seconds_bucket{") &&
				strings.Contains(line, `# {trace_id="`+testTraceID+`"} 0.002`)
		}
		if !found {
			t.Errorf("no exemplar on fenceproxy_%s_seconds:\n%s", name, open)
		}
	}
	if n := strings.Count(open, "trace_id="); n != 4 {
		t.Errorf("%d exemplars, want 4", n)
	}
	if plain := scrape(t, m, "text/plain"); strings.Contains(plain, "trace_id") {
		t.Error("the older format has no exemplars, and yet one is shown")
	}
}

func TestAReloadAddsRoutesAndKeepsTheCountsOfOldOnes(t *testing.T) {
	m := testMetrics()
	kept := m.Route("orders")
	kept.Outcome(Applied)
	m.AddRoutes("orders", "refunds")
	if m.Route("orders") != kept {
		t.Error("a known route was made anew")
	}
	m.Route("refunds").Outcome(Unknown)
	got := values(t, m)
	for _, name := range []string{"fenceproxy_outcomes_total{applied,orders}", "fenceproxy_outcomes_total{unknown,refunds}"} {
		if got[name] != 1 {
			t.Errorf("%s is %v, want 1", name, got[name])
		}
	}
}

func TestAnUnknownRouteIsAProgrammingError(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	testMetrics().Route("nowhere")
}

func TestMetricsMayBeUsedFromManyGoroutines(t *testing.T) {
	m := testMetrics()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			r := m.Route("payments")
			for range 200 {
				r.Finished(Forwarded, 0.001, testTraceID)
				r.InFlight(1)
				r.InFlight(-1)
				r.Rejected("no-route")
				m.LeaseOperation("claim", "held")
			}
			m.AddRoutes(fmt.Sprintf("new-%d", i%2))
			scrape(t, m, "application/openmetrics-text")
		})
	}
	all.Wait()
	got := values(t, m)
	if n := got["fenceproxy_writes_total{forwarded,payments}"]; n != 1600 {
		t.Errorf("%v writes counted, want 1600", n)
	}
	if n := got["fenceproxy_in_flight{payments}"]; n != 0 {
		t.Errorf("%v in flight, want 0", n)
	}
}

func TestTheHotPathDoesNotAllocate(t *testing.T) {
	m := testMetrics()
	r := m.Route("payments")
	for name, f := range map[string]func(){
		"Finished":       func() { r.Finished(Forwarded, 0.001, "") },
		"Rejected":       func() { r.Rejected("stale-generation") },
		"Rejected other": func() { r.Rejected("odd") },
		"Outcome":        func() { r.Outcome(Applied) },
		"Admission":      func() { r.Admission(0.001, "") },
		"Upstream":       func() { r.Upstream(0.001, "") },
		"InFlight":       func() { r.InFlight(1) },
		"LeaseOperation": func() { m.LeaseOperation("renew", "ok") },
		"StoreBatch":     func() { m.StoreBatch(64) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkFinished(b *testing.B) {
	r := testMetrics().Route("payments")
	b.ReportAllocs()
	for b.Loop() {
		r.Finished(Forwarded, 0.001, "")
	}
}

func BenchmarkOutcome(b *testing.B) {
	r := testMetrics().Route("payments")
	b.ReportAllocs()
	for b.Loop() {
		r.Outcome(Applied)
	}
}

func BenchmarkInFlight(b *testing.B) {
	r := testMetrics().Route("payments")
	b.ReportAllocs()
	for b.Loop() {
		r.InFlight(1)
	}
}

func BenchmarkAdmission(b *testing.B) {
	r := testMetrics().Route("payments")
	b.ReportAllocs()
	for b.Loop() {
		r.Admission(0.001, "")
	}
}

func gather(t *testing.T, m *Metrics) []*dto.MetricFamily {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// describe renders one line of the golden list.
func describe(family *dto.MetricFamily) string {
	labels := map[string][]string{}
	for _, metric := range family.GetMetric() {
		for _, l := range metric.GetLabel() {
			if !slices.Contains(labels[l.GetName()], l.GetValue()) {
				labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
			}
		}
	}
	line := family.GetName() + " " + family.GetType().String()
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		slices.Sort(labels[name])
		line += " " + name + "=" + strings.Join(labels[name], "|")
	}
	return line
}

// values returns the fenceproxy series that are not zero, named by their label values in order of the label names; a
// histogram counts with its sum.
func values(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for _, family := range gather(t, m) {
		if !strings.HasPrefix(family.GetName(), "fenceproxy_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			var words []string
			for _, l := range metric.GetLabel() {
				words = append(words, l.GetValue())
			}
			v := metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetHistogram().GetSampleSum()
			if v != 0 {
				found[family.GetName()+"{"+strings.Join(words, ",")+"}"] = v
			}
		}
	}
	return found
}

// series counts the fenceproxy series.
func series(t *testing.T, m *Metrics) int {
	t.Helper()
	n := 0
	for _, family := range gather(t, m) {
		if strings.HasPrefix(family.GetName(), "fenceproxy_") {
			n += len(family.GetMetric())
		}
	}
	return n
}

func scrape(t *testing.T, m *Metrics, accept string) string {
	t.Helper()
	request := httptest.NewRequest("GET", "/metrics", nil)
	request.Header.Set("Accept", accept)
	reply := httptest.NewRecorder()
	m.Handler().ServeHTTP(reply, request)
	if reply.Code != 200 {
		t.Errorf("GET /metrics answered %d: %s", reply.Code, reply.Body)
	}
	return reply.Body.String()
}
