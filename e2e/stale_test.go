package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// mostRead is what a proxy may read of a body that it refuses, in bytes.
const mostRead = 64 << 10

// TestAStaleUploadIsRefusedUnread announces 5 GiB and sends until the proxy has hung up.
func TestAStaleUploadIsRefusedUnread(t *testing.T) {
	t.Parallel()
	for name, framing := range map[string]string{
		"with its length":              "Content-Length: 5368709120",
		"chunked":                      "Transfer-Encoding: chunked",
		"with its length, under a key": "Content-Length: 5368709120\r\nIdempotency-Key: k",
		"with its length, and Expect":  "Content-Length: 5368709120\r\nExpect: 100-continue",
		"chunked, and Expect":          "Transfer-Encoding: chunked\r\nExpect: 100-continue",
		"chunked, and not waiting":     "Transfer-Encoding: chunked\r\nExpect: 100-continue",
		"just above the buffer":        "Content-Length: 1048577",
		"just within it, and Expect":   "Content-Length: 1048576\r\nExpect: 100-continue",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			old := s.claim("job", "A", brief)
			s.takeOver("job", "B", long)
			conns := s.up.Accepted()
			before, known := s.proxy.Read()

			c := s.raw(old, "stale", framing)
			polite := strings.HasSuffix(name, "Expect")
			sent := make(chan int64, 1)
			go func() { sent <- pour(c, strings.Contains(framing, "chunked"), polite) }()
			in := bufio.NewReader(c)
			s.wantStale(c, in)
			total := <-sent // until the proxy has closed
			if _, err := in.Peek(1); err == nil {
				t.Error("the proxy says more than its answer")
			}
			after, _ := s.proxy.Read()
			t.Logf("the caller wrote %d bytes of its body, the proxy read %d in all", total, after-before)
			if known && after-before >= mostRead {
				t.Errorf("the proxy read %d bytes, want less than %d", after-before, mostRead)
			}
			if polite && total != 0 {
				t.Errorf("a caller that waits for 100 wrote %d bytes", total)
			}
			if !polite && total < 512<<10 {
				t.Errorf("the caller wrote %d bytes only, so nothing was shown", total)
			}
			s.unseen("stale")
			if got := s.up.Accepted(); got != conns {
				t.Errorf("the upstream has %d connections, had %d", got, conns)
			}
		})
	}
}

// wantStale reads the answer. An interim reply before it fails the test: nobody may be asked for the body.
func (s *stage) wantStale(c net.Conn, in *bufio.Reader) {
	s.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		s.Fatal(err)
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		s.Fatalf("the caller has no answer: %v", err)
	}
	var p daemon.Fields
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
		s.Fatalf("the answer is not whole: %v", err)
	}
	if res.StatusCode != 412 || p["code"] != "stale-generation" || res.Header.Get("Fence-Reason") != "stale-generation" {
		s.Fatalf("the answer is %s %v", res.Status, p)
	}
}

// pour sends a body without an end until the connection fails, and returns how much of it was taken. A polite caller waits
// for the answer instead, and sends nothing.
func pour(c net.Conn, chunked, polite bool) (total int64) {
	if polite {
		return 0
	}
	piece := make([]byte, 16<<10)
	for {
		if chunked {
			if _, err := fmt.Fprintf(c, "%x\r\n", len(piece)); err != nil {
				return total
			}
		}
		n, err := c.Write(piece)
		total += int64(n)
		if err != nil {
			return total
		}
		if chunked {
			if _, err := io.WriteString(c, "\r\n"); err != nil {
				return total
			}
		}
	}
}

// TestAStaleUploadOverHTTP2IsRefusedUnread does the same on a stream, where a server reads what its windows allow.
func TestAStaleUploadOverHTTP2IsRefusedUnread(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]int64{"with its length": 5 << 30, "of unknown length": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			old := s.claim("job", "A", brief)
			s.takeOver("job", "B", long)
			conns := s.up.Accepted()
			tr := &http.Transport{Protocols: new(http.Protocols)}
			tr.Protocols.SetUnencryptedHTTP2(true)
			defer tr.CloseIdleConnections()
			// The windows of the connection are known after a first request.
			if res, err := tr.RoundTrip(s.stream(old, 0, http.NoBody)); err != nil || res.StatusCode != 412 {
				t.Fatalf("the first request: %v %v", res, err)
			}
			before, known := s.proxy.Read()
			res, err := tr.RoundTrip(s.stream(old, length, repeated(1)))
			if err != nil {
				t.Fatalf("the caller has no answer: %v", err)
			}
			var p daemon.Fields
			if err := json.NewDecoder(res.Body).Decode(&p); err != nil || res.StatusCode != 412 || res.ProtoMajor != 2 || p["code"] != "stale-generation" {
				t.Errorf("the answer is %s %s %v: %v", res.Proto, res.Status, p, err)
			}
			_ = res.Body.Close()
			after, last := int64(-1), int64(-1)
			s.until("the proxy reads no more", func() bool {
				last = after
				after, _ = s.proxy.Read()
				<-time.After(glance)
				return last >= 0 && after-last < 512 // the runtime wakes itself up by reading, too
			})
			t.Logf("the proxy read %d bytes in all", after-before)
			if most := int64(mostRead + framesAround); known && after-before >= most {
				t.Errorf("the proxy read %d bytes, want less than %d", after-before, most)
			}
			s.unseen("stale")
			if got := s.up.Accepted(); got != conns {
				t.Errorf("the upstream has %d connections, had %d", got, conns)
			}
		})
	}
}

// stream is a stale upload for net/http.
func (s *stage) stream(l daemon.Lease, length int64, body io.Reader) *http.Request {
	s.Helper()
	r, err := http.NewRequestWithContext(s.soon(), "PUT", s.proxy.Data()+"/o", body)
	if err != nil {
		s.Fatal(err)
	}
	r.ContentLength, r.Header = length, write(l, "stale", "").Head()
	return r
}

// framesAround bounds what HTTP/2 needs besides the bytes of a body, in bytes: frames, a head, settings.
const framesAround = 2 << 10
