package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

func TestAKeyNamesOneRequest(t *testing.T) {
	eachWay(t, func(t *testing.T, s *stage, l daemon.Lease) {
		for _, size := range []int{1, 30 << 10, 64 << 10, 1<<20 - 1, 1 << 20, 1<<20 + 1} {
			key := fmt.Sprintf("k%d", size)
			w := keyed(l, key, key, "")
			w.Body = pattern(size)
			first := s.send(w)
			s.forwarded(first, 200, "applied")
			for name, change := range map[string]func(*daemon.Write){
				"body":   func(w *daemon.Write) { w.Body = append(pattern(size-1), 'x') },
				"longer": func(w *daemon.Write) { w.Body = append(pattern(size), 'x') },
				"none":   func(w *daemon.Write) { w.Body = nil },
				"method": func(w *daemon.Write) { w.Method = "PUT" },
				"path":   func(w *daemon.Write) { w.Path = "/charge/1/cancel" },
				"query":  func(w *daemon.Write) { w.Path = "/charge?amount=2" },
				"zipped": func(w *daemon.Write) { w.Body, w.Header = []byte("zipped"), http.Header{"Content-Encoding": {"gzip"}} },
			} {
				other := w
				other.ID = key + "-" + name
				change(&other)
				got := s.send(other)
				s.refused(got, 422, "key-reused")
				s.about(got, "applied")
				s.unseen(other.ID)
			}
			chunked := w
			chunked.Body, chunked.Stream, chunked.ID = nil, bytes.NewReader(w.Body), key+"-chunked"
			s.replayed(s.send(chunked), first) // how a body is framed is not a part of it
			s.replayed(s.send(w), first)
			s.appliedOnce(l.Job, key)
		}
	})
}

func TestOneKeyOfTwoJobsIsTwoKeys(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, job := range []string{"event-9", "event-9-again"} {
		s.forwarded(s.send(keyed(s.claim(job, "A", long), "evt-9", job, "")), 200, "applied")
	}
}

func TestAMultipartRetryWithAnotherBoundaryIsTheSameRequest(t *testing.T) {
	eachWay(t, func(t *testing.T, s *stage, l daemon.Lease) {
		file := string(pattern(1 << 20))
		upload := func(id, boundary, file string) daemon.Write {
			w := keyed(l, "k1", id, "")
			w.Header = http.Header{"Content-Type": {"multipart/form-data; boundary=" + boundary}}
			w.Body = fmt.Appendf(nil, "--%s\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n%s\r\n--%[1]s--\r\n", boundary, file)
			return w
		}
		first := s.send(upload("first", "AAA", file))
		s.forwarded(first, 200, "applied")
		s.replayed(s.send(upload("again", "BBBBBB", file)), first)
		s.refused(s.send(upload("other", "CCC", strings.ToUpper(file))), 422, "key-reused")
		s.appliedOnce(l.Job, "k1")
	})
}

// Half an upload is known not to be whole. Whether the upstream acts on half of one nobody knows, unless it got none of it.
func TestHalfAnUploadUnderAKeyIsNeverReplayed(t *testing.T) {
	t.Parallel()
	for way, free := range map[string]bool{"body: {buffer: 1MiB}": true, "body: {buffer: 4KiB}": false} {
		s := open(t, way)
		l := s.claim("job", "A", long)
		w := keyed(l, "k1", "half", "")
		read, feed := io.Pipe()
		w.Stream = read
		ctx, hangUp := context.WithCancel(s.soon())
		p := s.startIn(ctx, w)
		if _, err := feed.Write(pattern(100_000)); err != nil {
			t.Fatal(err)
		}
		if !free {
			s.arrives("half")
		}
		hangUp()
		<-p.done
		if free {
			s.forwarded(s.send(keyed(l, "k1", "again", "")), 200, "applied")
			continue
		}
		s.becomes("job", "k1", "unknown")
		whole := keyed(l, "k1", "again", "")
		s.blocked(s.send(whole))
		s.unseen("again")
		s.executed("half", 0)
	}
}

// uploadLimit is how much memory a proxy may have for an upload of any size, and uploadGrowth how much more than before.
const uploadLimit, uploadGrowth = 256 << 20, 40 << 20

// TestALargeUploadUnderAKeyNeedsNoMemoryAndIsRecognised uploads 64 MiB, or FENCEPROXY_SOAK_UPLOAD_GIB GiB, twice.
func TestALargeUploadUnderAKeyNeedsNoMemoryAndIsRecognised(t *testing.T) {
	size, limit := int64(64<<20), patience*20
	if os.Getenv("FENCEPROXY_SOAK_UPLOAD_GIB") != "" {
		size = int64(fromEnv(t, "FENCEPROXY_SOAK_UPLOAD_GIB", 5)) << 30
		limit = 15 * time.Minute
	}
	// GOGC: the room that serve leaves for garbage is not the upload's.
	s := openWith(t, daemon.Settings{Env: []string{"GOMEMLIMIT=256MiB", "GOGC=100"}})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	l := s.claim("job", "A", long)
	small := s.send(keyed(l, "small", "small", ""))
	s.forwarded(small, 200, "applied")
	before, known := s.proxy.Peak()

	send := func(id string, seed byte) daemon.Answer {
		w := keyed(l, "k1", id, "")
		w.Method, w.Path, w.Stream = "PUT", "/o", io.LimitReader(repeated(seed), size)
		a, err := s.writer.Send(ctx, w)
		if err != nil {
			s.unanswered(id, err)
		}
		return a
	}
	first := send("first", 1)
	s.forwarded(first, 200, "applied")
	if seen := s.ends("first"); !seen.Complete || seen.Bytes != size {
		t.Errorf("the upstream got %d bytes, complete %v", seen.Bytes, seen.Complete)
	}
	s.quiet(func() {
		s.replayed(send("again", 1), first)
		s.refused(send("other", 2), 422, "key-reused")
	})
	s.appliedOnce("job", "k1")
	peak, _ := s.proxy.Peak()
	t.Logf("%d MiB resident before, at most %d MiB with uploads of %d MiB", before>>20, peak>>20, size>>20)
	// The race detector's shadow of the memory is not the program's.
	if known && !strings.Contains(os.Getenv("FENCEPROXY_TEST_BUILDFLAGS"), "-race") && (peak > uploadLimit || peak-before > uploadGrowth) {
		t.Errorf("the proxy had %d MiB resident, %d MiB before the uploads", peak>>20, before>>20)
	}
}

// repeated is a body without an end.
type repeated byte

// Read implements io.Reader.
func (r repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}
