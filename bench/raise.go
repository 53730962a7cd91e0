package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/badgerstore"
)

const (
	// raiseGoal is how many times as many raises as plain Badger's at raiseWriters.
	raiseGoal    = 8.0
	raiseWriters = 64
	// tooFast for a disk: then the directory is in memory, or the disk lies.
	tooFast = 20 * time.Microsecond
)

// raiser makes the floor of writer w's job durable at generation g.
type raiser func(ctx context.Context, w int, g tokens.Generation) error

// raised is what one round showed.
type raised struct {
	perSecond []float64
	p50, p99  []time.Duration
}

// benchRaise measures floors that rise with every write, each on disk before the write
// is admitted.
func benchRaise(ctx context.Context, s settings, r *report) error {
	one, err := syncTime(s.dir)
	if err != nil {
		return err
	}
	r.progress("raise: one write of 4 KiB and sync takes %s here", micros(one))
	r.note("raise: one write of 4 KiB and sync took %s on this disk.", micros(one))
	if one < tooFast {
		r.note("raise: that is too fast for a disk. The figures of floor raises say nothing about one; choose another directory with -dir.")
	}
	for _, writers := range []int{1, raiseWriters, 256} {
		var ours, peer raised
		for range s.rounds {
			if err := errors.Join(
				raiseRound(ctx, s, writers, openOurs, &ours),
				raiseRound(ctx, s, writers, openPlain, &peer),
			); err != nil {
				return err
			}
		}
		o, p := median(ours.perSecond), median(peer.perSecond)
		r.progress("raise: %d writers: %.0f/s %s beside %.0f/s %s", writers,
			o, spread(ours.perSecond, "%.0f"), p, spread(peer.perSecond, "%.0f"))
		what := fmt.Sprintf("durable floor raises, %d writers", writers)
		mine, other, ratio := fmt.Sprintf("%.0f/s", o), fmt.Sprintf("%.0f/s", p), times(o/p)
		if writers == raiseWriters {
			r.judge(what, mine, other, ratio, fmt.Sprintf(">= %.0fx", raiseGoal), o/p >= raiseGoal)
		} else {
			r.add(what, mine, other, ratio)
		}
		op, pp := median(ours.p50), median(peer.p50)
		r.add("  p50", micros(op), micros(pp), times(float64(op)/float64(pp)))
		op, pp = median(ours.p99), median(peer.p99)
		r.add("  p99", micros(op), micros(pp), times(float64(op)/float64(pp)))
	}
	r.note("raise: beside it stands Badger with the same options, where each write is one transaction with one sync; it only overwrites, while ours reads, compares, and detects a damaged log. Every writer has a job of its own, and waits for one raise before it begins the next; HTTP is not in it.")
	return nil
}

// raiseRound opens a fresh store, has the writers raise for the window, and closes it.
func raiseRound(ctx context.Context, s settings, writers int, open func(context.Context, string, int) (raiser, func() error, error), into *raised) (err error) {
	dir, err := os.MkdirTemp(s.dir, "store-")
	if err != nil {
		return fmt.Errorf("make store directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	raise, closeStore, err := open(ctx, filepath.Join(dir, "data"), writers)
	if err != nil {
		return err
	}
	took := make([][]time.Duration, writers)
	errs := make([]error, writers)
	var wg sync.WaitGroup
	began := time.Now()
	for w := range writers {
		wg.Go(func() {
			for g := tokens.Generation(1); time.Since(began) < s.window && ctx.Err() == nil; g++ {
				start := time.Now()
				if errs[w] = raise(ctx, w, g); errs[w] != nil {
					return
				}
				took[w] = append(took[w], time.Since(start))
			}
		})
	}
	wg.Wait()
	seconds := time.Since(began).Seconds()
	if err := errors.Join(append(errs, ctx.Err(), closeStore())...); err != nil {
		return err
	}
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	into.perSecond = append(into.perSecond, float64(len(all))/seconds)
	into.p50, into.p99 = append(into.p50, quantile(all, 0.5)), append(into.p99, quantile(all, 0.99))
	return nil
}

func jobOf(w int) tokens.Job { return tokens.Job{ID: fmt.Sprintf("tenant/42/job-%06d", w)} }

// openOurs raises as a write of a newer generation does.
func openOurs(ctx context.Context, dir string, writers int) (raiser, func() error, error) {
	s, err := badgerstore.Open(badgerstore.Options{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	a, err := tokens.NewAuthority(ctx, s, tokens.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	attempts := make([]tokens.Attempt, writers)
	return func(ctx context.Context, w int, g tokens.Generation) error {
		at := &attempts[w]
		at.Job, at.Generation, at.Cutter = jobOf(w), g, idle{}
		return write(ctx, a, at)
	}, s.Close, nil
}

// openPlain raises as a program would that keeps its floors in Badger.
func openPlain(_ context.Context, dir string, _ int) (raiser, func() error, error) {
	db, err := badger.Open(badgerstore.BadgerOptions(dir, slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, nil, fmt.Errorf("open badger: %w", err)
	}
	return func(_ context.Context, w int, g tokens.Generation) error {
		value, err := tokens.EncodeRecord(tokens.Record{Floor: g, Seen: g, RaisedAt: time.Now().UnixMilli()})
		if err != nil {
			return err
		}
		return db.Update(func(txn *badger.Txn) error { return txn.Set([]byte(jobOf(w).ID), value) })
	}, db.Close, nil
}

// syncTime is the median of what one small durable write takes in dir.
func syncTime(dir string) (time.Duration, error) { return timeSyncs(dir, 0) }

// appendTime is that of one that makes the file longer, as the next page of a log does.
func appendTime(dir string) (time.Duration, error) { return timeSyncs(dir, 1) }

// timeSyncs writes a page after the other, so many pages further on each time.
func timeSyncs(dir string, pages int64) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, fmt.Errorf("measure disk: %w", err)
	}
	defer func() { _ = f.Close() }() // removed with dir
	page := make([]byte, 4<<10)
	var took []time.Duration
	for n := range int64(200) {
		start := time.Now()
		if _, err := f.WriteAt(page, n*pages*int64(len(page))); err != nil {
			return 0, fmt.Errorf("measure disk: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("measure disk: %w", err)
		}
		took = append(took, time.Since(start))
	}
	return median(took), nil
}
