package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// keyedGoal is the rate of keyed writes over that of unkeyed ones at
	// keyedConnections; keyedSyncs and keyedRest are what a keyed write may take
	// longer than an unkeyed one when nothing else is under way.
	keyedGoal        = 0.6
	keyedConnections = 256
	keyedSyncs       = 2
	keyedRest        = 100 * time.Microsecond
	keyedJobs        = 256
	// batchSyncs: a batch is synced in the store's log and in its sequence file.
	batchSyncs = 2
)

// benchKeyed measures the real program: writes that each have a key of their own beside
// the same writes without one, then replays beside them.
func benchKeyed(ctx context.Context, s settings, r *report) (err error) {
	one, err := appendTime(s.dir)
	if err != nil {
		return err
	}
	binary, err := s.program(ctx)
	if err != nil {
		return err
	}
	upstream, err := serving(ctx, "role-upstream")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, upstream.stop()) }()
	proxy, err := fenceproxy(ctx, binary, s.dir, upstream.addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.stop()) }()
	if err := fences(ctx, proxy.addr); err != nil {
		return err
	}
	round := 0
	for _, connections := range []int{1, 64, keyedConnections} {
		keyed, unkeyed, replayed := hop{upstream: upstream}, hop{upstream: upstream}, hop{upstream: upstream}
		for range s.rounds {
			round++
			jobs := []string{"-jobs", fmt.Sprint(keyedJobs)}
			keys := append(jobs, "-keys", fmt.Sprintf("payment-%06d", round))
			if err := errors.Join(
				hopRound(ctx, s, proxy, connections, &unkeyed, jobs...),
				hopRound(ctx, s, proxy, connections, &keyed, keys...),
				hopRound(ctx, s, proxy, connections, &replayed, append(keys, "-replay")...),
			); err != nil {
				return err
			}
		}
		r.keyed(connections, one, keyed, unkeyed)
		r.replayed(connections, replayed, unkeyed)
	}
	r.note("keyed: each write has a key of its own and %d bytes, over %d jobs of one generation; beside it the same without keys, which costs the store nothing. A keyed write is two commits, one before its first byte goes out and one after the reply; commits that wait at the same time share a batch, and a batch is %d fsyncs side by side.", hopBody, keyedJobs, batchSyncs)
	r.note("keyed: replays repeat the keys just used, one for each job; none may reach the store's log or open a connection. Appending 4 KiB to a file and syncing it took %s.", micros(one))
	return nil
}

// keyed adds the rows of one number of connections.
func (r *report) keyed(connections int, sync time.Duration, k, u hop) {
	ks, us := median(k.perSecond), median(u.perSecond)
	kt, ut := median(k.p50), median(u.p50)
	r.progress("keyed: %d connections: %.0f/s %s beside %.0f/s %s", connections,
		ks, spread(k.perSecond, "%.0f"), us, spread(u.perSecond, "%.0f"))
	what, mine, other := fmt.Sprintf("keyed writes, %d connections", connections), fmt.Sprintf("%.0f/s", ks), fmt.Sprintf("%.0f/s", us)
	if connections == keyedConnections {
		r.judge(what, mine, other, times(ks/us), fmt.Sprintf(">= %.1fx", keyedGoal), ks/us >= keyedGoal)
	} else {
		r.add(what, mine, other, times(ks/us))
	}
	what, mine, other = "  p50", micros(kt), micros(ut)
	if most := keyedSyncs*sync + keyedRest; connections == 1 {
		r.judge(what, mine, other, "+"+micros(kt-ut), fmt.Sprintf("<= +%s (%d fsyncs and %s)", micros(most), keyedSyncs, micros(keyedRest)), kt-ut <= most)
	} else {
		r.add(what, mine, other, times(float64(kt)/float64(ut)))
	}
	kt, ut = median(k.p99), median(u.p99)
	r.add("  p99", micros(kt), micros(ut), times(float64(kt)/float64(ut)))
	r.add("  CPU per write", fmt.Sprintf("%.1f us", median(k.cpu)), fmt.Sprintf("%.1f us", median(u.cpu)), times(median(k.cpu)/median(u.cpu)))
	batches, commits := median(k.batches), median(k.commits)
	r.add("  fsyncs per write", fmt.Sprintf("%.3f", batchSyncs*batches), fmt.Sprintf("%.3f", batchSyncs*median(u.batches)), "")
	r.add("  batches per write", fmt.Sprintf("%.3f", batches), fmt.Sprintf("%.3f", median(u.batches)), "")
	r.add("  commits per batch", fmt.Sprintf("%.1f", commits/batches), "", "")
}

// replayed adds the row of replays. What the load wrote first is not in it.
func (r *report) replayed(connections int, p, u hop) {
	ps, us := median(p.perSecond), median(u.perSecond)
	batches, opened := 0.0, 0
	for i := range p.batches {
		batches, opened = max(batches, p.batches[i]), max(opened, p.connections[i])
	}
	r.judge("  replays", fmt.Sprintf("%.0f/s", ps), fmt.Sprintf("%.0f/s", us), times(ps/us),
		fmt.Sprintf("no batch and no connection; %.0f and %d", batches, opened), batches == 0 && opened == 0)
}

// cost is what a process has used so far.
type cost struct {
	cpu              time.Duration
	batches, commits float64
	connections      int
}

// look reads what the proxy has cost so far.
func (h *hop) look(ctx context.Context, proxy *child) (c cost, err error) {
	if h.upstream != nil {
		text, err := get(ctx, "http://"+proxy.control+"/metrics")
		if err != nil {
			return c, err
		}
		for name, into := range map[string]*float64{"fenceproxy_store_batch_size_count": &c.batches, "fenceproxy_store_batch_size_sum": &c.commits} {
			if *into, err = sample(text, name); err != nil {
				return c, err
			}
		}
		if text, err = get(ctx, "http://"+h.upstream.addr+"/"); err != nil {
			return c, err
		}
		if c.connections, err = strconv.Atoi(text); err != nil {
			return c, fmt.Errorf("read connections: %w", err)
		}
		h.asked++
		c.connections -= h.asked // those that only asked
	}
	c.cpu, err = proxy.cpu()
	return c, err
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", url, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", url, err)
	}
	defer func() { _ = res.Body.Close() }() // it was only read
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", url, err)
	}
	return string(b), nil
}

// sample returns the value of a metric without labels in the text format.
func sample(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("read metrics: %s is not there", name)
}
