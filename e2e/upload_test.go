package e2e_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// Bodies are tried both ways: read whole before they are sent on, and streamed.
var ways = map[string]string{"buffered": "body: {buffer: 1MiB}", "streamed": "body: {buffer: 4KiB}"}

func eachWay(t *testing.T, test func(t *testing.T, s *stage, l daemon.Lease)) {
	t.Helper()
	t.Parallel()
	for name, line := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, line)
			test(t, s, s.claim("job", "A", long))
		})
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

func TestABodyArrivesAsItWasSent(t *testing.T) {
	eachWay(t, func(t *testing.T, s *stage, l daemon.Lease) {
		for _, size := range []int{0, 1, 4096, 4097, 200_000, 3 << 20} {
			for _, chunked := range []bool{false, true} {
				body := pattern(size)
				w := write(l, fmt.Sprintf("w-%d-%v", size, chunked), "")
				w.Method, w.Body = "PUT", body
				if chunked {
					w.Body, w.Stream = nil, bytes.NewReader(body)
				}
				s.forwarded(s.send(w), 200, "applied")
				seen := s.ends(w.ID)
				if !seen.Complete || seen.Bytes != int64(size) || seen.Sum != sha256.Sum256(body) {
					t.Errorf("%s: the upstream got %d bytes, complete %v, want %d", w.ID, seen.Bytes, seen.Complete, size)
				}
				if !chunked && seen.ContentLength != int64(size) {
					t.Errorf("%s: the upstream was announced %d bytes, want %d", w.ID, seen.ContentLength, size)
				}
				s.executed(w.ID, 1)
			}
		}
	})
}

func TestATrailerArrivesWithItsBody(t *testing.T) {
	eachWay(t, func(t *testing.T, s *stage, l daemon.Lease) {
		w := write(l, "w", "")
		w.Body, w.Stream = nil, bytes.NewReader(pattern(20_000))
		w.Trailer = http.Header{"X-Checksum": {"abc"}}
		s.forwarded(s.send(w), 200, "applied")
		if got := s.ends("w").Trailer.Get("X-Checksum"); got != "abc" {
			t.Errorf("the upstream got trailer %q, want %q", got, "abc")
		}
	})
}

func TestFenceHeadersInTrailersCountForNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, s *stage, l daemon.Lease) {
		w := write(l, "w", "")
		w.Body, w.Stream = nil, bytes.NewReader(pattern(10_000))
		w.Trailer = http.Header{"Fence-Generation": {"99"}}
		if got := s.send(w); got.Status == 200 && got.Floor() != l.Generation {
			t.Errorf("a trailer moved the floor: %s", show(got))
		}
		s.forwarded(s.send(write(l, "after", "")), 200, "applied")
	})
}

// raw is a request that net/http would never send, on a connection that the test holds.
func (s *stage) raw(l daemon.Lease, id, framing string) net.Conn {
	s.Helper()
	c, err := net.Dial("tcp", s.proxy.DataAddr())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	var head strings.Builder
	head.WriteString("PUT /o HTTP/1.1\r\nHost: proxy\r\n")
	if err := write(l, id, "").Head().Write(&head); err != nil {
		s.Fatal(err)
	}
	s.say(c, head.String()+framing+"\r\n\r\n")
	return c
}

// say writes to a connection that the proxy may have closed already: then the answer is what counts.
func (s *stage) say(c net.Conn, text string) {
	s.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		s.Logf("the proxy closed while the test was writing: %v", err)
	}
}

// status reads the answer from a raw connection; 0 if it was closed without one.
func (s *stage) status(c net.Conn) int {
	s.Helper()
	deadline, _ := s.soon().Deadline()
	if err := c.SetReadDeadline(deadline); err != nil {
		s.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// nothingWhole checks that the upstream saw no complete request of this name. The write after it proves that the proxy is
// done with the broken one, for the order of its own choosing: a lost body holds nobody up.
func (s *stage) nothingWhole(l daemon.Lease, id string) {
	s.Helper()
	s.forwarded(s.send(write(l, id+"-after", "")), 200, "applied")
	for _, seen := range s.up.Seen(id) {
		if seen = s.ends(id); seen.Complete || seen.Executed {
			s.Errorf("the upstream took half an upload for a whole one: %+v", seen)
		}
	}
	s.executed(id, 0)
}

func TestACallerWhoResetsMidwayLeavesNoWholeRequest(t *testing.T) {
	eachWay(t, func(t *testing.T, s *stage, l daemon.Lease) {
		half := string(pattern(100_000))
		for id, framing := range map[string]struct{ header, body string }{
			"chunked": {"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(half), half)},
			"length":  {"Content-Length: 1000000", half},
		} {
			c := s.raw(l, id, framing.header)
			s.say(c, framing.body)
			if tcp, ok := c.(*net.TCPConn); ok {
				if err := tcp.SetLinger(0); err != nil {
					t.Fatal(err)
				}
			}
			_ = c.Close() // with a reset
			s.nothingWhole(l, id)
		}
	})
}

func TestABrokenFramingIsBadAndNotForwardedAsWhole(t *testing.T) {
	eachWay(t, func(t *testing.T, s *stage, l daemon.Lease) {
		long := string(pattern(20_000))
		for id, framing := range map[string]struct{ header, body string }{
			"bad-chunk-size":       {"Transfer-Encoding: chunked", "zz\r\nhello\r\n0\r\n\r\n"},
			"bad-chunk-later":      {"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\nzz\r\nhello\r\n", len(long), long)},
			"negative-chunk":       {"Transfer-Encoding: chunked", "-5\r\nhello\r\n0\r\n\r\n"},
			"shorter-than-length":  {"Content-Length: 30000", long},
			"no-last-chunk":        {"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(long), long)},
			"two-lengths":          {"Content-Length: 5\r\nContent-Length: 6", "hello!"},
			"negative-length":      {"Content-Length: -1", "hello"},
			"two-kinds-of-framing": {"Transfer-Encoding: chunked, chunked", "5\r\nhello\r\n0\r\n\r\n"},
		} {
			c := s.raw(l, id, framing.header)
			s.say(c, framing.body)
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.CloseWrite() // the body ends here; the proxy may have closed before
			}
			if got := s.status(c); got != 0 && (got < 400 || got > 599) {
				t.Errorf("%s: got status %d", id, got)
			}
			s.nothingWhole(l, id)
		}
	})
}

func TestWhatFollowsABodyIsNotPartOfIt(t *testing.T) {
	eachWay(t, func(t *testing.T, s *stage, l daemon.Lease) {
		c := s.raw(l, "w", "Content-Length: 5")
		s.say(c, "helloPUT /smuggled HTTP/1.1\r\nHost: proxy\r\nX-Test-Id: smuggled\r\nContent-Length: 0\r\n\r\n")
		if got := s.status(c); got != 200 {
			t.Errorf("got status %d, want 200", got)
		}
		if seen := s.ends("w"); seen.Bytes != 5 || seen.Sum != sha256.Sum256([]byte("hello")) {
			t.Errorf("the upstream got %d bytes", seen.Bytes)
		}
		s.forwarded(s.send(write(l, "after", "")), 200, "applied")
		s.unseen("smuggled") // it names no generation, so it is refused as any other
	})
}

func TestAnUpstreamThatBreaksMidwayIsUnknownAndNotTriedAgain(t *testing.T) {
	eachWay(t, func(t *testing.T, s *stage, l daemon.Lease) {
		w := write(l, "w", "reset-midway=100000")
		w.Body = pattern(3 << 20)
		s.refusedAfterSending(s.send(w), 502, "upstream-failed")
		if got := len(s.up.Seen("w")); got != 1 {
			t.Errorf("the upstream saw the write %d times, want once", got)
		}
		s.executed("w", 0)
	})
}

func TestAnEarlyAnswerOfTheUpstreamReachesTheCaller(t *testing.T) {
	eachWay(t, func(t *testing.T, s *stage, l daemon.Lease) {
		read, feed := io.Pipe()
		w := write(l, "w", "early=413")
		w.Stream = read
		go func() {
			// Goes on until the answer has come and the client closes its end.
			for {
				if _, err := feed.Write(make([]byte, 16<<10)); err != nil {
					return
				}
			}
		}()
		got := s.send(w)
		_ = read.Close() // never fails
		s.forwarded(got, 413, "declined")
		s.executed("w", 0)
	})
}
