package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"
)

// caller2 speaks HTTP/2 to a fixture's proxy, on one connection.
type caller2 struct {
	*fixture
	url    string
	client *http.Client
}

// eachHTTP2 runs a test for callers with TLS and without.
func eachHTTP2(t *testing.T, test func(t *testing.T, speak func(*fixture) *caller2)) {
	t.Helper()
	for name, secure := range map[string]bool{"h2": true, "h2c": false} {
		t.Run(name, func(t *testing.T) {
			test(t, func(f *fixture) *caller2 { return f.http2(secure) })
		})
	}
}

// http2 lets callers of HTTP/2 in as well.
func (f *fixture) http2(secure bool) *caller2 {
	f.t.Helper()
	s := httptest.NewUnstartedServer(f.proxy)
	s.Config.BaseContext = func(net.Listener) context.Context { return f.proxy.Base() }
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.Config.Protocols = new(http.Protocols)
	tr := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	if secure {
		s.Config.Protocols.SetHTTP2(true)
		s.TLS = &tls.Config{NextProtos: []string{"h2"}}
		s.StartTLS()
		tr.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		tr.TLSClientConfig.NextProtos = []string{"h2"}
		tr.Protocols.SetHTTP2(true)
	} else {
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	f.t.Cleanup(func() {
		tr.CloseIdleConnections()
		s.CloseClientConnections()
		s.Close()
	})
	return &caller2{fixture: f, url: s.URL, client: &http.Client{Transport: tr}}
}

func (c *caller2) request(job, generation string, body io.Reader) *http.Request {
	c.t.Helper()
	r, err := http.NewRequest(http.MethodPost, c.url+"/charge", body)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header["Fence-Job-Id"], r.Header["Fence-Generation"] = []string{job}, []string{generation}
	return r
}

func (c *caller2) send(r *http.Request) reply {
	res, err := c.client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	b, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if res.ProtoMajor != 2 {
		c.t.Errorf("the answer came over %s", res.Proto)
	}
	if res.Header["Connection"] != nil {
		c.t.Errorf("an answer over HTTP/2 has Connection: %q", res.Header["Connection"])
	}
	return reply{Response: res, body: string(b), err: err}
}

func (c *caller2) start(r *http.Request) <-chan reply {
	out := make(chan reply, 1)
	go func() { out <- c.send(r) }()
	return out
}

// onOneConnection checks that no answer ended the connection for the others.
func (c *caller2) onOneConnection(r *http.Request) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if !info.Reused {
				c.t.Errorf("the connection was not kept")
			}
		},
	}))
}

func TestAWriteOverHTTP2IsFencedLikeAnyOther(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, speak func(*fixture) *caller2) {
		for _, buffer := range []int64{1 << 20, 4 << 10} { // in memory, and streamed
			u := newUpstream(t, nil)
			c := speak(newFixture(t, u.URL, func(r *Route) { r.BodyBuffer = buffer }))
			c.claim("j")
			body := strings.Repeat("x", 100_000)
			want(t, c.send(c.request("j", "1", strings.NewReader(body))), 200, "forwarded", "", "applied")
			want(t, c.send(c.request("j", "1", nil)), 200, "forwarded", "", "applied")
			r := c.request("j", "1", io.NopCloser(strings.NewReader(body))) // of unknown length
			want(t, c.send(r), 200, "forwarded", "", "applied")
			if len(u.bodies) != 3 || string(u.bodies[0]) != body || len(u.bodies[1]) != 0 || string(u.bodies[2]) != body {
				t.Errorf("buffer %d: the upstream got %d bodies", buffer, len(u.bodies))
			}
			c.takeOver("j")
			want(t, c.send(c.onOneConnection(c.request("j", "1", strings.NewReader(body)))), 412, "refused", "stale-generation", "")
			want(t, c.send(c.onOneConnection(c.request("", "", nil))), 400, "refused", "fence-invalid", "")
			want(t, c.send(c.onOneConnection(c.request("j", "2", strings.NewReader(body)))), 200, "forwarded", "", "applied")
		}
	})
}

func TestAnUploadOverHTTP2IsCutAtTheTakeover(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, speak func(*fixture) *caller2) {
		for _, buffer := range []int64{1 << 20, 10} {
			broken := make(chan error, 1)
			u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					broken <- err
				}
			})
			c := speak(newFixture(t, u.URL, func(r *Route) { r.BodyBuffer = buffer }))
			c.claim("j")
			want(t, c.send(c.request("j", "1", nil)), 200, "forwarded", "", "applied")
			<-u.arrived
			read, feed := io.Pipe()
			r := c.onOneConnection(c.request("j", "1", read))
			r.Header.Set("Expect", "100-continue") // so that nothing is written before the body is received
			c.client.Transport.(*http.Transport).ExpectContinueTimeout = time.Hour
			a := c.start(r)
			if _, err := feed.Write(make([]byte, 5000)); err != nil {
				t.Fatal(err)
			}
			outcome := "not-sent"
			if buffer == 10 {
				<-u.arrived // it is streaming
				outcome = "unknown"
			}
			c.takeOver("j")
			got := <-a
			want(t, got, 412, "refused", "stale-generation", outcome)
			_ = feed.Close()
			if buffer == 10 {
				if err := <-broken; err == nil {
					t.Error("the upstream saw a whole request")
				}
			}
			want(t, c.send(c.onOneConnection(c.request("j", "2", strings.NewReader("x")))), 200, "forwarded", "", "applied")
		}
	})
}

func TestARefusedUploadOverHTTP2KeepsItsConnection(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, speak func(*fixture) *caller2) {
		u := newUpstream(t, nil)
		c := speak(newFixture(t, u.URL))
		c.claim("j")
		c.takeOver("j")
		want(t, c.send(c.request("j", "2", nil)), 200, "forwarded", "", "applied")
		for range 3 {
			r := c.request("j", "1", strings.NewReader(strings.Repeat("x", 4<<20)))
			want(t, c.send(c.onOneConnection(r)), 412, "refused", "stale-generation", "")
		}
		if n := u.count(); n != 1 {
			t.Errorf("%d writes reached the upstream, want 1", n)
		}
	})
}

func TestAnEarlyAnswerReachesACallerOfHTTP2(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, speak func(*fixture) *caller2) {
		u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		})
		c := speak(newFixture(t, u.URL, func(r *Route) { r.BodyBuffer = 10 }))
		read, feed := io.Pipe()
		go func() {
			for {
				if _, err := feed.Write(make([]byte, 16<<10)); err != nil {
					return // the answer has come
				}
			}
		}()
		got := c.send(c.request("j", "1", read))
		_ = read.Close()
		want(t, got, 413, "forwarded", "", "declined")
		want(t, c.send(c.onOneConnection(c.request("j", "1", nil))), 413, "forwarded", "", "declined")
	})
}

func TestInterimRepliesAndTrailersGoThroughHTTP2(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, speak func(*fixture) *caller2) {
		eachSender(t, func(t *testing.T, sender func(*Route)) {
			trailer := make(chan string, 1)
			u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Link", "</a>")
				w.WriteHeader(http.StatusEarlyHints)
				_, _ = io.Copy(io.Discard, r.Body)
				trailer <- r.Trailer.Get("X-Sum")
				w.Header().Set("Trailer", "X-Total")
				_, _ = io.WriteString(w, "body")
				w.Header().Set("X-Total", "2")
			})
			c := speak(newFixture(t, u.URL, sender))
			r := c.request("j", "1", io.NopCloser(strings.NewReader("x")))
			r.Trailer = http.Header{"X-Sum": {"1"}}
			var hints []int
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
					hints = append(hints, code)
					return nil
				},
			}))
			got := c.send(r)
			want(t, got, 200, "forwarded", "", "applied")
			if got.body != "body" || got.Trailer.Get("X-Total") != "2" || len(hints) != 1 || hints[0] != 103 {
				t.Errorf("body %q, trailer %v, interim %v", got.body, got.Trailer, hints)
			}
			if s := <-trailer; s != "1" {
				t.Errorf("the upstream got trailer %q, want 1", s)
			}
		})
	})
}

func TestACallerThatResetsItsStreamDoesNotCancelItsWrite(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, speak func(*fixture) *caller2) {
		release := make(chan struct{})
		cancelled := make(chan bool, 1)
		u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-release
			cancelled <- r.Context().Err() != nil
		})
		c := speak(newFixture(t, u.URL, keeping))
		c.claim("j")
		ctx, hangUp := context.WithCancel(context.Background())
		r := c.request("j", "1", strings.NewReader("x"))
		r.Header.Set("Idempotency-Key", "k")
		a := c.start(r.WithContext(ctx))
		<-u.arrived
		hangUp()
		if got := <-a; !errors.Is(got.err, context.Canceled) {
			t.Fatalf("got %v", got.err)
		}
		close(release)
		if <-cancelled {
			t.Error("the write was cancelled at the upstream")
		}
		// Its outcome is known: the same key is answered with the reply.
		eventually(t, "the outcome is recorded", func() bool {
			again := c.request("j", "1", strings.NewReader("x"))
			again.Header.Set("Idempotency-Key", "k")
			return c.send(again).Header.Get("Fence-Decision") == "replayed"
		})
	})
}

func TestACallerOfHTTP2ThatDoesNotReadDoesNotHoldTheTakeoverBack(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, speak func(*fixture) *caller2) {
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
		c := speak(newFixture(t, u.URL, func(r *Route) { r.BodyBuffer, r.TakeoverWait = 10, 5*time.Second }))
		c.claim("j")
		read, feed := io.Pipe()
		r := c.request("j", "1", read)
		r.Header.Set("X-Slow", "1")
		heads := make(chan *http.Response, 1)
		go func() {
			res, err := c.client.Do(r)
			if err != nil {
				close(heads)
				return
			}
			heads <- res
		}()
		if _, err := feed.Write(make([]byte, 5000)); err != nil {
			t.Fatal(err)
		}
		<-u.arrived
		res, ok := <-heads // and its body is left alone
		if !ok {
			t.Fatal("no head came")
		}
		c.takeOver("j")
		want(t, c.send(c.onOneConnection(c.request("j", "2", nil))), 200, "forwarded", "", "applied")
		if _, err := io.Copy(io.Discard, bufio.NewReader(res.Body)); err == nil {
			t.Error("the reply that was cut looks whole")
		}
		_ = res.Body.Close()
		_ = feed.Close()
	})
}

func TestADrainReachesUploadsOverHTTP2(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, speak func(*fixture) *caller2) {
		c := speak(newFixture(t, newUpstream(t, nil).URL))
		read, feed := io.Pipe()
		a := c.start(c.request("j", "1", read))
		if _, err := feed.Write([]byte("half")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is being received", func() bool { return c.proxy.active.Load() == 1 })
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.proxy.Drain(ctx)
		if got := <-a; got.err == nil && got.StatusCode < 400 {
			t.Errorf("got %d", got.StatusCode)
		}
		_ = feed.Close()
	})
}

// On HTTP/1 the judge of the framing refuses them.
func TestNoNameOverHTTP2LooksLikeFraming(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, speak func(*fixture) *caller2) {
		u := newUpstream(t, nil)
		c := speak(newFixture(t, u.URL))
		for _, name := range []string{"Content_Length", "Content.Length", "Transfer_Encoding", "Transfer.Encoding"} {
			for _, body := range []string{"", "hello"} {
				r := c.request("j", "1", strings.NewReader(body))
				r.Header[name] = []string{"1"}
				want(t, c.send(r), 400, "refused", "request-invalid", "")
			}
		}
		if u.count() != 0 {
			t.Error("the upstream saw one")
		}
		r := c.request("j", "1", io.NopCloser(strings.NewReader("hello")))
		r.Trailer = http.Header{"Content_Length": {"1"}, "Transfer.Encoding": {"chunked"}, "Fence_Job_Id": {"k"}, "X_Sum": {"s"}}
		want(t, c.send(r), 200, "forwarded", "", "applied")
		if got := (<-u.arrived).Trailer; len(got) != 1 || got.Get("X_sum") != "s" {
			t.Errorf("the upstream got the trailers %v", got)
		}
	})
}
