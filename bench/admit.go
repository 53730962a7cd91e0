package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

const (
	// admitGoal in nanoseconds for an admission and its settlement.
	admitGoal = 300
	hotJobs   = 10_000
)

// idle is a Cutter that has nothing to cut.
type idle struct{}

// Cut implements tokens.Cutter.
func (idle) Cut() {}

// benchAdmit measures a write whose generation is the floor already. The store plays no
// part in it, so it is the one in memory.
func benchAdmit(ctx context.Context, s settings, r *report) error {
	a, err := tokens.NewAuthority(ctx, tokenstest.NewMemory(nil), tokens.Options{MaxPerJob: 1 << 20})
	if err != nil {
		return err
	}
	jobs := make([]tokens.Job, hotJobs)
	for i := range jobs {
		jobs[i] = tokens.Job{Namespace: "payments", ID: fmt.Sprintf("tenant/42/job-%06d", i)}
		if err := write(ctx, a, &tokens.Attempt{Write: tokens.Write{Job: jobs[i], Generation: 7}, Cutter: idle{}}); err != nil {
			return err
		}
	}
	cases := []struct {
		name       string
		ours, peer func(b *testing.B)
	}{
		{"admit+gate+settle, one after the other", admitSerial(a, jobs[:1]), lookSerial(jobs[:1])},
		{"the same, parallel over 10,000 jobs", admitParallel(a, jobs), lookParallel(jobs)},
		{"the same, parallel on one job", admitParallel(a, jobs[:1]), lookParallel(jobs[:1])},
	}
	for i, c := range cases {
		var ours, peer []float64
		allocs := int64(0)
		for range s.rounds {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			o, p := testing.Benchmark(c.ours), testing.Benchmark(c.peer)
			if o.N == 0 || p.N == 0 {
				return errors.New("a benchmark failed")
			}
			ours, peer = append(ours, perOp(o)), append(peer, perOp(p))
			allocs = max(allocs, o.AllocsPerOp())
		}
		o, p := median(ours), median(peer)
		r.progress("admit: %s: %.0f ns %s, %d allocs", c.name, o, spread(ours, "%.0f"), allocs)
		what, mine, other, ratio := c.name, fmt.Sprintf("%.0f ns, %d allocs", o, allocs), fmt.Sprintf("%.0f ns", p), times(o/p)
		if i == 0 {
			r.judge(what, mine, other, ratio, fmt.Sprintf("<= %d ns, 0 allocs", admitGoal), o <= admitGoal && allocs == 0)
		} else {
			r.add(what, mine, other, ratio)
		}
	}
	r.note("admit: beside it stands one look-up in a map under one mutex, the least that a check in memory costs; header parsing, metrics and the wait for older attempts are not in it.")
	return nil
}

func perOp(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }

// write takes a write through all its stages.
func write(ctx context.Context, a *tokens.Authority, at *tokens.Attempt) error {
	if err := a.Admit(ctx, at); err != nil {
		return err
	}
	if !at.Gate() {
		return errors.New("the gate was shut")
	}
	at.SentWhole()
	a.Settle(at, tokens.Applied)
	return nil
}

func admitSerial(a *tokens.Authority, jobs []tokens.Job) func(*testing.B) {
	return func(b *testing.B) {
		ctx := context.Background()
		at := &tokens.Attempt{Write: tokens.Write{Job: jobs[0], Generation: 7}, Cutter: idle{}}
		b.ReportAllocs()
		for b.Loop() {
			if err := write(ctx, a, at); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func admitParallel(a *tokens.Authority, jobs []tokens.Job) func(*testing.B) {
	return func(b *testing.B) {
		ctx := context.Background()
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			at := &tokens.Attempt{Write: tokens.Write{Generation: 7}, Cutter: idle{}}
			for i := 0; pb.Next(); i++ {
				at.Job = jobs[i%len(jobs)]
				if err := write(ctx, a, at); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
}

// floors is the least that a fence could be.
type floors struct {
	mu sync.Mutex
	m  map[tokens.Job]tokens.Generation
}

func newFloors(jobs []tokens.Job) *floors {
	f := &floors{m: make(map[tokens.Job]tokens.Generation, len(jobs))}
	for _, j := range jobs {
		f.m[j] = 7
	}
	return f
}

func (f *floors) admits(j tokens.Job, g tokens.Generation) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return g >= f.m[j]
}

func lookSerial(jobs []tokens.Job) func(*testing.B) {
	f := newFloors(jobs)
	return func(b *testing.B) {
		for b.Loop() {
			if !f.admits(jobs[0], 7) {
				b.Fatal("refused")
			}
		}
	}
}

func lookParallel(jobs []tokens.Job) func(*testing.B) {
	f := newFloors(jobs)
	return func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				if !f.admits(jobs[i%len(jobs)], 7) {
					b.Error("refused")
					return
				}
			}
		})
	}
}
