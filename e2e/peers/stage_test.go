//go:build linux

package peers_test

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

const (
	patience = 30 * time.Second // for what must happen
	glance   = 250 * time.Millisecond
	long     = time.Hour
	brief    = 60 * time.Millisecond // a lease that is meant to run out
)

// stage is one proxy between the valve and the programs.
type stage struct {
	*testing.T
	valve   *valve
	proxy   *daemon.Daemon
	control *daemon.Control
	home    string // of the programs
}

// open starts a proxy before a valve. Route lines are added to the route.
func open(t *testing.T, v *valve, route ...string) *stage {
	t.Helper()
	return openWith(t, v, daemon.Settings{Route: route})
}

func openWith(t *testing.T, v *valve, settings daemon.Settings) *stage {
	t.Helper()
	if settings.Upstream == "" {
		settings.Upstream = v.URL()
	}
	s := &stage{T: t, valve: v, proxy: daemon.Start(t, settings), home: t.TempDir()}
	s.control = s.proxy.Control()
	t.Cleanup(s.control.Close)
	return s
}

// soon is a context for what must happen.
func (s *stage) soon() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}

// claim gets a lease that runs out at once and that nobody renews: its holder goes on all the same, until somebody takes
// over.
func (s *stage) claim(job, owner string) daemon.Lease {
	s.Helper()
	return s.claimFor(job, owner, brief)
}

// takeOver gets the next generation as soon as the lease before has run out.
func (s *stage) takeOver(job, owner string) daemon.Lease {
	s.Helper()
	return s.claimFor(job, owner, long)
}

func (s *stage) claimFor(job, owner string, ttl time.Duration) daemon.Lease {
	s.Helper()
	r, err := s.control.Claim(s.soon(), job, owner, ttl, daemon.Fields{"wait_ms": patience.Milliseconds()})
	if err != nil {
		s.Fatalf("no answer of the control listener: %v", err)
	}
	if r.Status != http.StatusCreated {
		s.Fatalf("the claim was answered %d %s", r.Status, r.Raw)
	}
	return r.Lease()
}

// metric reads a series, 0 if there is none.
func (s *stage) metric(series string) float64 {
	s.Helper()
	v, err := s.control.Metric(s.soon(), series)
	if err != nil {
		s.Fatal(err)
	}
	return v
}

// refusedStale is how many requests were refused because their generation is over.
func (s *stage) refusedStale() float64 {
	s.Helper()
	return s.metric(`fenceproxy_rejections_total{code="stale-generation",route="test"}`)
}

// until polls what another process must bring about.
func (s *stage) until(what string, done func() bool) {
	s.Helper()
	until(s.T, what, done)
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(limit) {
			t.Fatalf("waited %v in vain until %s", patience, what)
		}
		<-tick.C
	}
}

// staysAway watches for a moment that no request of this kind passes the valve besides those that have. The moment is the
// subject: there is no event to wait for.
func (s *stage) staysAway(line string, passed int) {
	s.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(glance); time.Now().Before(end); <-tick.C {
		if n := s.valve.count(line); n != passed {
			s.Fatalf("%d requests %q reached the server, want %d as yet", n, line, passed)
		}
	}
}

// atRest waits until nothing passes the valve any more, as do frames that belong to no request, and returns how many bytes have.
func (s *stage) atRest() (bytes int64) {
	s.Helper()
	last, since := int64(-1), time.Now()
	s.until("nothing passes any more", func() bool {
		if bytes = s.valve.passed(); bytes != last {
			last, since = bytes, time.Now()
		}
		return time.Since(since) >= glance
	})
	return bytes
}

// standsStill watches for a moment that no byte more than these reaches the server.
func (s *stage) standsStill(bytes int64) {
	s.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(glance); time.Now().Before(end); <-tick.C {
		if n := s.valve.passed(); n != bytes {
			s.Fatalf("%d bytes reached the server too early", n-bytes)
		}
	}
}

// fence is the environment in which a program finds a lease, as fenceproxy run gives it.
func fence(l daemon.Lease) []string {
	return []string{"FENCE_JOB_ID=" + l.Job, "FENCE_GENERATION=" + strconv.FormatUint(l.Generation, 10)}
}

// file writes a file of random bytes, and returns its path. The same seed gives the same bytes.
func file(t *testing.T, name string, size int, seed uint64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, noise(size, seed), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func noise(size int, seed uint64) []byte {
	var key [32]byte
	key[0] = byte(seed)
	b := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(b) // it always fills
	return b
}

// sum is a digest to compare with; the empty string for what is not there.
func sum(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	d := sha256.Sum256(b)
	return string(d[:])
}

// wantFile checks that a server's file is that of one worker, whole.
func wantFile(t *testing.T, got, want string) {
	t.Helper()
	if g := sum(t, got); g == "" || g != sum(t, want) {
		t.Errorf("%s is not what was sent in %s", got, want)
	}
}

// wantAbsent checks that a server has nothing under a name.
func wantAbsent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", path, err)
	}
}
