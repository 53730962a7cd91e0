package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// retainer is a caller of HTTP/2 that resets its stream: the server's Write returns, and what it
// was given is still being written.
type retainer struct {
	header http.Header
	given  []byte // the caller's, of the last write
	said   []byte // what it was
}

func (r *retainer) Header() http.Header { return r.header }

func (r *retainer) WriteHeader(int) {}

func (r *retainer) FlushError() error { return nil }

func (r *retainer) Write(b []byte) (int, error) {
	if r.given == nil {
		r.given, r.said = b, bytes.Clone(b)
	}
	return 0, errors.New("http2: stream closed")
}

func TestWhatTheServerMayStillBeWritingIsNotUsedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		chunked bool
		call    bool
	}{
		"with its head":  {size: 2000},
		"in one piece":   {size: 30_000},
		"in many pieces": {size: 500_000},
		"of no length":   {size: 500_000, chunked: true},
		"a gRPC call":    {size: 500_000, chunked: true, call: true},
	} {
		t.Run(name, func(t *testing.T) {
			eachSender(t, func(t *testing.T, sender func(*Route)) {
				u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if !c.chunked {
						w.Header().Set("Content-Length", fmt.Sprint(c.size))
					}
					rc := http.NewResponseController(w)
					first := 'a'
					if r.Header.Get("Fence-Job-Id") == "other" {
						first = 'A'
					}
					for i := range c.size / 1000 {
						_, _ = w.Write(bytes.Repeat([]byte{byte(int(first) + i%20)}, 1000))
						if c.chunked {
							_ = rc.Flush()
						}
					}
				})
				f := newFixture(t, u.URL, sender, func(r *Route) { r.ForwardFence = true })
				f.contexts = nil
				// Those of others use what was given back.
				others := func() {
					for range 20 {
						want(t, f.post("other", "1"), 200, "forwarded", "", "applied")
					}
				}
				w := &retainer{header: http.Header{}}
				r := httptest.NewRequest("POST", "/x", strings.NewReader("hello"))
				r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
				r.Header["Fence-Job-Id"], r.Header["Fence-Generation"] = []string{"j"}, []string{"1"}
				if c.call {
					r.Header["Content-Type"] = []string{"application/grpc"}
				}
				func() {
					defer func() { _ = recover() }() // as the server does
					f.proxy.ServeHTTP(w, r)
				}()
				others()
				if w.said == nil {
					t.Fatal("nothing was written")
				}
				if !bytes.Equal(w.given, w.said) {
					t.Error("the caller would have got bytes of another reply")
				}
			})
		})
	}
}
