package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheReadyLineIsFoundAmongOthers(t *testing.T) {
	line := `{"time":"x","level":"INFO","msg":"ready","data_addr":"127.0.0.1:1","control_addr":"127.0.0.1:2"}`
	for _, tt := range []struct {
		name   string
		pieces []string
		want   bool
	}{
		{"alone", []string{line + "\n"}, true},
		{"after other lines", []string{"starting\n{\"msg\":\"open\"}\n" + line + "\n"}, true},
		{"in pieces", []string{line[:20], line[20:], "\nmore"}, true},
		{"not ended yet", []string{line}, false},
		{"not JSON", []string{"ready\n"}, false},
		{"twice", []string{line + "\n" + line + "\n"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLogs()
			for _, p := range tt.pieces {
				if _, err := io.WriteString(l, p); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case got := <-l.found:
				if !tt.want || got.DataAddr != "127.0.0.1:1" || got.ControlAddr != "127.0.0.1:2" {
					t.Errorf("found %+v", got)
				}
			default:
				if tt.want {
					t.Error("not found")
				}
			}
			if got := l.String(); got != strings.Join(tt.pieces, "") {
				t.Errorf("kept %q", got)
			}
		})
	}
}

func TestTheConfigurationIsWhatAUserWouldWrite(t *testing.T) {
	got := Settings{Upstream: "http://u", Route: []string{"takeover: {wait: 1s}"}, Top: []string{"drain: 2s"}}.yaml("/d")
	want := `listen: 127.0.0.1:0
control:
  listen: 127.0.0.1:0
store:
  engine: badger
  badger: {dir: "/d"}
leases: {min_ttl: 50ms, restart_grace: 100ms}
drain: 2s
routes:
  - name: test
    path: /
    upstream: http://u
    takeover: {wait: 1s}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTheChildInheritsNoSettings(t *testing.T) {
	t.Setenv("FENCEPROXY_LISTEN", "x")
	t.Setenv("OTEL_TRACES_EXPORTER", "x")
	for _, kv := range environ() {
		if strings.HasPrefix(kv, "FENCEPROXY_") || strings.HasPrefix(kv, "OTEL_") {
			t.Errorf("the child would get %s", kv)
		}
	}
}

// behind makes the clients talk to a handler as if it were the program.
func behind(t *testing.T, h http.HandlerFunc) *Daemon {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	addr := strings.TrimPrefix(s.URL, "http://")
	return &Daemon{tb: t, proc: &process{ready: ready{DataAddr: addr, ControlAddr: addr}}}
}

func TestAClaimIsSentAndItsAnswerKeptExactly(t *testing.T) {
	var path string
	var sent Fields
	c := behind(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"job_id":"j","owner":"o","generation":9007199254740991,"lease_id":"s","lapsed":true}`)
	}).Control()
	defer c.Close()
	r, err := c.Claim(t.Context(), "j", "o", 1500*time.Millisecond, Fields{"claim_id": "c"})
	if err != nil {
		t.Fatal(err)
	}
	if path != "/v1/lease/claim" || sent["job_id"] != "j" || sent["ttl_ms"] != 1500.0 || sent["claim_id"] != "c" {
		t.Errorf("sent %v to %s", sent, path)
	}
	if r.Status != 201 || r.Number("generation") != 1<<53-1 || !r.Flag("lapsed") || r.Number("owner") != -1 {
		t.Errorf("got %+v", r)
	}
	if got, want := r.Lease(), (Lease{Job: "j", Owner: "o", Generation: 1<<53 - 1, ID: "s"}); got != want {
		t.Errorf("got lease %+v, want %+v", got, want)
	}
}

func TestAMetricIsReadByItsSeries(t *testing.T) {
	c := behind(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "# HELP x\nx{route=\"a\"} 3\nx{route=\"ab\"} 4 # {trace_id=\"q\"} 1\n")
	}).Control()
	defer c.Close()
	for series, want := range map[string]float64{`x{route="a"}`: 3, `x{route="ab"}`: 4, `y`: 0} {
		got, err := c.Metric(t.Context(), series)
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", series, got, err, want)
		}
	}
}

func TestAWriteCarriesItsFenceAndItsMarks(t *testing.T) {
	var got *http.Request
	var body []byte
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Fence-Decision", "refused")
		w.Header().Set("Fence-Generation", "9")
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, `{"code":"stale-generation","floor":9}`)
	}).Writer(false)
	defer w.Close()
	a, err := w.Send(t.Context(), Write{Job: "j", Generation: 7, Lease: "l", Key: "k", ID: "w", Do: "hang",
		Body: []byte("hello"), Header: http.Header{"X-More": {"1", "2"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Fence-Job-Id": "j", "Fence-Generation": "7", "Fence-Lease": "l", "Idempotency-Key": "k",
		"X-Test-Job": "j", "X-Test-Generation": "7", "X-Test-Id": "w", "X-Test-Do": "hang", "X-More": "1"}
	for name, value := range want {
		if got.Header.Get(name) != value {
			t.Errorf("%s: got %q, want %q", name, got.Header.Get(name), value)
		}
	}
	if got.Method != "POST" || got.URL.Path != "/charge" || got.ContentLength != 5 || string(body) != "hello" {
		t.Errorf("got %s %s, %d bytes: %q", got.Method, got.URL.Path, got.ContentLength, body)
	}
	if a.Status != 412 || a.Decision() != "refused" || a.Floor() != 9 || a.Number("floor") != 9 || a.Text("code") == "" {
		t.Errorf("got %+v", a)
	}
}

func TestAStreamIsSentChunkedWithItsTrailer(t *testing.T) {
	w := behind(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		if r.ContentLength != -1 || r.Trailer.Get("X-Sum") != "1" {
			t.Errorf("length %d, trailer %v", r.ContentLength, r.Trailer)
		}
		w.WriteHeader(http.StatusEarlyHints)
	}).Writer(false)
	defer w.Close()
	a, err := w.Send(t.Context(), Write{Stream: strings.NewReader("hello"), Trailer: http.Header{"X-Sum": {"1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != 200 || len(a.Informational) != 1 {
		t.Errorf("got %+v", a)
	}
}
