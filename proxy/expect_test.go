package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// expect says the head of a write whose body is held back until a 100 comes.
func (f *fixture) expect(target, generation string, length int, header ...string) (net.Conn, *bufio.Reader) {
	f.t.Helper()
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n",
		target, generation, length)
	for _, h := range header {
		head += h + "\r\n"
	}
	return f.raw(head + "\r\n")
}

// head reads the next head from a raw connection.
func head(t *testing.T, br *bufio.Reader) *http.Response {
	t.Helper()
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if res.StatusCode >= 200 {
		b, _ := io.ReadAll(res.Body)
		res.Body = io.NopCloser(strings.NewReader(string(b)))
	}
	return res
}

// wantNo100 checks that the first answer is the final one, and that it ends the
// connection: whoever is not told to go on may still send.
func wantNo100(t *testing.T, br *bufio.Reader, status int, code string) {
	t.Helper()
	res := head(t, br)
	if res.StatusCode != status || res.Header.Get("Fence-Reason") != code || !res.Close {
		t.Fatalf("got %d %q, close %v, want %d %q and the end of the connection", res.StatusCode, res.Header.Get("Fence-Reason"), res.Close, status, code)
	}
}

// want100 checks that the caller is told to go on.
func want100(t *testing.T, br *bufio.Reader) {
	t.Helper()
	if res := head(t, br); res.StatusCode != http.StatusContinue {
		t.Fatalf("got %d %q, want 100", res.StatusCode, res.Header.Get("Fence-Reason"))
	}
}

// silent checks that nothing comes for a moment.
func silent(t *testing.T, c net.Conn, br *bufio.Reader, d time.Duration) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(d))
	if b, err := br.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %q, %v, want nothing yet", b, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
}

// lengths are of a body that is read whole before its admission, and of one that is
// passed on as it comes.
var lengths = map[string]int{"in memory": 100, "streamed": 3 << 20}

func TestAStaleWriteIsRefusedWithoutA100(t *testing.T) {
	for name, length := range lengths {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, nil)
			f := newFixture(t, u.URL)
			f.claim("j")
			f.takeOver("j")
			_, br := f.expect("/", "1", length)
			wantNo100(t, br, 412, "stale-generation")
			if n := u.conns.Load(); n != 0 {
				t.Errorf("%d connections to the upstream", n)
			}
		})
	}
}

func TestAKeyThatDecidesAloneIsJudgedBeforeThe100(t *testing.T) {
	for name, length := range lengths {
		t.Run(name, func(t *testing.T) {
			u, release := gated(t)
			f := newFixture(t, u.URL)
			f.claim("j")
			r := f.keyed("j", "1", "k", "b")
			r.Header.Set("X-Slow", "1")
			a := f.start(r)
			<-u.arrived
			<-u.whole
			_, br := f.expect("/charge", "1", length, "Idempotency-Key: k")
			wantNo100(t, br, 409, "write-in-progress")
			_, br = f.expect("/other", "1", length, "Idempotency-Key: k")
			wantNo100(t, br, 422, "key-reused")
			release()
			want(t, <-a, 200, "forwarded", "", "applied")
			if u.count() != 1 {
				t.Errorf("the upstream saw %d writes", u.count())
			}
			if !strings.Contains(f.scrape(), `fenceproxy_admission_duration_seconds_count{route="default"} 3`+"\n") {
				t.Error("the time of the refusals is not counted")
			}
		})
	}
}

func TestAnAppliedKeyIsToldToGoOnBecauseBodiesAreCompared(t *testing.T) {
	u := newUpstream(t, nil)
	f := newFixture(t, u.URL, func(r *Route) { r.StoreReply, r.MaxReply = true, 1000 })
	want(t, f.send(f.keyed("j", "1", "k", "same")), 200, "forwarded", "", "applied")
	for body, status := range map[string]int{"same": 200, "else": 422} {
		c, br := f.expect("/charge", "1", len(body), "Idempotency-Key: k")
		want100(t, br)
		_, _ = io.WriteString(c, body)
		if res := head(t, br); res.StatusCode != status {
			t.Errorf("%s: got %d, want %d", body, res.StatusCode, status)
		}
	}
	if u.count() != 1 {
		t.Errorf("the upstream saw %d writes", u.count())
	}
}

func TestAPendingTakeoverIsToldWithoutA100(t *testing.T) {
	for name, length := range lengths {
		t.Run(name, func(t *testing.T) {
			u, release := gated(t)
			f := newFixture(t, u.URL, func(r *Route) { r.TakeoverWait = 20 * time.Millisecond })
			f.claim("j")
			a := f.start(f.slow("j", "1"))
			<-u.arrived
			<-u.whole
			f.takeOver("j")
			_, br := f.expect("/", "2", length)
			wantNo100(t, br, 503, "takeover-pending")
			release()
			want(t, <-a, 200, "forwarded", "", "applied")
		})
	}
}

func TestTheFloorIsDurableBeforeThe100(t *testing.T) {
	f := newFixture(t, newUpstream(t, nil).URL)
	f.store.FailNext(tokenstest.Refuse)
	_, br := f.expect("/", "7", 100)
	wantNo100(t, br, 503, "store-unavailable")
}

func TestAValidWriteIsToldToGoOn(t *testing.T) {
	for name, length := range lengths {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, nil)
			f := newFixture(t, u.URL)
			c, br := f.expect("/", "1", length)
			want100(t, br)
			_, _ = io.WriteString(c, strings.Repeat("x", length))
			if res := head(t, br); res.StatusCode != 200 || res.Header.Get("Fence-Outcome") != "applied" {
				t.Errorf("got %d, outcome %q", res.StatusCode, res.Header.Get("Fence-Outcome"))
			}
			if r := <-u.arrived; len(u.bodies[0]) != length || name == "in memory" && r.Header.Get("Expect") != "" {
				t.Errorf("the upstream got %d bytes and %v", len(u.bodies[0]), r.Header)
			}
		})
	}
}

func TestAStreamIsToldToGoOnWhenItsUpstreamIsReady(t *testing.T) {
	ready := make(chan struct{})
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		<-ready
		_, _ = io.Copy(io.Discard, r.Body)
	})
	f := newFixture(t, u.URL)
	c, br := f.expect("/", "1", 3<<20)
	<-u.arrived
	silent(t, c, br, continueTimeout/10)
	close(ready)
	want100(t, br)
	_, _ = io.WriteString(c, strings.Repeat("x", 3<<20))
	if res := head(t, br); res.StatusCode != 200 {
		t.Errorf("got %d", res.StatusCode)
	}
}

func TestAnUpstreamThatAnswersInsteadOfA100HasAnswered(t *testing.T) {
	for status, outcome := range map[int]string{413: "declined", 401: "declined", 500: "unknown", 200: "applied"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			f := newFixture(t, u.URL)
			f.claim("j")
			_, br := f.expect("/", "1", 3<<20)
			res := head(t, br)
			if res.StatusCode != status || res.Header.Get("Fence-Outcome") != outcome || !res.Close {
				t.Fatalf("got %d, outcome %q, close %v", res.StatusCode, res.Header.Get("Fence-Outcome"), res.Close)
			}
			if b, err := br.ReadByte(); err != io.EOF {
				t.Errorf("after the answer came %q, %v", b, err)
			}
			// Nothing of it is left that its successor would have to wait for.
			f.takeOver("j")
			r := f.request("j", "2", nil)
			if got := f.send(r); got.err != nil || got.StatusCode != status {
				t.Errorf("the successor got %v, %v", got.Response, got.err)
			}
		})
	}
}

func TestA100ComesAfterTheFenceOverHTTP2Too(t *testing.T) {
	eachHTTP2(t, func(t *testing.T, speak func(*fixture) *caller2) {
		for name, length := range lengths {
			u := newUpstream(t, nil)
			c := speak(newFixture(t, u.URL))
			c.client.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
			c.claim("j")
			c.takeOver("j")
			for generation, status := range map[string]int{"1": 412, "2": 200} {
				told := false
				r := c.request("j", generation, strings.NewReader(strings.Repeat("x", length)))
				r.Header.Set("Expect", "100-continue")
				r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got100Continue: func() { told = true }}))
				if got := c.send(r); got.err != nil || got.StatusCode != status || told != (status == 200) {
					t.Errorf("%s, generation %s: got %v, %v, told to continue: %v", name, generation, got.Response, got.err, told)
				}
			}
		}
	})
}
