package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// overHTTP2 makes a route speak HTTP/2 to its upstream.
func overHTTP2(r *Route) { r.Sender = NewHTTP2Sender(r.Upstream, nil, 64) }

// newPeerUpstream serves each HTTP/2 connection with h.
func newPeerUpstream(t *testing.T, h func(*peer), settings ...http2.Setting) string {
	return rawUpstream(t, func(c net.Conn, br *bufio.Reader) { h(newPeer(c, br, settings...)) })
}

func TestWhatARefusalOfTheStreamProves(t *testing.T) {
	goAway := func(last uint32, code http2.ErrCode) func(*peer, uint32) {
		return func(p *peer, _ uint32) { _ = p.fr.WriteGoAway(last, code, nil) }
	}
	reset := func(code http2.ErrCode) func(*peer, uint32) {
		return func(p *peer, stream uint32) { _ = p.fr.WriteRSTStream(stream, code) }
	}
	for _, c := range []struct {
		name            string
		say             func(*peer, uint32)
		reason, outcome string
	}{
		{"REFUSED_STREAM", reset(http2.ErrCodeRefusedStream), "upstream-unreachable", "declined"},
		{"GOAWAY below the stream", goAway(0, http2.ErrCodeNo), "upstream-unreachable", "declined"},
		{"GOAWAY below the stream, with an error", goAway(0, http2.ErrCodeEnhanceYourCalm), "upstream-unreachable", "declined"},
		{"GOAWAY of the stream, then silence", goAway(1, http2.ErrCodeNo), "upstream-failed", "unknown"},
		{"CANCEL", reset(http2.ErrCodeCancel), "upstream-failed", "unknown"},
		{"INTERNAL_ERROR", reset(http2.ErrCodeInternal), "upstream-failed", "unknown"},
		{"NO_ERROR without a reply", reset(http2.ErrCodeNo), "upstream-failed", "unknown"},
		{"REFUSED_STREAM for another stream, then silence", func(p *peer, _ uint32) { _ = p.fr.WriteRSTStream(7, http2.ErrCodeRefusedStream) }, "upstream-failed", "unknown"},
		{"silence", func(*peer, uint32) {}, "upstream-failed", "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			requests := make(chan struct{}, 10)
			url := newPeerUpstream(t, func(p *peer) {
				for {
					stream, ok := p.request()
					if !ok {
						return
					}
					requests <- struct{}{}
					if len(requests) == 1 {
						c.say(p, stream)
						return
					}
					p.reply(stream, true, ":status", "200")
				}
			})
			f := newFixture(t, url, overHTTP2, keeping)
			r := f.keyed("j", "1", "k", "amount=1")
			want(t, f.send(r), 502, "refused", c.reason, c.outcome)
			if len(requests) != 1 {
				t.Fatalf("sent %d times, want once: nothing is repeated, whatever the refusal allows", len(requests))
			}
			again := f.send(f.keyed("j", "1", "k", "amount=1"))
			if c.outcome == "declined" {
				want(t, again, 200, "forwarded", "", "applied")
			} else {
				want(t, again, 409, "refused", "outcome-unknown", "")
			}
		})
	}
}

func TestARefusalOnAnIdleConnectionDoesNotTouchTheNextWrite(t *testing.T) {
	// The upstream says goodbye with its reply. The next write must go out on a
	// connection of its own, and what was said on the old one must not count for it.
	connections := make(chan int, 10)
	url := newPeerUpstream(t, func(p *peer) {
		connections <- 1
		for {
			stream, ok := p.request()
			if !ok {
				return
			}
			_ = p.fr.WriteGoAway(stream, http2.ErrCodeNo, nil)
			p.reply(stream, true, ":status", "200")
		}
	})
	f := newFixture(t, url, overHTTP2)
	for range 5 {
		want(t, f.post("j", "1"), 200, "forwarded", "", "applied")
	}
	if n := len(connections); n != 5 {
		t.Errorf("%d connections for 5 writes, want one each after a GOAWAY", n)
	}
}

func TestAnUpstreamThatSpeaksNoHTTP2GetsNothing(t *testing.T) {
	read := make(chan string, 10)
	url := rawUpstream(t, func(c net.Conn, br *bufio.Reader) {
		line, _ := br.ReadString('\n')
		read <- line
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		rest, _ := io.ReadAll(br)
		if strings.Contains(string(rest), "amount") {
			t.Errorf("it got the write: %q", rest)
		}
	})
	f := newFixture(t, url, overHTTP2)
	want(t, f.post("j", "1"), 502, "refused", "upstream-unreachable", "not-sent")
	if line := <-read; !strings.HasPrefix(line, "PRI ") {
		t.Errorf("it was told %q", line)
	}
}

func TestAnHTTP2ConnectionIsUsedAgainForOneWriteAtATime(t *testing.T) {
	release := make(chan struct{})
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Slow") != "" {
			<-release
		}
	})
	f := newFixture(t, u.URL, overHTTP2)
	for range 10 {
		want(t, f.post("j", "1"), 200, "forwarded", "", "applied")
	}
	if n := u.conns.Load(); n != 1 {
		t.Errorf("%d connections for 10 writes one after the other, want 1", n)
	}
	slow := f.start(f.slow("j", "1"))
	for range 11 {
		<-u.arrived
	}
	want(t, f.post("k", "1"), 200, "forwarded", "", "applied")
	if n := u.conns.Load(); n != 2 {
		t.Errorf("%d connections for two writes at once, want 2", n)
	}
	close(release)
	want(t, <-slow, 200, "forwarded", "", "applied")
	if r := <-u.arrived; r.ProtoMajor != 2 {
		t.Errorf("the upstream saw %s", r.Proto)
	}
}

func TestHTTP2OverTLS(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			var seen *http.Request
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen = r
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, "done")
			}))
			srv.EnableHTTP2 = protocol == "h2"
			srv.StartTLS()
			t.Cleanup(srv.Close)
			pool := x509.NewCertPool()
			pool.AddCert(srv.Certificate())
			f := newFixture(t, srv.URL, func(r *Route) {
				r.Sender = NewHTTP2Sender(r.Upstream, &tls.Config{RootCAs: pool, ServerName: "example.com"}, 8)
			})
			for range 3 {
				got := f.post("j", "1")
				if protocol != "h2" {
					want(t, got, 502, "refused", "upstream-unreachable", "not-sent")
					if seen != nil {
						t.Error("the write reached it")
					}
					return
				}
				want(t, got, 200, "forwarded", "", "applied")
				if got.body != "done" || seen.ProtoMajor != 2 || seen.TLS == nil {
					t.Errorf("got %q over %s", got.body, seen.Proto)
				}
			}
			f.claim("i")
			f.takeOver("i")
			want(t, f.post("i", "1"), 412, "refused", "stale-generation", "")
		})
	}
}

func TestLargeBodiesPassBothWaysOverHTTP2(t *testing.T) {
	const size = 5 << 20
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		n, err := io.Copy(w, r.Body)
		w.Header().Set("X-Sum", fmt.Sprint(n, err, r.Trailer.Get("X-Up")))
	})
	for _, buffer := range []int64{1 << 10, 16 << 20} {
		f := newFixture(t, u.URL, overHTTP2, func(r *Route) { r.BodyBuffer = buffer })
		r := f.request("j", "1", io.LimitReader(strings.NewReader(strings.Repeat("x", size)), size))
		r.ContentLength = -1
		if buffer == 1<<10 {
			r.Trailer = http.Header{"X-Up": {"up"}}
		}
		got := f.send(r)
		want(t, got, 200, "forwarded", "", "applied")
		if len(got.body) != size {
			t.Errorf("buffer %d: %d bytes came back", buffer, len(got.body))
		}
		if sum := got.Trailer.Get("X-Sum"); sum != fmt.Sprint(size, nil, r.Trailer.Get("X-Up")) {
			t.Errorf("buffer %d: trailer %q", buffer, sum)
		}
	}
}

func TestAnUpstreamThatTakesNothingEndsTheWrite(t *testing.T) {
	// Over HTTP/2 it can keep the connection going and yet never open its window.
	for name, buffer := range map[string]int64{"streamed": 10, "in memory": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			url := newPeerUpstream(t, func(p *peer) {
				if _, _, ok := p.open(); ok {
					_, _ = io.Copy(io.Discard, readFrames{p.fr})
				}
			})
			f := newFixture(t, url, overHTTP2, func(r *Route) { r.IdleTimeout, r.BodyBuffer = 500*time.Millisecond, buffer })
			got := f.send(f.request("j", "1", strings.NewReader(strings.Repeat("x", 200_000))))
			want(t, got, 502, "refused", "upstream-failed", "unknown")
			if !strings.Contains(got.body, "did not take") {
				t.Errorf("told %s", got.body)
			}
		})
	}
}

// readFrames reads frames until there are no more.
type readFrames struct{ fr *http2.Framer }

// Read implements io.Reader.
func (r readFrames) Read([]byte) (int, error) {
	_, err := r.fr.ReadFrame()
	return 0, err
}

func TestSettingsOfZeroStreamsSendNothing(t *testing.T) {
	url := newPeerUpstream(t, func(p *peer) {
		if _, ok := p.request(); ok {
			t.Error("a request came although no stream is allowed")
		}
	}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
	f := newFixture(t, url, overHTTP2, func(r *Route) { r.Timeout = time.Second })
	want(t, f.post("j", "1"), 502, "refused", "upstream-unreachable", "not-sent")
}

func TestAPoolOfClosedHTTP2ConnectionsCostsNoWrite(t *testing.T) {
	release := make(chan struct{})
	u := newUpstream(t, func(http.ResponseWriter, *http.Request) { <-release })
	f := newFixture(t, u.URL, overHTTP2)
	var answers []<-chan reply
	for range 8 {
		answers = append(answers, f.start(f.request("j", "1", strings.NewReader("x"))))
	}
	for range 8 {
		<-u.arrived
	}
	close(release)
	for _, a := range answers {
		want(t, <-a, 200, "forwarded", "", "applied")
	}
	u.CloseClientConnections()
	want(t, f.post("j", "1"), 200, "forwarded", "", "applied")
}

func TestAStreamedWriteFindsAClosedIdleConnectionInTime(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL, overHTTP2, func(r *Route) { r.BodyBuffer = 10 })
	for range 50 {
		want(t, f.send(f.request("j", "1", strings.NewReader(strings.Repeat("x", 1000)))), 200, "forwarded", "", "applied")
		u.CloseClientConnections()
	}
	for _, b := range u.bodies {
		if len(b) != 1000 {
			t.Errorf("the upstream got %d bytes", len(b))
		}
	}
	u.Close()
	want(t, f.send(f.request("j", "1", strings.NewReader(strings.Repeat("x", 1000)))), 502, "refused", "upstream-unreachable", "not-sent")
}

func TestATLSUpstreamThatAgreesOnNothingIsNotWaitedFor(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	pool := x509.NewCertPool()
	pool.AddCert(cert.Certificate())
	url := rawUpstream(t, func(c net.Conn, _ *bufio.Reader) {
		secure := tls.Server(c, &tls.Config{Certificates: cert.TLS.Certificates})
		_, _ = io.Copy(io.Discard, secure) // and says nothing
	})
	f := newFixture(t, strings.Replace(url, "http:", "https:", 1), func(r *Route) {
		r.Sender = NewHTTP2Sender(r.Upstream, &tls.Config{RootCAs: pool, ServerName: "example.com"}, 8)
	})
	began := time.Now()
	want(t, f.post("j", "1"), 502, "refused", "upstream-unreachable", "not-sent")
	if d := time.Since(began); d > dialTimeout/2 {
		t.Errorf("told after %s", d)
	}
}
