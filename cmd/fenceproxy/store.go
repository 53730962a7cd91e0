package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/telemetry"
	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/badgerstore"
)

// openStore opens the configured engine. It is the only switch on the engine.
func openStore(cfg *config.Config, metrics *telemetry.Metrics, log *slog.Logger) (tokens.Store, error) {
	switch cfg.Store.Engine {
	case config.EngineBadger:
		s, err := badgerstore.Open(badgerstore.Options{Dir: cfg.Store.Badger.Dir, Logger: log, ObserveBatch: metrics.StoreBatch})
		if err != nil {
			return nil, err
		}
		return &timedStore{Store: s, engine: config.EngineBadger, metrics: metrics}, nil
	}
	return nil, fmt.Errorf("open store: unknown engine %q", cfg.Store.Engine)
}

// timedStore measures a store.
type timedStore struct {
	tokens.Store
	engine  string
	metrics *telemetry.Metrics
}

// Load implements tokens.Store.
func (t *timedStore) Load(ctx context.Context, job tokens.Job) (tokens.Snapshot, error) {
	defer t.observe("load", time.Now())
	return t.Store.Load(ctx, job)
}

// Commit implements tokens.Store.
func (t *timedStore) Commit(ctx context.Context, c tokens.Change) (tokens.Version, error) {
	defer t.observe("commit", time.Now())
	return t.Store.Commit(ctx, c)
}

// List implements tokens.Store.
func (t *timedStore) List(ctx context.Context, q tokens.ListQuery) ([]tokens.Listed, error) {
	defer t.observe("list", time.Now())
	return t.Store.List(ctx, q)
}

// LoadWrite implements tokens.Store.
func (t *timedStore) LoadWrite(ctx context.Context, job tokens.Job, key string) (tokens.WriteRecord, error) {
	defer t.observe("load", time.Now())
	return t.Store.LoadWrite(ctx, job, key)
}

// ListWrites implements tokens.Store.
func (t *timedStore) ListWrites(ctx context.Context, q tokens.WritesQuery) ([]tokens.ListedWrite, error) {
	defer t.observe("list", time.Now())
	return t.Store.ListWrites(ctx, q)
}

// Compact gives back the space of what was purged, if the engine can.
func (t *timedStore) Compact() error {
	if c, ok := t.Store.(compacter); ok {
		return c.Compact()
	}
	return nil
}

func (t *timedStore) observe(operation string, began time.Time) {
	t.metrics.StoreOperation(t.engine, operation, time.Since(began).Seconds())
}
