package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// gated lets a test decide when the upstream answers.
func gated(t *testing.T) (*upstream, func()) {
	release, whole := make(chan struct{}), make(chan struct{}, 100)
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Slow") != "" {
			whole <- struct{}{}
			<-release
		}
	})
	u.whole = whole
	open := false
	done := func() {
		if !open {
			open = true
			close(release)
		}
	}
	t.Cleanup(done)
	return u, done
}

func (f *fixture) slow(job, generation string) *http.Request {
	r := f.request(job, generation, strings.NewReader("x"))
	r.Header.Set("X-Slow", "1")
	return r
}

func TestANewerWriteWaitsForAnOlderOneThatWasSentWhole(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u, release := gated(t)
		f := newFixture(t, u.URL, sender)
		f.claim("j")
		a := f.start(f.slow("j", "1"))
		<-u.arrived
		<-u.whole
		f.takeOver("j")
		b := f.start(f.request("j", "2", strings.NewReader("x")))
		eventually(t, "B waits", func() bool { return len(f.contexts) == 2 })
		select {
		case r := <-u.arrived:
			t.Fatalf("%v reached the upstream before A was answered", r.Header)
		case <-b:
			t.Fatal("B was answered before A")
		case <-time.After(50 * time.Millisecond): // long enough for a broken barrier to show
		}
		release()
		got := <-a
		want(t, got, 200, "forwarded", "", "applied")
		if g := got.Header.Get("Fence-Generation"); g != "2" {
			t.Errorf("A was told generation %s, want 2", g)
		}
		want(t, <-b, 200, "forwarded", "", "applied")
	})
}

func TestAWriteThatWaitedTooLongIsPending(t *testing.T) {
	u, release := gated(t)
	defer release()
	f := newFixture(t, u.URL, func(r *Route) { r.TakeoverWait = 20 * time.Millisecond })
	f.claim("j")
	f.start(f.slow("j", "1"))
	<-u.arrived
	<-u.whole
	f.takeOver("j")
	got := f.post("j", "2")
	want(t, got, 503, "refused", "takeover-pending", "")
	if got.Header.Get("Retry-After") != "1" || u.count() != 1 {
		t.Errorf("Retry-After %q, %d writes upstream", got.Header.Get("Retry-After"), u.count())
	}
}

func TestAbortSentCutsWhatWasSentWhole(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u, _ := gated(t)
		f := newFixture(t, u.URL, func(r *Route) { r.AbortSent = true })
		f.claim("j")
		a := f.start(f.slow("j", "1"))
		<-u.arrived
		<-u.whole
		f.takeOver("j")
		want(t, <-a, 412, "refused", "stale-generation", "unknown")
		want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
	})
}

func TestLingerHoldsBackTheSuccessorOfACutWrite(t *testing.T) {
	u, _ := gated(t)
	f := newFixture(t, u.URL, func(r *Route) { r.AbortSent, r.Linger, r.TakeoverWait = true, time.Hour, 20*time.Millisecond })
	f.claim("j")
	a := f.start(f.slow("j", "1"))
	<-u.arrived
	<-u.whole
	f.takeOver("j")
	want(t, <-a, 412, "refused", "stale-generation", "unknown")
	want(t, f.post("j", "2"), 503, "refused", "takeover-pending", "")
}

func TestASlowUploadIsCutAtTheTakeover(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		for name, prefix := range map[string]int{"still in the buffer": 10, "streaming": 5000} {
			t.Run(name, func(t *testing.T) {
				ended := make(chan error, 1)
				u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Slow") != "" {
						_, err := io.Copy(io.Discard, r.Body)
						ended <- err
					}
				})
				f := newFixture(t, u.URL, sender, func(r *Route) { r.BodyBuffer = 1000 })
				f.claim("j")
				pr, pw := io.Pipe()
				defer func() { _ = pw.Close() }()
				r := f.request("j", "1", pr)
				r.Header.Set("X-Slow", "1")
				r.Header.Set("Expect", "100-continue") // so that nothing is written before the body is received
				f.server.Client().Transport.(*http.Transport).ExpectContinueTimeout = time.Hour
				a := f.start(r)
				if _, err := pw.Write(make([]byte, prefix)); err != nil {
					t.Fatal(err)
				}
				if prefix > 1000 {
					<-u.arrived
				}
				f.takeOver("j")
				outcome := "not-sent"
				if prefix > 1000 {
					outcome = "unknown"
				}
				want(t, <-a, 412, "refused", "stale-generation", outcome)
				if prefix > 1000 {
					if err := <-ended; err == nil {
						t.Error("the upstream took the cut upload for a whole one")
					}
				} else if u.count() != 0 {
					t.Error("the upstream saw the write")
				}
				want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
			})
		}
	})
}

// holdSender holds requests back as a dial does, and does not notice that they were
// given up: so only the gate is left.
type holdSender struct {
	Sender
	held chan *Send
	open chan struct{}
}

func (h *holdSender) Send(req *http.Request, s *Send) (*http.Response, error) {
	if req.Header.Get("X-Slow") != "" {
		h.held <- s
		<-h.open
		req = req.WithContext(context.WithoutCancel(req.Context()))
	}
	return h.Sender.Send(req, s)
}

func TestAWriteHeldInTheDialIsVetoed(t *testing.T) {
	u := newUpstream(t, nil)
	h := &holdSender{Sender: NewTransportSender(nil, 8), held: make(chan *Send, 1), open: make(chan struct{})}
	f := newFixture(t, u.URL, func(r *Route) { r.Sender = h })
	f.claim("j")
	a := f.start(f.slow("j", "1"))
	<-h.held
	f.takeOver("j")
	// Its successor does not wait for the dial: a veto is a settlement.
	want(t, f.post("j", "2"), 200, "forwarded", "", "applied")
	close(h.open)
	want(t, <-a, 412, "refused", "stale-generation", "not-sent")
	if u.count() != 1 {
		t.Errorf("the upstream saw %d writes, want B's only", u.count())
	}
}

type nobody struct{}

func (nobody) Cut() {}

// gateOnly is an attempt that hears of nothing else.
type gateOnly struct{ *tokens.Attempt }

func (gateOnly) Informational(int, textproto.MIMEHeader) error { return nil }

func TestTheGateAloneKeepsAVetoedWriteOffTheWire(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			got <- nil
			return
		}
		b, _ := io.ReadAll(c)
		_ = c.Close()
		got <- b
	}()
	t.Cleanup(func() { _ = ln.Close() })
	f := newFixture(t, "http://"+ln.Addr().String())
	f.claim("j")
	at := &tokens.Attempt{Write: tokens.Write{Job: tokens.Job{ID: "j"}, Generation: 1}, Cutter: nobody{}}
	if err := f.authority.Admit(context.Background(), at); err != nil {
		t.Fatal(err)
	}
	// The exchange is never told of the takeover, as in the instant between the
	// veto and the call of Cut.
	s := &Send{Watcher: gateOnly{at}, Once: true}
	tcp, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := newGateConn(tcp.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	s.moveTo(c)
	f.takeOver("j")
	if n, err := c.Write([]byte("POST / HTTP/1.1\r\n\r\n")); n != 0 || err == nil {
		t.Errorf("Write = %d, %v; want a veto", n, err)
	}
	if s.Touched() || !s.Vetoed() {
		t.Errorf("touched %v, vetoed %v", s.Touched(), s.Vetoed())
	}
	_ = c.tcp.SetLinger(-1)
	_ = c.tcp.Close()
	if b := <-got; len(b) != 0 {
		t.Errorf("the upstream got %q", b)
	}
}

// dying is an upstream that serves one request and kills the connection after it
// executed the next, without an answer. It speaks HTTP/1 and HTTP/2.
func dying(t *testing.T) (url string, executed func() int) {
	t.Helper()
	count := make(chan int, 1)
	count <- 0
	url = rawUpstream(t, func(c net.Conn, br *bufio.Reader) {
		if start, _ := br.Peek(3); string(start) == "PRI" {
			p := newPeer(c, br)
			for i := 0; ; i++ {
				stream, ok := p.request()
				if !ok {
					return
				}
				count <- <-count + 1
				if i > 0 {
					return
				}
				p.reply(stream, true, ":status", "200")
			}
		}
		for i := 0; ; i++ {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			count <- <-count + 1
			if i > 0 {
				return
			}
			_, _ = fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	return url, func() int { n := <-count; count <- n; return n }
}

// rawUpstream serves each connection with h and closes it then.
func rawUpstream(t *testing.T, h func(net.Conn, *bufio.Reader)) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				h(c, bufio.NewReader(c))
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	return "http://" + ln.Addr().String()
}

func TestAWriteIsNeverSentTwiceByTheTransport(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET"} {
			for _, body := range []string{"", "b"} {
				t.Run(method+"/"+body, func(t *testing.T) {
					url, executed := dying(t)
					f := newFixture(t, url, sender, func(r *Route) { r.Methods = []string{"POST", "PUT", "PATCH", "DELETE", "GET"} })
					for i := range 2 {
						r := f.request("j", "1", strings.NewReader(body))
						r.Method = method
						r.Header.Set("Idempotency-Key", fmt.Sprint("k", i))
						got := f.send(r)
						if i == 0 {
							want(t, got, 200, "forwarded", "", "applied")
						} else {
							want(t, got, 502, "refused", "upstream-failed", "unknown")
						}
					}
					if n := executed(); n != 2 {
						t.Errorf("executed %d times, want 2", n)
					}
				})
			}
		}
	})
}

func TestAnIdleConnectionThatTheUpstreamClosedCostsNoWrite(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		for name, buffer := range map[string]int64{"in memory": 1 << 20, "streamed": 1} {
			t.Run(name, func(t *testing.T) {
				u := newUpstream(t, nil)
				f := newFixture(t, u.URL, sender, func(r *Route) { r.BodyBuffer = buffer })
				for range 20 {
					want(t, f.post("j", "1"), 200, "forwarded", "", "applied")
					u.CloseClientConnections()
				}
				if u.count() != 20 {
					t.Errorf("upstream saw %d writes, want 20", u.count())
				}
			})
		}
	})
}

func TestADrainFinishesWhatIsUnderWay(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u, release := gated(t)
		f := newFixture(t, u.URL, sender)
		a := f.start(f.slow("j", "1"))
		<-u.arrived
		<-u.whole
		clean := make(chan bool, 1)
		go func() { clean <- f.proxy.Drain(context.Background()) }()
		eventually(t, "draining", f.proxy.Draining)
		got := f.post("j", "1")
		want(t, got, 503, "refused", "overloaded", "")
		if got.Close != true || got.Header.Get("Retry-After") == "" {
			t.Errorf("refusal while draining: close=%v, headers %v", got.Close, got.Header)
		}
		release()
		want(t, <-a, 200, "forwarded", "", "applied")
		if !<-clean {
			t.Error("the drain was not clean")
		}
	})
}

func TestADrainThatIsOverEndsAReplyThatStandsStill(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		release := make(chan struct{})
		u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half ")
			_ = http.NewResponseController(w).Flush()
			<-release
		})
		defer close(release)
		f := newFixture(t, u.URL, sender)
		a := f.start(f.slow("j", "1"))
		<-u.arrived
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		f.proxy.Drain(ctx) // hangs if nobody tells the reader
		if got := <-a; got.err == nil && got.StatusCode == 200 {
			t.Errorf("the caller took %q for the whole reply", got.body)
		}
	})
}

func TestADrainThatIsOverSaysUnknown(t *testing.T) {
	eachSender(t, func(t *testing.T, sender func(*Route)) {
		u, _ := gated(t)
		f := newFixture(t, u.URL, sender)
		a := f.start(f.slow("j", "1"))
		<-u.arrived
		<-u.whole
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if f.proxy.Drain(ctx) {
			t.Error("the drain was clean")
		}
		want(t, <-a, 502, "refused", "upstream-failed", "unknown")
	})
}
