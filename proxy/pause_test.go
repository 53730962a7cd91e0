package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// slowSender takes a body byte by byte, and does something else after each.
type slowSender struct{ pause func() }

// Send implements Sender.
func (o slowSender) Send(req *http.Request, s *Send) (*http.Response, error) {
	s.Watcher.Gate()
	var b [1]byte
	for {
		if _, err := io.ReadFull(req.Body, b[:]); err == io.EOF {
			s.Watcher.SentWhole()
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		} else if err != nil {
			return nil, err
		}
		o.pause()
	}
}

// CloseIdle implements Sender.
func (slowSender) CloseIdle() {}

func TestAPauseOfTheUpstreamIsNotTheCallers(t *testing.T) {
	const idle = 1500 * time.Millisecond
	tick := func() { <-time.After(idle * 2 / 3) } // the timeout is what is tested
	for name, choose := range map[string]func(*http.Protocols, bool){
		"http1": (*http.Protocols).SetHTTP1,
		"h2c":   (*http.Protocols).SetUnencryptedHTTP2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			f := newFixture(t, newUpstream(t, nil).URL, func(r *Route) {
				r.Sender, r.IdleTimeout, r.BodyBuffer = slowSender{tick}, idle, 0
			})
			tr := &http.Transport{Protocols: new(http.Protocols)}
			choose(tr.Protocols, true)
			defer tr.CloseIdleConnections()
			body, w := io.Pipe()
			go func() {
				tick()
				_, _ = io.WriteString(w, "xx")
				tick()
				tick()
				_, _ = io.WriteString(w, "x")
				_ = w.Close()
			}()
			res, err := tr.RoundTrip(f.request("j", "1", body))
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			want(t, reply{Response: res, body: string(b)}, 200, "forwarded", "", "applied")
		})
	}
}

// slowWriter is a caller that takes the first piece of a reply's body slowly.
type slowWriter struct {
	*httptest.ResponseRecorder
	tick  func()
	taken chan struct{}
}

// Write implements http.ResponseWriter.
func (w *slowWriter) Write(p []byte) (int, error) {
	select {
	case <-w.taken:
	default:
		w.tick()
		close(w.taken)
	}
	return w.ResponseRecorder.Write(p)
}

func TestAPauseOfTheCallerIsNotTheUpstreams(t *testing.T) {
	const idle = 1500 * time.Millisecond
	tick := func() { <-time.After(idle * 2 / 3) } // the timeout is what is tested
	w := &slowWriter{httptest.NewRecorder(), tick, make(chan struct{})}
	u := newUpstream(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(rw, "x")
		_ = http.NewResponseController(rw).Flush()
		<-w.taken
		tick()
		_, _ = io.WriteString(rw, "y")
	})
	f := newFixture(t, u.URL, func(r *Route) { r.IdleTimeout = idle })
	r := httptest.NewRequest(http.MethodPost, "/charge", nil)
	r.Header["Fence-Job-Id"], r.Header["Fence-Generation"] = []string{"j"}, []string{"1"}
	f.proxy.ServeHTTP(w, r)
	if got := w.Body.String(); w.Code != 200 || got != "xy" {
		t.Errorf("got %d, %q", w.Code, got)
	}
}
