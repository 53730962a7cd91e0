package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

func TestAnEarlyAnswerReachesACallerThatPausesItsUpload(t *testing.T) {
	for _, framing := range []string{"Content-Length: 100000", "Transfer-Encoding: chunked"} {
		for _, length := range []bool{true, false} {
			for _, key := range []string{"", "Idempotency-Key: k\r\n"} {
				u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
					_ = http.NewResponseController(w).EnableFullDuplex()
					if length {
						w.Header().Set("Content-Length", "3")
					}
					w.WriteHeader(413)
					_ = http.NewResponseController(w).Flush()
					_, _ = io.WriteString(w, "big")
				})
				f := newFixture(t, u.URL, keeping, func(r *Route) { r.BodyBuffer = 10 })
				first := "0123456789abcdef"
				if framing != "Content-Length: 100000" {
					first = "10\r\n" + first + "\r\n"
				}
				_, br := f.raw("POST / HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\n" + key + framing + "\r\n\r\n" + first)
				res, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Fatalf("%s, length %v, %q: %v", framing, length, key, err)
				}
				if b, err := io.ReadAll(res.Body); res.StatusCode != 413 || string(b) != "big" || err != nil {
					t.Errorf("%s, length %v, %q: got %d %q %v", framing, length, key, res.StatusCode, b, err)
				}
			}
		}
	}
}

func TestALongReplyOutlastsTheIdleTimeout(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100000")
		for range 10 {
			_, _ = w.Write(make([]byte, 10_000))
			_ = http.NewResponseController(w).Flush()
			<-time.After(300 * time.Millisecond) // the pace is what is tested
		}
	})
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.IdleTimeout = 2 * time.Second })
	plain, keyed := f.start(f.request("j", "1", nil)), f.start(f.keyed("j", "1", "k", "b"))
	for _, got := range []reply{<-plain, <-keyed} {
		if got.err != nil || len(got.body) != 100_000 {
			t.Errorf("got %d bytes, %v", len(got.body), got.err)
		}
	}
}

func TestAKeyOfOneUpstreamIsNotAnothers(t *testing.T) {
	a, b := charging(t), charging(t)
	mk := func(name, path string, u *upstream) Route {
		to, _ := url.Parse(u.URL)
		r := Route{Name: name, Path: path, Upstream: to, Sender: NewSender(to, nil, 8), Timeout: 10 * time.Second, IdleTimeout: 10 * time.Second,
			BodyBuffer: 1 << 10, StripPath: true}
		keeping(&r)
		return r
	}
	f := newFixtureOf(t, Options{Routes: []Route{mk("a", "/a", a), mk("b", "/b", b)}})
	for path, wanted := range map[string]int{"/a/x": 201} {
		r := f.keyed("j", "1", "k", "body")
		r.URL.Path = path
		want(t, f.send(r), wanted, "forwarded", "", "applied")
	}
	r := f.keyed("j", "1", "k", "body")
	r.URL.Path = "/b/x"
	want(t, f.send(r), 422, "refused", "key-reused", "")
}

func TestOnUnknownForwardDoesNotForgetTheUnknown(t *testing.T) {
	statuses := []int{500, 409, 200}
	var n atomic.Int64
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(statuses[min(int(n.Add(1)), 3)-1])
	})
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.ForwardUnknown = true })
	want(t, f.send(f.keyed("j", "1", "k", "amount=1")), 500, "forwarded", "", "unknown")
	want(t, f.send(f.keyed("j", "1", "k", "amount=1")), 409, "forwarded", "", "declined")
	want(t, f.send(f.keyed("j", "1", "k", "amount=2")), 422, "refused", "key-reused", "")
	if count, _, err := f.authority.Unknown(context.Background()); count != 1 || err != nil {
		t.Errorf("%d unknown writes, %v", count, err)
	}
	want(t, f.send(f.keyed("j", "1", "k", "amount=1")), 200, "forwarded", "", "applied")
	want(t, f.send(f.keyed("j", "1", "k", "amount=1")), 200, "replayed", "", "applied")
}

func TestAnUnknownOnceWriteIsResolvedWithItsKey(t *testing.T) {
	var status atomic.Int64
	status.Store(500)
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) })
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.OncePerGeneration = true })
	for i, send := range []func() reply{
		func() reply { return f.send(f.keyed("j", "1", "k", "b")) },
		func() reply { return f.post("j2", "1") },
	} {
		status.Store(500)
		want(t, send(), 500, "forwarded", "", "unknown")
		want(t, send(), 409, "refused", "outcome-unknown", "")
		job := tokens.Job{ID: []string{"j", "j2"}[i]}
		listed, err := f.authority.Writes(context.Background(), tokens.WritesQuery{Job: job, Limit: 10}, tokens.WriteUnknown)
		if err != nil || len(listed) != 1 {
			t.Fatalf("listed %+v, %v", listed, err)
		}
		if _, err := f.authority.Resolve(context.Background(), job, listed[0].Key, tokens.VerdictNotApplied, 1000); err != nil {
			t.Fatal(err)
		}
		status.Store(200)
		want(t, send(), 200, "forwarded", "", "applied")
	}
}

func TestAReplayToACallerThatDoesNotReadEndsWithTheDrain(t *testing.T) {
	big := strings.Repeat("x", 60<<10)
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", fmt.Sprint(len(big)))
		_, _ = io.WriteString(w, big)
	})
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.IdleTimeout = 300 * time.Millisecond })
	want(t, f.send(f.keyed("j", "1", "k", "")), 200, "forwarded", "", "applied")
	request := "POST /charge HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n"
	f.raw(strings.Repeat(request, 200))
	<-f.contexts
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	f.proxy.Drain(ctx)
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the drain took %s", d)
	}
}

func TestTheLimitOfAJobBindsKeyedWritesToo(t *testing.T) {
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	u := newUpstream(t, func(http.ResponseWriter, *http.Request) { <-held })
	f := newFixture(t, u.URL, keeping)
	defer release()
	var answers []<-chan reply
	for i := range 300 {
		answers = append(answers, f.start(f.keyed("j", "1", fmt.Sprint("k", i), "b")))
	}
	eventually(t, "the rest was refused", func() bool {
		return strings.Contains(f.scrape(), `fenceproxy_rejections_total{code="overloaded",route="default"} 44`)
	})
	release()
	for _, a := range answers {
		<-a
	}
}

func TestManyLargeRepliesOfOneJobAreAllKept(t *testing.T) {
	body := strings.Repeat("x", 60<<10)
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Latin", "S\xe3o")
		_, _ = io.WriteString(w, body)
	})
	f := newFixture(t, u.URL, keeping)
	var answers []<-chan reply
	for i := range 40 {
		answers = append(answers, f.start(f.keyed("j", "1", fmt.Sprint("k", i), "b")))
	}
	for _, a := range answers {
		want(t, <-a, 200, "forwarded", "", "applied")
	}
	for i := range 40 {
		got := f.send(f.keyed("j", "1", fmt.Sprint("k", i), "b"))
		want(t, got, 200, "replayed", "", "applied")
		if got.body != body || got.Header.Get("X-Latin") != "S\xe3o" {
			t.Errorf("the replay has %d bytes and %q", len(got.body), got.Header.Get("X-Latin"))
		}
	}
}

func TestAnUploadThatWasNeverReceivedWholeIsNotReplayed(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
	})
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.BodyBuffer = 10 })
	_, br := f.raw("POST /charge HTTP/1.1\r\nHost: h\r\nFence-Job-Id: j\r\nFence-Generation: 1\r\nIdempotency-Key: k\r\nContent-Length: 100000\r\n\r\nhalf of it, and no more")
	if got := status(t, br); got != 200 {
		t.Fatalf("got %d", got)
	}
	eventually(t, "it is settled", func() bool {
		return f.send(f.keyed("j", "1", "k", "another body altogether")).Header.Get("Fence-Reason") == "already-applied"
	})
}

func TestAStaleWriteWithoutAKeyIsToldThatItIsStale(t *testing.T) {
	f := newFixture(t, newUpstream(t, nil).URL, func(r *Route) { r.RequireKey = true })
	f.claim("j")
	f.takeOver("j")
	want(t, f.send(f.request("j", "1", nil)), 412, "refused", "stale-generation", "")
}

func TestAFencedHeadWithAKeyIsAnswered(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "10") })
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.Methods = []string{"HEAD"} })
	r := f.keyed("j", "1", "k", "")
	r.Method = http.MethodHead
	want(t, f.send(r), 200, "forwarded", "", "applied")
}

func TestAnAddressThatTheStoreCanNotTakeCostsNoOutcome(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Location", "/"+strings.Repeat("<", 300<<10)) // six times as long in JSON
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "done")
	})
	for name, most := range map[string]int64{"with its reply": 1 << 20, "of a reply that is too long": 1} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, u.URL, keeping, func(r *Route) { r.MaxReply = most })
			f.store.Decide = func(c tokens.Change) tokenstest.Mode {
				for _, w := range c.Writes {
					if b, err := tokens.EncodeWrite(w.Record); err != nil || len(b) > 1<<20 {
						return tokenstest.Refuse
					}
				}
				return tokenstest.Healthy
			}
			want(t, f.send(f.keyed("j", "1", "k", "x")), 201, "forwarded", "", "applied")
			want(t, f.send(f.keyed("j", "1", "k", "x")), 409, "refused", "already-applied", "")
		})
	}
}
