package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// largeBody is how much the tests of large bodies send, in bytes: 256 MiB, or FENCEPROXY_SOAK_UPLOAD_GIB GiB; and how long
// one of them may take.
func largeBody(t *testing.T) (size int64, limit time.Duration) {
	t.Helper()
	if os.Getenv("FENCEPROXY_SOAK_UPLOAD_GIB") == "" {
		return 256 << 20, patience * 20
	}
	return int64(fromEnv(t, "FENCEPROXY_SOAK_UPLOAD_GIB", 5)) << 30, 15 * time.Minute
}

// flat fails the test if what play does takes memory.
func (s *stage) flat(what string, play func()) {
	s.Helper()
	before, known := s.proxy.Peak()
	play()
	peak, _ := s.proxy.Peak()
	s.Logf("%s: %d MiB resident before, at most %d MiB with it", what, before>>20, peak>>20)
	// The race detector's shadow of the memory is not the program's.
	if known && !strings.Contains(os.Getenv("FENCEPROXY_TEST_BUILDFLAGS"), "-race") && (peak > uploadLimit || peak-before > uploadGrowth) {
		s.Errorf("%s: the proxy had %d MiB resident, %d MiB before", what, peak>>20, before>>20)
	}
}

func TestLargeBodiesPassAtFlatMemory(t *testing.T) {
	size, limit := largeBody(t)
	s := openWith(t, daemon.Settings{Env: []string{"GOMEMLIMIT=256MiB"}})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	l := s.claim("job", "A", long)
	s.forwarded(s.send(write(l, "small", "")), 200, "applied")
	s.up.Reply("/large", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "length" {
			w.Header().Set("Content-Length", fmt.Sprint(size))
		}
		_, _ = io.CopyN(w, repeated(3), size) // a short body fails the test
	})

	s.flat("an upload of unknown length", func() {
		w := write(l, "upload", "")
		w.Method, w.Path, w.Body, w.Stream = "PUT", "/o", nil, io.LimitReader(repeated(1), size)
		a, err := s.writer.Send(ctx, w)
		if err != nil {
			s.unanswered(w.ID, err)
		}
		s.forwarded(a, 200, "applied")
		if seen := s.ends("upload"); !seen.Complete || seen.Bytes != size {
			t.Errorf("the upstream got %d bytes, complete %v", seen.Bytes, seen.Complete)
		}
	})
	for _, query := range []string{"length", "chunked"} {
		for _, method := range []string{"GET", "POST"} {
			s.flat("the reply to a "+method+", "+query, func() {
				n, err := s.download(ctx, method, "/large?"+query, l, func(io.Reader) {})
				if n != size || err != nil {
					t.Errorf("the caller got %d bytes of %d: %v", n, size, err)
				}
			})
		}
	}
}

// download counts what comes back. pause is called when the head has come.
func (s *stage) download(ctx context.Context, method, path string, l daemon.Lease, pause func(body io.Reader)) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.proxy.Data()+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	r.Header = write(l, method+path, "").Head()
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	pause(res.Body)
	return io.Copy(io.Discard, res.Body)
}

// TestASlowReaderHoldsItsUpstreamBack lets a caller stop reading in the middle of a reply.
func TestASlowReaderHoldsItsUpstreamBack(t *testing.T) {
	t.Parallel()
	const size, between = 256 << 20, 64 << 20 // the second is more than the buffers of two connections
	s := open(t)
	l := s.claim("job", "A", long)
	var made atomic.Int64
	s.up.Reply("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		piece := make([]byte, 1<<20)
		for made.Load() < size {
			if _, err := w.Write(piece); err != nil {
				return
			}
			made.Add(int64(len(piece)))
		}
	})
	s.flat("a reply that nobody reads", func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience*20)
		defer cancel()
		n, err := s.download(ctx, "GET", "/large", l, func(io.Reader) {
			last := int64(-1)
			s.until("the upstream is held back", func() bool {
				now := made.Load()
				same := now == last && now > 0
				last = now
				<-time.After(glance / 2) // long enough for a megabyte
				return same
			})
			if last > between {
				t.Errorf("the upstream made %d MiB that nobody has read", last>>20)
			}
		})
		if n != size || err != nil {
			t.Errorf("the caller got %d bytes of %d: %v", n, size, err)
		}
	})
}

// TestBodiesMayLastLongerThanEveryTimeout lets both bodies take several times the route's timeouts, in pieces.
func TestBodiesMayLastLongerThanEveryTimeout(t *testing.T) {
	t.Parallel()
	const pieces, pause = 30, 200 * time.Millisecond
	s := open(t, "timeout: 2s", "idle_timeout: 2s")
	l := s.claim("job", "A", long)
	s.up.Reply("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for i := range pieces {
			if _, err := fmt.Fprintf(w, "data: %d\n\n", i); err != nil || rc.Flush() != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(pause):
			}
		}
	})
	for _, method := range []string{"GET", "POST"} {
		t.Run("a reply to a "+method, func(t *testing.T) {
			t.Parallel()
			n, err := s.download(t.Context(), method, "/events", l, func(io.Reader) {})
			if err != nil || n < pieces*int64(len("data: 0\n\n")) {
				t.Errorf("the caller got %d bytes: %v", n, err)
			}
		})
	}
	t.Run("an upload", func(t *testing.T) {
		t.Parallel()
		read, feed := io.Pipe()
		go func() {
			for range pieces {
				if _, err := io.WriteString(feed, "0123456789"); err != nil {
					return
				}
				<-time.After(pause)
			}
			_ = feed.Close()
		}()
		w := write(l, "upload", "")
		w.Body, w.Stream = nil, read
		a, err := s.writer.Send(t.Context(), w)
		if err != nil {
			s.unanswered(w.ID, err)
		}
		s.forwarded(a, 200, "applied")
		if seen := s.ends("upload"); !seen.Complete || seen.Bytes != pieces*10 {
			t.Errorf("the upstream got %d bytes, complete %v", seen.Bytes, seen.Complete)
		}
	})
}
