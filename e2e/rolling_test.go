package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/oracle"
)

const (
	rollWorkers = 24
	rollClerks  = 8
	rollRound   = 900 * time.Millisecond // of load between two restarts
)

// TestARollingRestartUnderLoadLosesNothing replaces the proxy again and again, in an orderly way and behind a balancer, while
// workers claim, stall and write, and while clerks work through lists of keyed writes. Between the restarts the configuration
// is reloaded. The number of restarts is FENCEPROXY_SOAK_ROLLS, 3 by default.
func TestARollingRestartUnderLoadLosesNothing(t *testing.T) {
	rolls := fromEnv(t, "FENCEPROXY_SOAK_ROLLS", 3)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := open(t, "body: {buffer: 4KiB}", "takeover: {wait: 300ms}", "timeout: 5s")
	s.up.ForgetHeaders()
	data, control := newBalancer(t, s.proxy.DataAddr()), newBalancer(t, strings.TrimPrefix(s.proxy.ControlURL(), "http://"))
	writer, api := daemon.NewWriter(data.url()).KeepAlive(), daemon.NewControl(control.url())
	defer writer.Close()
	defer api.Close()

	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rolls)*patience)
	defer cancel()
	stop, enough := context.WithCancel(ctx)
	defer enough()
	l := newLoad(rollWorkers, 100, seed)
	l.tireless = true
	clerks := make([]*clerk, rollClerks)
	var all sync.WaitGroup
	all.Go(func() { l.run(ctx, stop, api, writer) })
	for i := range clerks {
		clerks[i] = &clerk{load: l, job: fmt.Sprintf("list-%d", i)}
		all.Go(func() { clerks[i].work(ctx, stop, api, writer) })
	}
	for roll := range rolls {
		s.roll(roll, data, control)
	}
	enough()
	all.Wait()
	s.judge(l, rolls)

	// An orderly end answers whatever it has begun, so a caller without an answer knows that nothing was begun.
	unanswered := 0
	for _, a := range l.answers {
		if a.Status != 0 {
			continue
		}
		unanswered++
		if seen := s.up.Seen(a.ID); len(seen) > 0 {
			t.Errorf("write %q has no answer (%s), and the upstream saw it: %+v", a.ID, a.Failure, seen)
		}
	}
	executed := make(map[string]int)
	for _, r := range s.up.Records() {
		if r.Executed && r.Key != "" {
			executed[r.Job+" "+r.Key]++
		}
	}
	done, tries, replays := 0, 0, 0
	for _, c := range clerks {
		c.check(t, executed)
		done, tries, replays = done+c.done, tries+c.tries, replays+c.replays
	}
	t.Logf("%d restarts: %d requests at the upstream, %d writes sent, %d applied, %d refused as stale, %d without an answer and unseen; clerks did %d keyed writes in %d tries, and were told %d replays",
		rolls, len(s.up.Records()), len(l.answers), l.applied, l.stale, unanswered, done, tries, replays)
	if l.stale == 0 || l.applied == 0 || done < rolls*rollClerks {
		t.Error("the load was too tame to prove anything")
	}
}

// roll lets the load run, reloads twice in the midst of it, and replaces the proxy.
func (s *stage) roll(roll int, data, control *balancer) {
	s.Helper()
	before := len(s.up.Records())
	third := time.NewTicker(rollRound / 3)
	defer third.Stop()
	for i := range 2 {
		<-third.C
		s.reload(func(c *daemon.Settings) {
			c.Route[len(c.Route)-1] = fmt.Sprintf("timeout: %ds", 5+(roll+i)%2)
		})
	}
	<-third.C
	s.proxy.Signal(syscall.SIGTERM)
	if code := s.proxy.Wait(); code != 0 {
		s.Fatalf("roll %d: exit code %d, want 0", roll, code)
	}
	if logs := s.proxy.Logs(); strings.Contains(logs, `"clean":false`) {
		s.Fatalf("roll %d: the drain broke writes off", roll)
	}
	s.restart()
	data.direct(s.proxy.DataAddr())
	control.direct(strings.TrimPrefix(s.proxy.ControlURL(), "http://"))
	if seen := len(s.up.Records()) - before; seen == 0 {
		s.Fatalf("roll %d: no write reached the upstream: the roll proves nothing", roll)
	}
}

// clerk works through a list of keyed writes under one lease. It does not go on to the next before it knows that the last one
// was done, and it repeats whatever it does not know.
type clerk struct {
	load *load
	job  string

	tries, replays, done int
	// wrong is what no orderly restart may tell a clerk.
	wrong []string
	at    string // the key under way
}

func (c *clerk) work(ctx, stop context.Context, api *daemon.Control, writer *daemon.Writer) {
	var l daemon.Lease
	for l.Generation == 0 && stop.Err() == nil {
		r, err := api.Claim(ctx, c.job, "clerk", long, daemon.Fields{"claim_id": c.job})
		if err == nil && (r.Status == 201 || r.Status == 200) {
			l = r.Lease()
		}
	}
	for n := 0; stop.Err() == nil; n++ {
		c.at = fmt.Sprintf("entry-%d", n)
		if !c.write(ctx, writer, l) {
			return
		}
		c.done++
		// A restart shortens no lease.
		if r, err := api.Renew(ctx, l, nil); err == nil && (r.Status != 200 || r.Flag("lapsed")) {
			c.wrong = append(c.wrong, fmt.Sprintf("renewal: %d %s", r.Status, r.Raw))
		}
	}
}

// write sends the entry under way until its outcome is known. A clerk that has begun ends only with that.
func (c *clerk) write(ctx context.Context, writer *daemon.Writer, l daemon.Lease) bool {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for try := 0; ctx.Err() == nil; try++ {
		w := daemon.Write{Job: l.Job, Generation: l.Generation, Lease: l.ID, Key: c.at, Do: "delay=20ms", Body: []byte(c.at),
			ID: fmt.Sprintf("%s-%s-%d", c.job, c.at, try)}
		note := oracle.Answer{ID: w.ID, Job: w.Job, Generation: w.Generation, Key: w.Key, Start: time.Now()}
		a, err := writer.Send(ctx, w)
		note.End = time.Now()
		if err == nil {
			note.Status, note.Decision, note.Reason, note.Outcome = a.Status, a.Decision(), a.Reason(), a.Outcome()
		} else {
			note.Failure = err.Error()
		}
		c.load.note(note)
		c.tries++
		switch {
		case err == nil && a.Status == 200 && a.Outcome() == "applied":
			if a.Decision() == "replayed" {
				c.replays++
			}
			return true
		case err != nil, a.Reason() == "overloaded", a.Reason() == "write-in-progress":
		default:
			c.wrong = append(c.wrong, w.ID+": "+show(a))
			return false
		}
		<-pause.C
	}
	return false
}

// check holds what the clerk believes against how often each key was executed.
func (c *clerk) check(t *testing.T, executed map[string]int) {
	t.Helper()
	for _, w := range c.wrong {
		t.Errorf("the clerk of %s was told what it should not hear: %s", c.job, w)
	}
	for n := range c.done {
		if got := executed[fmt.Sprintf("%s entry-%d", c.job, n)]; got != 1 {
			t.Errorf("entry %d of %s was executed %d times", n, c.job, got)
		}
	}
}
