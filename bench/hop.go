package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// hopGoal is the CPU time of a fenced write over that of the bare proxy.
	hopGoal        = 1.0
	hopConnections = 64
	hopBody        = 256
)

// hop is what the rounds of one proxy showed.
type hop struct {
	cpu       []float64 // microseconds per request
	perSecond []float64
	p50, p99  []time.Duration

	// What follows is only looked at if there is an upstream: batches and commits
	// of the store per request, and new connections to the upstream.
	upstream         *child
	batches, commits []float64
	connections      []int
	asked            int // connections that only asked for the number
}

// benchHop measures the real program beside a bare proxy. Upstream, load and both
// proxies are processes of their own; the proxy that is not measured is idle.
func benchHop(ctx context.Context, s settings, r *report) (err error) {
	binary, err := s.program(ctx)
	if err != nil {
		return err
	}
	var children []*child
	defer func() {
		for _, c := range children {
			err = errors.Join(err, c.stop())
		}
	}()
	keep := func(c *child, err error) (*child, error) {
		if err == nil {
			children = append(children, c)
		}
		return c, err
	}
	upstream, err := keep(serving(ctx, "role-upstream"))
	if err != nil {
		return err
	}
	peer, err := keep(serving(ctx, "role-peer", "http://"+upstream.addr))
	if err != nil {
		return err
	}
	ours, err := keep(fenceproxy(ctx, binary, s.dir, upstream.addr))
	if err != nil {
		return err
	}
	if err := fences(ctx, ours.addr); err != nil {
		return err
	}
	for _, connections := range []int{hopConnections, 1} {
		var o, p hop
		for range s.rounds {
			if err := errors.Join(hopRound(ctx, s, ours, connections, &o), hopRound(ctx, s, peer, connections, &p)); err != nil {
				return err
			}
		}
		r.hop(connections, o, p)
	}
	r.note("hop: fenced writes of one generation, %d bytes, one job per connection, over loopback and without TLS; beside it httputil.ReverseProxy with the same bounds on unused connections (%d) and a BufferPool, without fence, metrics, limits or logs.", hopBody, peerIdle)
	r.note("hop: CPU time is the proxy's process alone, user and system, in steps of 10 ms; load and upstream share the machine's processors with it, so req/s and latencies say more about the machine than about the proxy. Traces are off; floors do not rise, so the store is idle.")
	return nil
}

// program is the real program.
func (s settings) program(ctx context.Context) (string, error) {
	if s.binary != "" {
		return s.binary, nil
	}
	binary := filepath.Join(s.dir, "fenceproxy")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/fenceproxy/fenceproxy/cmd/fenceproxy").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build fenceproxy: %w\n%s", err, out)
	}
	return binary, nil
}

// hop adds the rows of one number of connections.
func (r *report) hop(connections int, o, p hop) {
	oc, pc := median(o.cpu), median(p.cpu)
	r.progress("hop: %d connections: %.1f us %s beside %.1f us %s of CPU time per write", connections,
		oc, spread(o.cpu, "%.1f"), pc, spread(p.cpu, "%.1f"))
	what := fmt.Sprintf("CPU per fenced write, %d connections", connections)
	mine, other, ratio := fmt.Sprintf("%.1f us", oc), fmt.Sprintf("%.1f us", pc), times(oc/pc)
	if connections == hopConnections {
		r.judge(what, mine, other, ratio, fmt.Sprintf("<= %.1fx", hopGoal), oc/pc <= hopGoal)
	} else {
		r.add(what, mine, other, ratio)
	}
	os, ps := median(o.perSecond), median(p.perSecond)
	r.add("  writes", fmt.Sprintf("%.0f/s", os), fmt.Sprintf("%.0f/s", ps), times(os/ps))
	ot, pt := median(o.p50), median(p.p50)
	r.add("  p50", micros(ot), micros(pt), times(float64(ot)/float64(pt)))
	ot, pt = median(o.p99), median(p.p99)
	r.add("  p99", micros(ot), micros(pt), times(float64(ot)/float64(pt)))
}

// hopRound has one load run against a proxy and notes what it cost.
func hopRound(ctx context.Context, s settings, proxy *child, connections int, into *hop, more ...string) error {
	args := append([]string{"-addr", proxy.addr, "-connections", fmt.Sprint(connections), "-size", fmt.Sprint(hopBody),
		"-warm-up", s.warmUp.String(), "-window", s.window.String()}, more...)
	load, err := self(ctx, "role-load", args...)
	if err != nil {
		return err
	}
	defer func() { _ = load.stop() }() // it has ended, or an error is on its way
	if line, err := load.line(); err != nil {
		return fmt.Errorf("start load: %w", err)
	} else if line != begun {
		return fmt.Errorf("start load: it says %q", line)
	}
	before, err := into.look(ctx, proxy)
	if err != nil {
		return err
	}
	line, err := load.line()
	if err != nil {
		return fmt.Errorf("run load: %w", err)
	}
	after, err := into.look(ctx, proxy)
	if err != nil {
		return err
	}
	var l loaded
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return fmt.Errorf("run load: it says %q: %w", line, err)
	}
	if l.Requests == 0 {
		return errors.New("run load: no write was answered")
	}
	n := float64(l.Requests)
	into.cpu = append(into.cpu, float64((after.cpu-before.cpu).Microseconds())/n)
	into.perSecond = append(into.perSecond, n/l.Seconds)
	into.p50, into.p99 = append(into.p50, l.P50), append(into.p99, l.P99)
	into.batches = append(into.batches, (after.batches-before.batches)/n)
	into.commits = append(into.commits, (after.commits-before.commits)/n)
	into.connections = append(into.connections, after.connections-before.connections)
	return nil
}

// fences makes sure that the proxy does what it is measured for: it lets a generation
// through, and refuses the one before.
func fences(ctx context.Context, addr string) error {
	for _, try := range []struct {
		generation, decision string
	}{{"8", "forwarded"}, {"7", "refused"}} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/charge", strings.NewReader("x"))
		if err != nil {
			return fmt.Errorf("make write: %w", err)
		}
		req.Header.Set("Fence-Job-Id", "bench/check")
		req.Header.Set("Fence-Generation", try.generation)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("send write: %w", err)
		}
		_ = res.Body.Close() // only the head counts
		if got := res.Header.Get("Fence-Decision"); got != try.decision {
			return fmt.Errorf("the proxy does not fence: generation %s was %q, want %s", try.generation, got, try.decision)
		}
	}
	return nil
}
