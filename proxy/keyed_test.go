package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// keeping is a route that keeps replies, as the configuration does by default.
func keeping(r *Route) {
	r.Retention, r.StoreReply, r.MaxReply = time.Hour, true, 64<<10
}

func (f *fixture) keyed(job, generation, key, body string) *http.Request {
	r := f.request(job, generation, strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	return r
}

func problemOf(t *testing.T, r reply) wire.Problem {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	return p
}

// charging answers each request with a new charge.
func charging(t *testing.T) *upstream {
	var n atomic.Int64
	return newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		id := n.Add(1)
		w.Header().Set("Location", fmt.Sprintf("/charges/%d", id))
		w.Header().Set("ETag", `"x"`)
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"charge":%d}`, id)
	})
}

func TestARepeatedKeyIsAnsweredWithTheFirstReplyAcrossGenerations(t *testing.T) {
	u := charging(t)
	f := newFixture(t, u.URL, keeping)
	f.claim("j")
	first := f.send(f.keyed("j", "1", "k1", "amount=1"))
	want(t, first, 201, "forwarded", "", "applied")
	if len(first.Header["Set-Cookie"]) != 2 {
		t.Errorf("the first caller got %v", first.Header)
	}
	f.takeOver("j")
	again := f.send(f.keyed("j", "2", "k1", "amount=1"))
	want(t, again, 201, "replayed", "", "applied")
	h := again.Header
	if again.body != first.body || h.Get("Location") != "/charges/1" || h.Get("ETag") != `"x"` || h.Get("Idempotent-Replayed") != "true" ||
		h.Get("Idempotency-Key") != "k1" || h.Get("Fence-Generation") != "2" {
		t.Errorf("got %q with %v", again.body, h)
	}
	if h["Set-Cookie"] != nil {
		t.Error("the replay repeats cookies")
	}
	old := f.send(f.keyed("j", "1", "k1", "amount=1"))
	want(t, old, 412, "refused", "stale-generation", "")
	if p := problemOf(t, old); p.About == nil || p.About.State != tokens.WriteApplied || p.About.Status != 201 || p.About.Generation != 1 {
		t.Errorf("the stale write was told %+v", p.About)
	}
	if u.count() != 1 {
		t.Errorf("executed %d times", u.count())
	}
}

func TestFiftyIdenticalWritesAtOnceExecuteOnce(t *testing.T) {
	u := charging(t)
	f := newFixture(t, u.URL, keeping)
	f.claim("j")
	answers := make([]<-chan reply, 50)
	for i := range answers {
		answers[i] = f.start(f.keyed("j", "1", "k1", "amount=1"))
	}
	fresh := 0
	for _, a := range answers {
		got := <-a
		switch got.Header.Get("Fence-Decision") + got.Header.Get("Fence-Reason") {
		case "forwarded":
			fresh++
			want(t, got, 201, "forwarded", "", "applied")
		case "replayed":
			want(t, got, 201, "replayed", "", "applied")
		default:
			want(t, got, 409, "refused", "write-in-progress", "")
			if got.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
	}
	if fresh != 1 || u.count() != 1 {
		t.Errorf("%d fresh answers, executed %d times", fresh, u.count())
	}
}

func TestAKeyBelongsToOneRequest(t *testing.T) {
	u := charging(t)
	f := newFixture(t, u.URL, keeping)
	f.claim("j")
	want(t, f.send(f.keyed("j", "1", "k1", "amount=1")), 201, "forwarded", "", "applied")
	for name, change := range map[string]func(*http.Request){
		"body":   func(r *http.Request) { *r = *f.keyed("j", "1", "k1", "amount=2") },
		"method": func(r *http.Request) { r.Method = "PUT" },
		"path":   func(r *http.Request) { r.URL.Path = "/refund" },
		"query":  func(r *http.Request) { r.URL.RawQuery = "x=1" },
	} {
		t.Run(name, func(t *testing.T) {
			r := f.keyed("j", "1", "k1", "amount=1")
			change(r)
			want(t, f.send(r), 422, "refused", "key-reused", "")
		})
	}
	want(t, f.send(f.keyed("j", "1", "k1", "amount=1")), 201, "replayed", "", "applied")
	want(t, f.send(f.keyed("k", "1", "k1", "amount=1")), 201, "forwarded", "", "applied")
	if u.count() != 2 {
		t.Errorf("executed %d times, want once for each of two jobs", u.count())
	}
}

func TestWhatAKeyIsAfterEachOutcome(t *testing.T) {
	for _, c := range []struct {
		status     int
		retryAfter string
		outcome    string
		again      string // the decision or code for the same key
	}{
		{200, "", "applied", "replayed"},
		{303, "", "applied", "replayed"},
		{307, "", "declined", "forwarded"},
		{400, "", "declined", "forwarded"},
		{429, "", "declined", "forwarded"},
		{503, "1", "declined", "forwarded"},
		{503, "", "unknown", "outcome-unknown"},
		{500, "", "unknown", "outcome-unknown"},
		{408, "", "unknown", "outcome-unknown"},
	} {
		t.Run(fmt.Sprint(c.status, c.retryAfter), func(t *testing.T) {
			u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.status)
			})
			f := newFixture(t, u.URL, keeping)
			f.server.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			f.claim("j")
			want(t, f.send(f.keyed("j", "1", "k1", "b")), c.status, "forwarded", "", c.outcome)
			got := f.send(f.keyed("j", "1", "k1", "b"))
			if d, r := got.Header.Get("Fence-Decision"), got.Header.Get("Fence-Reason"); d != c.again && r != c.again {
				t.Errorf("the same key again: %s %s, want %s", d, r, c.again)
			}
			// A corrected request may use a free key.
			if c.again == "forwarded" {
				want(t, f.send(f.keyed("j", "1", "k1", "other")), c.status, "forwarded", "", c.outcome)
			}
		})
	}
}

func TestAnUnknownWriteIsBlockedUntilItIsResolved(t *testing.T) {
	for verdict, again := range map[tokens.Verdict]string{tokens.VerdictApplied: "already-applied", tokens.VerdictNotApplied: "forwarded"} {
		t.Run(string(verdict), func(t *testing.T) {
			status := atomic.Int64{}
			status.Store(500)
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) })
			f := newFixture(t, u.URL, keeping)
			f.claim("j")
			want(t, f.send(f.keyed("j", "1", "k1", "b")), 500, "forwarded", "", "unknown")
			got := f.send(f.keyed("j", "1", "k1", "b"))
			want(t, got, 409, "refused", "outcome-unknown", "")
			if p := problemOf(t, got); p.About == nil || p.About.State != tokens.WriteUnknown || !strings.Contains(p.Detail, "resolve") {
				t.Errorf("got %+v", p)
			}
			if _, err := f.authority.Resolve(context.Background(), tokens.Job{ID: "j"}, "k1", verdict, 1000); err != nil {
				t.Fatal(err)
			}
			status.Store(200)
			got = f.send(f.keyed("j", "1", "k1", "b"))
			if d, r := got.Header.Get("Fence-Decision"), got.Header.Get("Fence-Reason"); d != again && r != again {
				t.Errorf("after %s: %s %s, want %s", verdict, d, r, again)
			}
		})
	}
}

func TestNotSentLeavesTheKeyFree(t *testing.T) {
	u := newUpstream(t, nil)
	url := u.URL
	u.Close()
	f := newFixture(t, url, keeping)
	for range 2 {
		want(t, f.send(f.keyed("j", "1", "k1", "b")), 502, "refused", "upstream-unreachable", "not-sent")
	}
}

func TestAResetAfterTheRequestIsUnknown(t *testing.T) {
	url, executed := dying(t)
	f := newFixture(t, url, keeping)
	want(t, f.send(f.keyed("j", "1", "k0", "b")), 200, "forwarded", "", "applied")
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 502, "refused", "upstream-failed", "unknown")
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 409, "refused", "outcome-unknown", "")
	if executed() != 2 {
		t.Errorf("executed %d, want 2", executed())
	}
}

func TestARouteMayForwardAnUnknownWriteAgain(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.ForwardUnknown = true })
	for range 2 {
		want(t, f.send(f.keyed("j", "1", "k1", "b")), 500, "forwarded", "", "unknown")
	}
}

func TestARouteMayRefuseDuplicates(t *testing.T) {
	u := charging(t)
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.RefuseDuplicates = true })
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 201, "forwarded", "", "applied")
	got := f.send(f.keyed("j", "1", "k1", "b"))
	want(t, got, 409, "refused", "already-applied", "")
	if p := problemOf(t, got); p.About == nil || p.About.Status != 201 || p.About.Location != "/charges/1" {
		t.Errorf("got %+v", p.About)
	}
}

func TestADuplicateMayWaitForTheFirst(t *testing.T) {
	release := make(chan struct{})
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-release
	})
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.DuplicateWait = 10 * time.Second })
	a := f.start(f.keyed("j", "1", "k1", "b"))
	<-u.arrived
	b := f.start(f.keyed("j", "1", "k1", "b"))
	eventually(t, "B has come", func() bool { return len(f.contexts) == 2 })
	close(release)
	want(t, <-a, 200, "forwarded", "", "applied")
	want(t, <-b, 200, "replayed", "", "applied")
}

func TestTheImpatientCallersRetryIsInProgressThenReplayed(t *testing.T) {
	release := make(chan struct{})
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-release
	})
	f := newFixture(t, u.URL, keeping)
	ctx, hangUp := context.WithCancel(context.Background())
	a := f.start(f.keyed("j", "1", "k1", "b").WithContext(ctx))
	<-u.arrived
	hangUp()
	<-a
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 409, "refused", "write-in-progress", "")
	close(release)
	eventually(t, "the first is recorded", func() bool {
		return f.send(f.keyed("j", "1", "k1", "b")).Header.Get("Fence-Decision") == "replayed"
	})
	if u.count() != 1 {
		t.Errorf("executed %d times", u.count())
	}
}

func TestALargeReplyReachesTheFirstCallerWholeAndOnlyHim(t *testing.T) {
	for _, length := range []string{"known", "unknown"} {
		t.Run(length, func(t *testing.T) {
			big := strings.Repeat("x", 1<<20)
			u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Location", "/big")
				if length == "known" {
					w.Header().Set("Content-Length", fmt.Sprint(len(big)))
				}
				w.WriteHeader(201)
				_, _ = io.WriteString(w, big)
			})
			f := newFixture(t, u.URL, keeping)
			got := f.send(f.keyed("j", "1", "k1", "b"))
			want(t, got, 201, "forwarded", "", "applied")
			if got.body != big {
				t.Errorf("the first caller got %d bytes", len(got.body))
			}
			got = f.send(f.keyed("j", "1", "k1", "b"))
			want(t, got, 409, "refused", "already-applied", "")
			if p := problemOf(t, got); p.About == nil || p.About.Status != 201 || p.About.Location != "/big" {
				t.Errorf("got %+v", p.About)
			}
		})
	}
}

func TestAReplyOfUnknownLengthIsKeptWhenItIsSmall(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "one ")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "two")
	})
	f := newFixture(t, u.URL, keeping)
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 200, "forwarded", "", "applied")
	eventually(t, "the reply is kept", func() bool {
		got := f.send(f.keyed("j", "1", "k1", "b"))
		return got.Header.Get("Fence-Decision") == "replayed" && got.body == "one two"
	})
}

func TestARouteMayKeepTheFactOnly(t *testing.T) {
	u := charging(t)
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.StoreReply = false })
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 201, "forwarded", "", "applied")
	got := f.send(f.keyed("j", "1", "k1", "b"))
	want(t, got, 409, "refused", "already-applied", "")
	if p := problemOf(t, got); p.About.Status != 201 || p.About.Location != "" {
		t.Errorf("got %+v", p.About)
	}
}

func TestTheStoreFailsAfterTheUpstreamsReply(t *testing.T) {
	var f *fixture
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		f.store.FailNext(tokenstest.Refuse)
		f.store.FailNext(tokenstest.Refuse) // also without the reply
	})
	f = newFixture(t, u.URL, keeping)
	f.claim("j")
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 200, "forwarded", "", "applied")
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 409, "refused", "outcome-unknown", "")
	if u.count() != 1 {
		t.Errorf("executed %d times", u.count())
	}
}

func TestNothingIsSentBeforeTheAttemptIsDurable(t *testing.T) {
	var f *fixture
	u := newUpstream(t, func(http.ResponseWriter, *http.Request) {
		w, err := f.store.LoadWrite(context.Background(), tokens.Job{ID: "j"}, "k1")
		if err != nil || w.State != tokens.WriteInFlight || w.Fingerprint.Body == "" {
			t.Errorf("when the write arrived the store had %+v, %v", w, err)
		}
	})
	f = newFixture(t, u.URL, keeping)
	f.claim("j")
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 200, "forwarded", "", "applied")
	f.store.FailNext(tokenstest.Refuse)
	want(t, f.send(f.keyed("j", "1", "k2", "b")), 503, "refused", "store-unavailable", "")
	if u.count() != 1 {
		t.Errorf("upstream saw %d writes", u.count())
	}
}

func TestAStreamedUploadIsRecognisedAgain(t *testing.T) {
	u := charging(t)
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.BodyBuffer = 1000 })
	body := strings.Repeat("0123456789", 50_000)
	want(t, f.send(f.keyed("j", "1", "k1", body)), 201, "forwarded", "", "applied")
	chunked := f.keyed("j", "1", "k1", "")
	chunked.Body, chunked.ContentLength = io.NopCloser(strings.NewReader(body)), -1
	want(t, f.send(chunked), 201, "replayed", "", "applied")
	want(t, f.send(f.keyed("j", "1", "k1", body[1:]+"x")), 422, "refused", "key-reused", "")
	if u.count() != 1 {
		t.Errorf("executed %d times", u.count())
	}
}

func TestMultipartBodiesThatDifferInTheirBoundaryAreTheSame(t *testing.T) {
	part := func(b, content string) string {
		return "--" + b + "\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n" + content + "\r\n--" + b + "--\r\n"
	}
	for _, buffer := range []int64{1 << 20, 16} {
		u := charging(t)
		f := newFixture(t, u.URL, keeping, func(r *Route) { r.BodyBuffer = buffer })
		send := func(b, content string) reply {
			r := f.keyed("j", "1", "k1", part(b, content))
			r.Header.Set("Content-Type", `multipart/form-data; boundary="`+b+`"`)
			return f.send(r)
		}
		want(t, send("AAA", "file"), 201, "forwarded", "", "applied")
		want(t, send("BBBBBB", "file"), 201, "replayed", "", "applied")
		want(t, send("BBBBBB", "another"), 422, "refused", "key-reused", "")
	}
}

func TestOncePerGeneration(t *testing.T) {
	u := charging(t)
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.OncePerGeneration = true })
	f.claim("j")
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 201, "forwarded", "", "applied")
	want(t, f.send(f.keyed("j", "1", "k1", "b")), 201, "replayed", "", "applied")
	want(t, f.send(f.keyed("j", "1", "k2", "b")), 409, "refused", "already-applied", "")
	want(t, f.post("j", "1"), 409, "refused", "already-applied", "")
	f.takeOver("j")
	want(t, f.post("j", "2"), 201, "forwarded", "", "applied")
	want(t, f.post("j", "2"), 409, "refused", "already-applied", "")
	if u.count() != 2 {
		t.Errorf("executed %d times, want 2", u.count())
	}
}

func TestAKeyedWriteThatIsVetoedLeavesItsKeyFree(t *testing.T) {
	u := newUpstream(t, nil)
	h := &holdSender{Sender: NewTransportSender(nil, 8), held: make(chan *Send, 1), open: make(chan struct{})}
	f := newFixture(t, u.URL, keeping, func(r *Route) { r.Sender = h })
	f.claim("j")
	r := f.keyed("j", "1", "k1", "x")
	r.Header.Set("X-Slow", "1")
	a := f.start(r)
	<-h.held
	f.takeOver("j")
	close(h.open)
	want(t, <-a, 412, "refused", "stale-generation", "not-sent")
	want(t, f.send(f.keyed("j", "2", "k1", "x")), 200, "forwarded", "", "applied")
}

func TestTheDigestDoesNotDependOnHowTheBodyIsCut(t *testing.T) {
	const body = "--b\r\n\r\nx--\r\n--b--\r\n--"
	for _, ct := range []string{"text/plain", "multipart/mixed; boundary=b"} {
		whole := newBodyDigest(ct)
		_, _ = whole.Write([]byte(body))
		want := whole.Sum()
		for cut := range body {
			d := newBodyDigest(ct)
			_, _ = d.Write([]byte(body[:cut]))
			_, _ = d.Write([]byte(body[cut:]))
			if got := d.Sum(); got != want {
				t.Errorf("%s cut at %d: %s, want %s", ct, cut, got, want)
			}
		}
	}
}

func FuzzMultipartDigest(f *testing.F) {
	f.Add("b", "--b\r\nx\r\n--b--", "--b\r\nxx\r\n--b--", 3)
	f.Fuzz(func(t *testing.T, boundary, a, b string, cut int) {
		ct := "multipart/mixed; boundary=\"" + boundary + "\""
		d, e, s := newBodyDigest(ct), newBodyDigest(ct), newBodyDigest(ct)
		_, _ = d.Write([]byte(a))
		_, _ = e.Write([]byte(b))
		cut = max(0, min(cut, len(a)))
		_, _ = s.Write([]byte(a[:cut]))
		_, _ = s.Write([]byte(a[cut:]))
		x, y, z := d.Sum(), e.Sum(), s.Sum()
		if x != z {
			t.Fatalf("%q cut at %d has another digest", a, cut)
		}
		if (a == b) != (x == y) {
			t.Fatalf("%q and %q: same body %v, same digest %v", a, b, a == b, x == y)
		}
	})
}
