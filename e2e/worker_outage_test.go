package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// outage is how long the proxy is down: FENCEPROXY_SOAK_OUTAGE seconds, 4 by default. The leases are measured by it, so
// that 10 is the case of a lease of 30 s that outlives it and of one of 5 s that does not. More than 14 is beyond patience.
func outage(t *testing.T) time.Duration {
	t.Helper()
	return time.Duration(fromEnv(t, "FENCEPROXY_SOAK_OUTAGE", 4)) * time.Second
}

// downs are the ways in which a proxy goes down.
var downs = map[string]func(*daemon.Daemon){
	"stopped": func(d *daemon.Daemon) { d.Stop() },
	"killed":  (*daemon.Daemon).Kill,
}

// openToStay is open with addresses that outlive a restart: a worker knows no others.
func openToStay(t *testing.T) *stage {
	t.Helper()
	return openWith(t, daemon.Settings{Env: []string{
		"FENCEPROXY_LISTEN=" + ownAddress(t), "FENCEPROXY_CONTROL_LISTEN=" + ownAddress(t),
	}})
}

// ownAddress is a free address. Where all of 127.0.0.0/8 is loopback it stays free: nobody else takes this host.
func ownAddress(t *testing.T) string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	lis, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	if err := lis.Close(); err != nil {
		t.Fatal(err)
	}
	return lis.Addr().String()
}

func TestWorkerKeepsItsGenerationWhenTheProxyIsDownForAThirdOfItsLease(t *testing.T) {
	t.Parallel()
	length := outage(t)
	for name, down := range downs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Where a start takes long the outage does so too, and the lease has to be longer.
			for ttl := 3 * length; !keepsItsGeneration(t, down, length, ttl); ttl *= 2 {
			}
		})
	}
}

// keepsItsGeneration plays an outage of a length within a lease. It returns false if the outage became too long for it.
func keepsItsGeneration(t *testing.T, down func(*daemon.Daemon), length, ttl time.Duration) bool {
	t.Helper()
	s := openToStay(t)
	w := s.hire("worker", "", ttl)
	first := w.claims("job")
	w.writes("before")
	// Just before the renewal is due the outage hurts most. Jitter takes a tenth of the third off.
	s.until("the renewal is nearly due", func() bool {
		return first.LeftMS-w.does("state").LeftMS > (ttl/3).Milliseconds()*85/100
	})
	down(s.proxy)
	begin, uncertain := time.Now(), false
	s.until("the outage is over", func() bool {
		uncertain = uncertain || w.does("state").State == "uncertain"
		return uncertain && time.Since(begin) >= length
	})
	w.order("write during")
	if got := w.hear(); got.Error == "" || got.Lost {
		t.Errorf("a write while the proxy is down: %+v", got)
	}
	s.unseen("during")
	s.restart()
	lasted := time.Since(begin)
	if lasted > ttl*45/100 {
		t.Logf("ttl %v: down for %v, which shows nothing", ttl, lasted.Round(time.Millisecond))
		return false
	}
	s.wantReply(s.reply(s.control.Claim(s.soon(), "job", "rival", long, nil)), 409, "lease-held")
	s.until("a renewal has succeeded", func() bool { return w.does("state").State == "held" })
	if got := w.does("state"); got.Generation != 1 || len(w.lost) != 0 {
		t.Errorf("%+v, %d losses", got, len(w.lost))
	}
	w.writes("after")
	t.Logf("ttl %v: down for %v, held again %v after the end of it", ttl, lasted.Round(time.Millisecond),
		(time.Since(begin) - lasted).Round(time.Millisecond))
	return true
}

func TestWorkerIsStoppedInTimeWhenTheProxyIsDownForTwiceItsLease(t *testing.T) {
	t.Parallel()
	length := outage(t)
	ttl := length / 2
	for name, down := range downs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openToStay(t)
			w := s.hire("worker", "", ttl)
			w.claims("job")
			w.writes("before")
			down(s.proxy)
			begin := time.Now() // no renewal succeeds after this
			lost := w.loses()
			if took := lost.at.Sub(begin); took > ttl || lost.Why != "expired" {
				t.Errorf("a lease of %v was believed for %v: %+v", ttl, took, lost)
			}
			s.until("the outage is over", func() bool { return time.Since(begin) >= length })
			s.restart()
			rival := s.takeOver("job", "rival", long)
			if rival.Generation != 2 {
				t.Errorf("the rival has generation %d", rival.Generation)
			}
			w.order("write late")
			if got := w.hear(); !got.Lost {
				t.Errorf("%+v", got)
			}
			w.order("raw late")
			if got := w.hear(); got.Reason != "stale-generation" {
				t.Errorf("%+v", got)
			}
			s.unseen("late")
			s.forwarded(s.send(write(rival, "rival", "")), 200, "applied")
			if len(w.lost) != 0 {
				t.Error("the loss was told twice")
			}
			t.Logf("ttl %v: down for %v, lost after %v", ttl, length, lost.at.Sub(begin).Round(time.Millisecond))
		})
	}
}
