package tokenstest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func commitMutants() []broken {
	return []broken{
		{"ignores the version", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				for {
					snap, err := m.Load(ctx, c.Job)
					if err != nil {
						return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, err)
					}
					c.Expect = snap.Version
					if v, err := m.Commit(ctx, c); !errors.Is(err, tokens.ErrConflict) {
						return v, err
					}
				}
			}
		}), "CommitOnAnOldVersionConflictsAndWritesNothing"},
		{"overwrites when it creates", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				if snap, err := m.Load(ctx, c.Job); err == nil && c.Expect == 0 {
					c.Expect = snap.Version
				}
				return m.Commit(ctx, c)
			}
		}), "CommitCreatesOnce"},
		{"creates whatever version is expected", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				if snap, err := m.Load(ctx, c.Job); err == nil && snap.Version == 0 {
					c.Expect = 0
				}
				return m.Commit(ctx, c)
			}
		}), "CommitOnAnAbsentJobNeedsVersionZero"},
		{"says conflict and writes all the same", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				v, err := m.Commit(ctx, c)
				if snap, loadErr := m.Load(ctx, c.Job); loadErr == nil && errors.Is(err, tokens.ErrConflict) {
					c.Expect = snap.Version
					if _, writeErr := m.Commit(ctx, c); writeErr != nil {
						return 0, writeErr
					}
				}
				return v, err
			}
		}), "CommitOnAnOldVersionConflictsAndWritesNothing"},
		{"calls a conflict a refusal", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				v, err := m.Commit(ctx, c)
				if errors.Is(err, tokens.ErrConflict) {
					return 0, tokens.ErrRefused
				}
				return v, err
			}
		}), "CommitCreatesOnce"},
		{"errors of no kind", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				v, err := m.Commit(ctx, c)
				if err != nil && !errors.Is(err, tokens.ErrConflict) {
					return 0, errors.New("something went wrong")
				}
				return v, err
			}
		}), "CommitRefusesARecordThatCanNotBeStored"},
		{"keeps the version when the record is the same", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				snap, err := m.Load(ctx, c.Job)
				if err == nil && snap.Version != 0 && snap.Version == c.Expect && show(snap.Record) == show(c.Record) {
					return snap.Version, nil
				}
				return m.Commit(ctx, c)
			}
		}), "CommitChangesTheVersionEachTime"},
		{"answers versions that come back", versionsComeBack, "CommitChangesTheVersionEachTime"},
		{"compares and sets in two steps", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				snap, err := m.Load(ctx, c.Job)
				if err != nil {
					return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, err)
				}
				if snap.Version != c.Expect {
					return 0, tokens.ErrConflict
				}
				time.Sleep(time.Millisecond) // another writer gets in between
				for {
					snap, err := m.Load(ctx, c.Job)
					if err != nil {
						return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, err)
					}
					c.Expect = snap.Version
					if v, err := m.Commit(ctx, c); !errors.Is(err, tokens.ErrConflict) {
						return v, err
					}
				}
			}
		}), "ConcurrentCommitsOnOneVersionHaveOneWinner"},
		{"drops every twentieth commit", breed(func(x *mutant) {
			var n atomic.Int32
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				if n.Add(1)%20 == 0 {
					if snap, err := m.Load(ctx, c.Job); err == nil && snap.Version == c.Expect {
						return c.Expect + 1, nil
					}
				}
				return m.Commit(ctx, c)
			}
		}), "ConcurrentCommitsLoseNoUpdate"},
		{"spills into the job beside it", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				v, err := m.Commit(ctx, c)
				if err == nil {
					m.disk.mu.Lock()
					defer m.disk.mu.Unlock()
					for j, r := range m.disk.rows {
						if j != c.Job {
							r.encoded = m.disk.rows[c.Job].encoded
							m.disk.rows[j] = r
							break
						}
					}
				}
				return v, err
			}
		}), "CommitOfOneJobLeavesOthersAlone"},
		{"writes although it says that the context ended first", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				v, err := m.Commit(context.WithoutCancel(ctx), c)
				if err == nil && ctx.Err() != nil {
					return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, ctx.Err())
				}
				return v, err
			}
		}), "ACommitWhoseContextEndsTellsTheTruth"},
	}
}

// versionsComeBack counts versions modulo 7.
func versionsComeBack() Opener {
	m := NewMemory(nil)
	return OpenFunc(func(testing.TB) tokens.Store {
		x := &mutant{Memory: m.Reopen()}
		short := func(v tokens.Version) tokens.Version {
			if v == 0 {
				return 0
			}
			return v%7 + 1
		}
		x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
			snap, err := m.Load(ctx, job)
			snap.Version = short(snap.Version)
			return snap, err
		}
		x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
			snap, err := m.Load(ctx, c.Job)
			if err == nil && short(snap.Version) == c.Expect {
				c.Expect = snap.Version
			}
			v, err := m.Commit(ctx, c)
			return short(v), err
		}
		return x
	})
}
