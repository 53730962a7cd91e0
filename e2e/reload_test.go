package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/upstream"
)

// another is a second recording upstream.
func another(t *testing.T) *upstream.Server {
	t.Helper()
	up, err := upstream.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	return up
}

// reload insists that the proxy takes its changed file over.
func (s *stage) reload(change func(*daemon.Settings)) {
	s.Helper()
	s.proxy.Configure(change)
	if line, ok := s.proxy.Reload(); !ok {
		s.Fatalf("the reload was refused: %s", line)
	}
}

func TestAWriteUnderWayOverAReloadEndsBeforeANewerGenerationIsSentAnywhere(t *testing.T) {
	t.Parallel()
	s := open(t)
	second := another(t)
	a := s.claim("job", "A", brief)
	older := s.start(keyed(a, "k", "older", "hang"))
	s.arrives("older")
	s.reload(func(c *daemon.Settings) { c.Upstream = second.URL() })
	b := s.takeOver("job", "B", long)
	newer := s.start(write(b, "newer", ""))
	s.staysAwayFrom(second, "newer")
	s.up.Release("older")
	s.forwarded(older.answer(), 200, "applied")
	s.forwarded(newer.answer(), 200, "applied")
	if second.Executed("newer") != 1 || s.up.Executed("newer") != 0 {
		t.Error("the newer write did not take the new way")
	}
	// The key belongs to the job, whatever the way: what was done is not done again.
	s.replayed(s.send(keyed(b, "k", "again", "hang")), older.a)
}

func TestABadFileLeavesTheRunningConfiguration(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", long)
	s.proxy.WriteConfig("listen: 127.0.0.1:0\nroutes:\n  - name: test\n    upstrem: http://127.0.0.1:1\n")
	line, ok := s.proxy.Reload()
	if ok || !strings.Contains(line, "fenceproxy.yaml:4:5: routes[0].upstrem: ") || !strings.Contains(line, "did you mean upstream?") {
		t.Errorf("the log says %s", line)
	}
	s.forwarded(s.send(write(a, "w", "")), 200, "applied")
	s.metricIs(`fenceproxy_config_reloads_total{result="refused"}`, 1)
	s.reload(func(c *daemon.Settings) { c.Route = []string{"idempotency: {key: required}"} })
	s.refused(s.send(write(a, "no key", "")), 400, "key-required")
	s.metricIs(`fenceproxy_config_reloads_total{result="ok"}`, 1)
}

func TestAReloadSignalDuringADrainDoesNotEndTheProxy(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", long)
	w := s.start(write(a, "w", "hang"))
	s.arrives("w")
	s.proxy.Signal(syscall.SIGTERM)
	s.draining()
	if line, ok := s.proxy.Reload(); ok || !strings.Contains(line, "draining") {
		t.Errorf("the log says %s", line)
	}
	s.up.Release("w")
	s.forwarded(w.answer(), 200, "applied")
	if code := s.proxy.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// metricIs checks one series. What is counted behind an answer may come a moment after it.
func (s *stage) metricIs(series string, want float64) {
	s.Helper()
	s.until(fmt.Sprintf("%s is %v", series, want), func() bool {
		got, err := s.control.Metric(s.soon(), series)
		if err != nil || got > want {
			s.Fatalf("%s is %v, %v, want %v", series, got, err, want)
		}
		return got == want
	})
}

// logged waits until the proxy's log, which comes through a pipe, has a text so many times.
func (s *stage) logged(text string, times int) {
	s.Helper()
	s.until(fmt.Sprintf("the log says %s", text), func() bool {
		n := strings.Count(s.proxy.Logs(), text)
		if n > times {
			s.Fatalf("the log says %s %d times, want %d", text, n, times)
		}
		return n == times
	})
}
