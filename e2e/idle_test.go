package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

const (
	honestWorkers = 4
	honestWrites  = 750 // of each, in one measurement, or what a busy machine can do in honestTime
	honestTime    = 5 * time.Second
	// p99Noise is what the machine alone may add to a 99th percentile.
	p99Noise = 5 * time.Millisecond
)

// p99 has honest workers write, each with a lease of its own, and returns the 99th percentile of the times.
func (s *stage) p99(name string) time.Duration {
	s.Helper()
	writer := s.proxy.Writer(true)
	defer writer.Close()
	took := make([][]time.Duration, honestWorkers)
	var all sync.WaitGroup
	for i := range honestWorkers {
		l := s.claim(fmt.Sprintf("%s-%d", name, i), "A", long)
		all.Go(func() {
			start := time.Now()
			for n := 0; n < honestWrites && time.Since(start) < honestTime; n++ {
				w := write(l, fmt.Sprintf("%s-%d-%d", name, i, n), "")
				w.Body = make([]byte, 256)
				began := time.Now()
				a, err := writer.Send(s.Context(), w)
				if err != nil || a.Decision() != "forwarded" {
					s.Errorf("write %s: %v %s", w.ID, err, show(a))
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	all.Wait()
	times := slices.Concat(took...)
	if len(times) == 0 {
		s.Fatal("no honest write was served")
	}
	slices.Sort(times)
	return times[len(times)*99/100]
}

// compare measures s and another proxy by turns, and returns the best of either: three times at least, for the machine has
// other work too, and then for a while, until enough says so. Each stands still while the other one is measured.
func (s *stage) compare(other *stage, enough func(best, others time.Duration) bool) (best, others time.Duration) {
	s.Helper()
	best, others = time.Hour, time.Hour
	began := time.Now()
	for i := 0; i < 3 || time.Since(began) < 3*patience && !enough(best, others); i++ {
		s.proxy.Pause()
		others = min(others, other.p99(fmt.Sprintf("other-%d", i)))
		s.proxy.Continue()
		other.proxy.Pause()
		best = min(best, s.p99(fmt.Sprintf("turn-%d", i)))
		other.proxy.Continue()
	}
	return best, others
}

// crowdOf opens connections beside each other.
func (s *stage) crowdOf(n int, open func(c net.Conn) error) []net.Conn {
	s.Helper()
	all := make([]net.Conn, n)
	var group sync.WaitGroup
	for first := range 8 {
		group.Go(func() {
			for i := first; i < n; i += 8 {
				c, err := net.Dial("tcp", s.proxy.DataAddr())
				if err == nil {
					s.Cleanup(func() { _ = c.Close() })
					err = open(c)
				}
				if err != nil {
					s.Errorf("connection %d: %v", i, err)
					return
				}
				all[i] = c
			}
		})
	}
	if group.Wait(); s.Failed() {
		s.FailNow()
	}
	return all
}

// refusedOnce has a connection refused a write, after which it is kept, and idle.
func refusedOnce(c net.Conn) error {
	if _, err := io.WriteString(c, "POST /w HTTP/1.1\r\nHost: p\r\nContent-Length: 0\r\n\r\n"); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(c, 512), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// TestIdleConnectionsAndSlowUploadsDoNotSlowOthersDown takes the number of idle connections from FENCEPROXY_SOAK_IDLE, 1,000 by
// default, and has a tenth as many slow uploads, 2,000 at most. Both processes need a descriptor for each.
func TestIdleConnectionsAndSlowUploadsDoNotSlowOthersDown(t *testing.T) {
	n := fromEnv(t, "FENCEPROXY_SOAK_IDLE", 1000)
	uploads := min(n/7, 2000)
	s, other := open(t, "body: {buffer: 4KiB}"), open(t, "body: {buffer: 4KiB}")
	for _, each := range []*stage{s, other} {
		each.up.ForgetHeaders()
		each.p99("warm")
	}
	before := s.burden()

	began := time.Now()
	idle := s.crowdOf(n, refusedOnce) // one that has asked for nothing yet would be ended after ten seconds
	atIdle := s.burden()
	t.Logf("%d idle connections in %v: %.1f KiB each", n, time.Since(began).Round(time.Millisecond), (atIdle.memory-before.memory)/1024/float64(n))

	const perJob = 128 // attempts; the limit is twice as many
	var leases []daemon.Lease
	for i := 0; i*perJob < uploads; i++ {
		leases = append(leases, s.claim(fmt.Sprintf("slow-%d", i), "A", long))
	}
	var mu sync.Mutex
	opened := 0
	slow := s.crowdOf(uploads, func(c net.Conn) error {
		mu.Lock()
		l := leases[opened/perJob]
		opened++
		head := spell("PUT /w HTTP/1.1\r\nHost: p\r\n{F}Content-Length: 10000000\r\n\r\n", l, fmt.Sprint("-", opened))
		mu.Unlock()
		if _, err := io.WriteString(c, head); err != nil {
			return err
		}
		_, err := c.Write(make([]byte, 8<<10)) // more than is kept in memory, so that it is streamed
		return err
	})
	s.until("all uploads are under way", func() bool {
		v, err := s.control.Metric(s.soon(), fmt.Sprintf("fenceproxy_in_flight{route=%q}", daemon.Route))
		return err == nil && int(v) == uploads
	})
	atSlow := s.burden()
	t.Logf("%d slow uploads: %.1f KiB each", uploads, (atSlow.memory-atIdle.memory)/1024/float64(uploads))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // a little of each, all the time
		defer close(stopped)
		tick := time.NewTicker(time.Second / time.Duration(max(uploads/4, 1)))
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := slow[i%uploads].Write(make([]byte, 100)); err != nil {
					s.Errorf("a slow upload was ended: %v", err)
					return
				}
			}
		}
	}()
	fast := func(crowded, alone time.Duration) bool { return crowded <= 2*alone+p99Noise }
	crowded, alone := s.compare(other, fast)
	close(stop)
	<-stopped
	t.Logf("99th percentile of honest writes: %v alone, %v beside %d idle connections and %d slow uploads", alone, crowded, n, uploads)
	if !fast(crowded, alone) {
		t.Errorf("the 99th percentile went from %v to %v", alone, crowded)
	}
	for _, c := range []net.Conn{idle[0], idle[n-1]} {
		if err := refusedOnce(c); err != nil {
			t.Errorf("an idle connection was dropped: %v", err)
		}
	}
}
