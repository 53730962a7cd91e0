package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
)

const (
	// sweepEvery is how often keys whose retention is over are looked for.
	sweepEvery = time.Minute
	// compactFrom is how many keys a sweep must have purged for the store to be
	// asked to give their space back.
	compactFrom = 10_000
	// unknownEvery is how old a count of the unknown writes may be.
	unknownEvery = 5 * time.Second
)

// compacter is a store that can give back the space of what was purged.
type compacter interface{ Compact() error }

// sweeper forgets settled keys after their retention, by the store's clock.
type sweeper struct {
	authority *tokens.Authority
	store     tokens.Store
	metrics   *telemetry.Metrics
	log       *slog.Logger
	cancel    context.CancelFunc
	done      chan struct{}
}

func newSweeper(a *tokens.Authority, s tokens.Store, m *telemetry.Metrics, log *slog.Logger) *sweeper {
	return &sweeper{authority: a, store: s, metrics: m, log: log}
}

func (s *sweeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		t := time.NewTicker(sweepEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				s.sweep(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
}

func (s *sweeper) stop() {
	s.cancel()
	<-s.done
}

func (s *sweeper) sweep(ctx context.Context) {
	n, err := s.authority.Sweep(ctx)
	s.metrics.KeysPurged(n)
	if n > 0 {
		s.log.Info("keys purged", "keys", n)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("sweep failed", "error", err.Error())
		return
	}
	if c, ok := s.store.(compacter); ok && n >= compactFrom {
		if err := c.Compact(); err != nil {
			s.log.Warn("compact failed", "error", err.Error())
		}
	}
}

// unknownGauge counts the unknown writes, seldom enough for any number of scrapes.
type unknownGauge struct {
	authority *tokens.Authority
	mu        sync.Mutex
	taken     time.Time
	n         int
	oldest    time.Time
}

func newUnknownGauge(a *tokens.Authority) *unknownGauge { return &unknownGauge{authority: a} }

func (g *unknownGauge) read() (n, oldestSeconds float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.taken) > unknownEvery {
		ctx, cancel := context.WithTimeout(context.Background(), unknownEvery)
		defer cancel()
		if n, oldest, err := g.authority.Unknown(ctx); err == nil {
			g.n, g.oldest = n, oldest
		}
		g.taken = time.Now()
	}
	if g.n == 0 {
		return 0, 0
	}
	return float64(g.n), max(0, time.Since(g.oldest).Seconds())
}
