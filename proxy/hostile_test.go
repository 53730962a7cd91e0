package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// raw opens a connection of its own to the proxy and says something on it.
func (f *fixture) raw(text string) (net.Conn, *bufio.Reader) {
	f.t.Helper()
	c, err := net.Dial("tcp", f.server.Listener.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		f.t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	return c, bufio.NewReader(c)
}

// status reads one answer's status from a raw connection.
func status(t *testing.T, br *bufio.Reader) int {
	t.Helper()
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

func TestALargeWriteThatTheUpstreamHasWholeIsWaitedFor(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		for range 20 {
			release := make(chan struct{})
			whole := make(chan struct{})
			u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.Header.Get("X-Slow") != "" {
					close(whole)
					<-release
				}
			})
			f := newFixture(t, u.URL, sender)
			f.claim("j")
			r := f.request("j", "1", strings.NewReader(strings.Repeat("x", 300_000)))
			r.Header.Set("X-Slow", "1")
			a := f.start(r)
			<-whole
			f.takeOver("j")
			close(release)
			want(t, <-a, 200, "forwarded", "", "applied")
		}
	})
}

func TestARefusedStreamEndsItsExchange(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL)
	_, br := f.raw("GET //a|b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
	if got := status(t, br); got != 400 {
		t.Errorf("got %d, want 400", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if !f.proxy.Drain(ctx) {
		t.Error("the exchange never ended")
	}
}

func TestACallerThatDoesNotReadDoesNotHoldTheTakeoverBack(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Slow") == "" {
				return
			}
			_ = http.NewResponseController(w).EnableFullDuplex()
			big := make([]byte, 64<<10)
			for range 1000 { // answers before it has read the request, and at length
				if _, err := w.Write(big); err != nil {
					return
				}
			}
		})
		f := newFixture(t, u.URL, sender, func(r *Route) { r.BodyBuffer, r.TakeoverWait = 10, 5*time.Second })
		f.claim("j")
		f.raw("POST / HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\nX-Slow: 1\r\nContent-Length: 1000000\r\n\r\nhalf")
		<-u.arrived
		f.takeOver("j")
		want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
	})
}

func TestManyInterimRepliesAndACallerThatHangsUpHurtNobody(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			// Else the HTTP/2 server reads the map beside this goroutine, when its
			// client is gone.
			w.Header()["Content-Length"] = nil
			for range 200 {
				if r.Method != http.MethodGet {
					return
				}
				w.WriteHeader(http.StatusEarlyHints)
			}
		})
		f := newFixture(t, u.URL, sender)
		for range 20 {
			c, _ := f.raw("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			<-u.arrived
			_ = c.Close()
		}
		want(t, f.post("j", "1"), 200, "forwarded", "", "applied")
	})
}

func TestAnInterimReplyReachesTheCaller(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
		})
		f := newFixture(t, u.URL, sender)
		_, br := f.raw("POST / HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\nContent-Length: 0\r\n\r\n")
		if a, b := status(t, br), status(t, br); a != 103 || b != 200 {
			t.Errorf("got %d, then %d", a, b)
		}
	})
}

func TestADrainReachesAnUploadThatStandsStill(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL)
	f.raw("POST / HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\nContent-Length: 100\r\n\r\nhalf")
	<-f.contexts
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	began := time.Now()
	f.proxy.Drain(ctx)
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the drain took %s", d)
	}
}

func TestARefusalDoesNotWaitForTheRestOfTheBody(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL)
	f.claim("j")
	f.takeOver("j")
	_, br := f.raw("POST / HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\nContent-Length: 100\r\n\r\nhalf")
	if got := status(t, br); got != 412 {
		t.Errorf("got %d, want 412", got)
	}
}

func TestWhatTLSHoldsBackIsNotTheNextReply(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cert.TLS)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			br := bufio.NewReader(c)
			for {
				r, err := http.ReadRequest(br)
				if err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, r.Body)
				reply := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
				if i == 0 {
					reply += "HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nSTALE"
				}
				_, _ = io.WriteString(c, reply)
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	pool := x509.NewCertPool()
	pool.AddCert(cert.Certificate())
	u := &url.URL{Scheme: "https", Host: ln.Addr().String()}
	f := newFixture(t, u.String(), func(r *Route) { r.Sender = NewSender(u, &tls.Config{RootCAs: pool, ServerName: "example.com"}, 8) })
	for range 3 {
		if got := f.post("j", "1"); got.err != nil || got.StatusCode != 200 || got.body != "ok" {
			t.Fatalf("got %v %v %q", got.Response, got.err, got.body)
		}
	}
}

func TestTheDeadlineOfALargeWriteDoesNotOutliveIt(t *testing.T) {
	u := newUpstream(t, nil)
	const idle = time.Second
	f := newFixture(t, u.URL, func(r *Route) { r.IdleTimeout = idle })
	want(t, f.send(f.request("j", "1", strings.NewReader(strings.Repeat("x", 8000)))), 200, "forwarded", "", "applied")
	<-time.After(idle + idle/10) // the deadline is what is tested
	want(t, f.post("j", "1"), 200, "forwarded", "", "applied")
	if u.conns.Load() != 1 {
		t.Errorf("%d connections, want the first one used again", u.conns.Load())
	}
}

func TestAPoolOfClosedConnectionsCostsNoWrite(t *testing.T) {
	release := make(chan struct{})
	u := newUpstream(t, func(http.ResponseWriter, *http.Request) { <-release })
	f := newFixture(t, u.URL)
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

func TestAnUnfencedWriteIsNotRepeatedEither(t *testing.T) {
	for _, fencing := range []Fencing{FencingOptional, FencingOff} {
		eachSender(t, func(t *testing.T, sender func(*Route)) {
			url, executed := dying(t)
			f := newFixture(t, url, sender, func(r *Route) { r.Fencing = fencing })
			for range 2 {
				r := f.request("", "", nil)
				clear(r.Header)
				r.Header.Set("Idempotency-Key", "k")
				f.send(r)
			}
			if n := executed(); n != 2 {
				t.Errorf("executed %d times, want 2", n)
			}
		})
	}
}

func TestAnUpstreamDoesNotSpeakForTheProxyInTrailers(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Fence-Outcome, X-Sum")
			w.WriteHeader(500)
			_, _ = io.WriteString(w, "b")
			w.Header().Set("Fence-Outcome", "applied")
			w.Header().Set("X-Sum", "1")
			w.Header().Set(http.TrailerPrefix+"Fence-Generation", "99")
		})
		got := newFixture(t, u.URL, sender).post("j", "1")
		want(t, got, 500, "forwarded", "", "unknown")
		if got.Trailer.Get("X-Sum") != "1" || got.Trailer.Get("Fence-Outcome") != "" || got.Trailer.Get("Fence-Generation") != "" {
			t.Errorf("trailers %v", got.Trailer)
		}
	})
}

func TestAStatusThatIsNoneIsAFailure(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(c, "HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n")
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	want(t, newFixture(t, "http://"+ln.Addr().String()).post("j", "1"), 502, "refused", "upstream-failed", "unknown")
}

func TestNoSpellingOfAPathGetsRoundItsRoute(t *testing.T) {
	u := newUpstream(t, nil)
	upstream, _ := url.Parse(u.URL)
	mk := func(name, path string, fencing Fencing) Route {
		return Route{Name: name, Path: path, Fencing: fencing, Upstream: upstream, Sender: NewSender(upstream, nil, 8),
			Timeout: 10 * time.Second, IdleTimeout: 10 * time.Second}
	}
	f := newFixtureOf(t, Options{Routes: []Route{mk("pay", "/payments", FencingRequired), mk("rest", "/", FencingOff)}})
	for path, want := range map[string]int{
		"/payments/x": 428, "//payments/x": 400, "/payments;v=1/x": 400, `/\payments/x`: 400, "/%2Fpayments/x": 400, "/Payments/x": 400,
		"/;/payments/x": 400, "/;a/payments/x": 400, "/%3ba/payments/x": 400, "/payments./x": 400, "/payments%20/x": 400,
		"/payments#x": 400, "/payments%23x": 400, "/x#y": 200,
		"/x//y": 200, "/x;a=b": 200, "/other": 200, "/X": 200,
	} {
		_, br := f.raw("POST " + path + " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
		if got := status(t, br); got != want {
			t.Errorf("%s: got %d, want %d", path, got, want)
		}
	}
}

func TestNoSpellingOfAnOverrideMakesAWriteOutOfARead(t *testing.T) {
	f := newFixture(t, newUpstream(t, nil).URL)
	for _, name := range []string{"X-HTTP-Method-Override", "X_HTTP_Method_Override", "X.Http.Method.Override", "X-HTTP-Method", "x-method_override"} {
		_, br := f.raw("GET / HTTP/1.1\r\nHost: h\r\n" + name + ": DELETE\r\n\r\n")
		if got := status(t, br); got != 428 {
			t.Errorf("%s: got %d, want 428", name, got)
		}
	}
}

func TestOnlyPathsAndWholeURLsAreTargets(t *testing.T) {
	f := newFixture(t, newUpstream(t, nil).URL)
	for target, want := range map[string]int{
		"http://h/x": 428, "https://h": 428, "http:/x": 400, "x:/a://b/c": 400, "ftp://h/x": 400, "*": 400,
	} {
		_, br := f.raw("POST " + target + " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
		if got := status(t, br); got != want {
			t.Errorf("%s: got %d, want %d", target, got, want)
		}
	}
}
