package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// burden is what the process of the proxy costs its machine.
type burden struct{ goroutines, memory, jobs float64 }

func (s *stage) burden() (b burden) {
	s.Helper()
	for name, to := range map[string]*float64{
		"go_goroutines": &b.goroutines, "process_resident_memory_bytes": &b.memory, "fenceproxy_jobs": &b.jobs,
	} {
		v, err := s.control.Metric(s.soon(), name)
		if err != nil {
			s.Fatal(err)
		}
		*to = v
	}
	return b
}

const (
	// slackGoroutines and slackMemory are what a process may keep from a flood: a few connections that are being closed, and
	// memory that Go has not collected or not yet given back: it lets 64 MiB gather.
	slackGoroutines = 25
	slackMemory     = 96 << 20
	// relief is how long it may take until the proxy is back where it was. The collector runs every two minutes in a process
	// that is idle, so the test keeps it busy.
	relief = time.Minute
)

// relieved waits until the proxy is back where it was, and serves honest writes all along.
func (s *stage) relieved(name string, before burden) {
	s.Helper()
	l := s.claim("honest-"+name, "A", long)
	var now burden
	for limit := time.Now().Add(relief); time.Now().Before(limit); {
		for i := range 20 {
			w := write(l, fmt.Sprintf("honest-%s-%d", name, i), "")
			w.Body = make([]byte, 100<<10)
			s.forwarded(s.send(w), 200, "applied")
		}
		if now = s.burden(); now.goroutines <= before.goroutines+slackGoroutines && now.memory <= before.memory+slackMemory {
			s.Logf("%s: goroutines %.0f, then %.0f; memory %.0f MiB, then %.0f MiB", name, before.goroutines, now.goroutines, before.memory/(1<<20), now.memory/(1<<20))
			return
		}
	}
	s.Errorf("%s: goroutines %.0f, now %.0f; memory %.0f MiB, now %.0f MiB", name, before.goroutines, now.goroutines, before.memory/(1<<20), now.memory/(1<<20))
}

// crowd opens n connections, says the same on each, and returns them.
func (s *stage) crowd(n int, text string) []net.Conn {
	s.Helper()
	all := make([]net.Conn, n)
	for i := range all {
		c, err := net.Dial("tcp", s.proxy.DataAddr())
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			s.Fatal(err)
		}
		all[i] = c
	}
	return all
}

// ended waits until the proxy has closed a connection, and returns what it said before.
func (s *stage) ended(c net.Conn) string {
	s.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(c)
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		s.Errorf("the proxy keeps the connection, after %q", b)
	}
	return string(b)
}

// The number of connections, streams and jobs in a flood is FENCEPROXY_SOAK_FLOOD, 500 by default.
func flood(t *testing.T) int { return fromEnv(t, "FENCEPROXY_SOAK_FLOOD", 500) }

// floods has one proxy flooded in one way, and checks that nothing is left of it.
func floods(t *testing.T, run func(s *stage, n int), route ...string) {
	t.Helper()
	t.Parallel()
	s := open(t, append([]string{"idle_timeout: 3s"}, route...)...)
	l := s.claim("first", "A", long)
	for i := range 50 { // so that pools and connections are there
		s.forwarded(s.send(write(l, fmt.Sprintf("first-%d", i), "")), 200, "applied")
	}
	before := s.burden()
	run(s, flood(t))
	s.relieved(t.Name(), before)
}

func TestAFloodOfConnectionsPasses(t *testing.T) {
	floods(t, func(s *stage, n int) {
		silent := s.crowd(n, "")
		half := s.crowd(n, "POST /w HTTP/1.1\r\nHost: p\r\nX: ")
		idle := s.crowd(n, "POST /w HTTP/1.1\r\nHost: p\r\nContent-Length: 0\r\n\r\n") // refused, and kept
		l := s.claim("job", "A", long)
		s.forwarded(s.send(write(l, "w", "")), 200, "applied")
		for _, c := range silent {
			_ = c.Close()
		}
		for _, c := range half { // with resets
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
		for _, c := range idle {
			_ = c.Close()
		}
	})
}

func TestSlowHeadsAreCutOff(t *testing.T) {
	floods(t, func(s *stage, n int) {
		all := s.crowd(n/5, "POST /w HTTP/1.1\r\nHost: p\r\n")
		began := time.Now()
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for open := len(all); open > 0; <-tick.C { // a byte at a time, for as long as the proxy has patience
			open = 0
			for _, c := range all {
				if _, err := io.WriteString(c, "X"); err == nil {
					open++
				}
			}
			if time.Since(began) > 2*patience {
				s.Fatalf("%d connections with half a head are still open", open)
			}
		}
	})
}

func TestSlowBodiesAreCutOff(t *testing.T) {
	floods(t, func(s *stage, n int) {
		l := s.claim("job", "A", long)
		s.quiet(func() {
			all := s.crowd(n/5, spell("POST /w HTTP/1.1\r\nHost: p\r\n{F}Content-Length: 100\r\n\r\nhalf", l, ""))
			for _, c := range all {
				if got := s.ended(c); !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "request-invalid") {
					s.Errorf("got %.100q", got)
				}
			}
		})
		s.unseen("w")
	})
}

func TestSlowReadersAreCutOff(t *testing.T) {
	floods(t, func(s *stage, n int) {
		broken := make(chan error, n)
		s.up.Reply("/big", func(w http.ResponseWriter, _ *http.Request) {
			big := make([]byte, 1<<20)
			var err error
			for i := 0; i < 64 && err == nil; i++ {
				_, err = w.Write(big)
			}
			broken <- err
		})
		l := s.claim("job", "A", long)
		all := s.crowd(n/10, spell("POST /big HTTP/1.1\r\nHost: p\r\n{F}Content-Length: 0\r\n\r\n", l, ""))
		for range all {
			select {
			case err := <-broken:
				if err == nil {
					s.Error("a reply that nobody reads was taken whole from the upstream")
				}
			case <-time.After(2 * patience):
				s.Fatal("a reply that nobody reads is held for ever")
			}
		}
	})
}

func TestAFloodOfStreamsPasses(t *testing.T) {
	floods(t, func(s *stage, n int) {
		l := s.claim("job", "A", long)
		s.quiet(func() {
			c := s.speak2()
			head := fenced2(l, "w").with("content-length", "100")
			for range n {
				stream, err := c.open(head, false)
				if err != nil {
					break // the proxy has had enough
				}
				_ = c.WriteData(stream, false, []byte("half")) // the same
			}
			// Others are served meanwhile.
			other := s.speak2()
			stream, err := other.open(post("/w"), true)
			if err != nil {
				s.Fatal(err)
			}
			if status, err := other.answer(stream); err != nil || status != 428 {
				s.Errorf("another caller got %d, %v", status, err)
			}
			_ = c.Close()
			_ = other.Close()
		})
		s.unseen("w")
	})
}

func TestAFloodOfResetsPasses(t *testing.T) {
	floods(t, func(s *stage, n int) {
		s.quiet(func() {
			for range 4 {
				c := s.speak2()
				go func() { _, _ = io.Copy(io.Discard, c.Conn) }() // ends with the connection
				for range 10 * n {
					stream, err := c.open(post("/w"), false) // no fence: nothing of it may go on
					if err == nil {
						err = c.WriteRSTStream(stream, http2.ErrCodeCancel)
					}
					if err != nil {
						break // the proxy has had enough
					}
				}
				_ = c.Close()
			}
		})
	})
}

func TestAFloodOfFramesPasses(t *testing.T) {
	floods(t, func(s *stage, n int) {
		for name, say := range map[string]func(c *raw2) error{
			"pings":    func(c *raw2) error { return c.WritePing(false, [8]byte{}) },
			"settings": func(c *raw2) error { return c.WriteSettings() },
			"windows":  func(c *raw2) error { return c.WriteWindowUpdate(0, 1) },
			"nothing":  func(c *raw2) error { return c.WriteData(1, false, nil) },
		} {
			c := s.speak2() // which reads nothing
			if name == "nothing" {
				if _, err := c.open(post("/w"), false); err != nil {
					s.Fatal(err)
				}
			}
			_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // it may fill all buffers
			for range 100 * n {
				if err := say(c); err != nil {
					break
				}
			}
			_ = c.Close()
		}
	})
}

func TestAHeaderSectionWithoutEndIsCutOff(t *testing.T) {
	floods(t, func(s *stage, _ int) {
		s.quiet(func() {
			c := s.speak2()
			c.block.Reset()
			if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}); err != nil {
				s.Fatal(err)
			}
			piece := append([]byte{0x00, 0x01, 'x', 0x7f, 0x81, 0x7d}, make([]byte, 16000)...) // a literal of 16,000 bytes
			for i := range piece[6:] {
				piece[6+i] = 'y'
			}
			sent := 0
			for ; sent < 10_000; sent++ {
				if err := c.WriteContinuation(1, false, piece); err != nil {
					break
				}
			}
			if sent == 10_000 {
				s.Error("the proxy takes a header section without end")
			}
			if _, err := c.answer(1); err != nil && !errors.Is(err, errEnded) {
				s.Errorf("the connection is kept: %v", err)
			}
		})
	})
}

func TestRefusedWritesOfUnknownJobsLeaveNothingBehind(t *testing.T) {
	floods(t, func(s *stage, n int) {
		before := s.burden()
		s.quiet(func() {
			c := s.crowd(1, "")[0]
			br := bufio.NewReader(c)
			for i := range 20 * n {
				body := ""
				if i%2 == 0 {
					body = "hello"
				}
				_, err := fmt.Fprintf(c, "POST /w HTTP/1.1\r\nHost: p\r\nFence-Job-Id: job-%d\r\nFence-Generation: %d\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s", i, 1+i%9, len(body), body)
				if err != nil {
					s.Fatal(err)
				}
				res, err := http.ReadResponse(br, nil)
				if err != nil {
					s.Fatal(err)
				}
				if _, err = io.Copy(io.Discard, res.Body); err != nil || res.Header.Get("Fence-Reason") != "unknown-job" {
					s.Fatalf("got %s %s, %v", res.Status, res.Header.Get("Fence-Reason"), err)
				}
			}
		})
		if now := s.burden(); now.jobs > before.jobs+1 {
			s.Errorf("%.0f jobs are known, before it were %.0f", now.jobs, before.jobs)
		}
	}, "generations: issued")
}
