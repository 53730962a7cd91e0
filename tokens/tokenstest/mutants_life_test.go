package tokenstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// renamed stores every job under another name.
func renamed(name func(tokens.Job) tokens.Job) func() Opener {
	return breed(func(x *mutant) {
		x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
			return m.Load(ctx, name(job))
		}
		x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
			c.Job = name(c.Job)
			return m.Commit(ctx, c)
		}
	})
}

func nameMutants() []broken {
	ids := func(f func(string) string) func() Opener {
		return renamed(func(j tokens.Job) tokens.Job { return tokens.Job{Namespace: j.Namespace, ID: f(j.ID)} })
	}
	return []broken{
		{"ignores letter case", ids(strings.ToLower), "NamesThatAreAlmostEqualAreDifferentJobs"},
		{"decodes an escaped slash", ids(func(s string) string { return strings.ReplaceAll(s, "%2F", "/") }), "NamesThatAreAlmostEqualAreDifferentJobs"},
		{"cuts ids at 255 bytes", ids(func(s string) string { return s[:min(len(s), 255)] }), "NamesThatAreAlmostEqualAreDifferentJobs"},
		{"cleans paths", ids(func(s string) string { return strings.ReplaceAll(s, "a/../", "") }), "NamesThatAreAlmostEqualAreDifferentJobs"},
		{"mixes namespaces", renamed(func(j tokens.Job) tokens.Job { return tokens.Job{ID: j.ID} }), "NamespacesNeverShareAJob"},
		{"joins namespace and id with a slash", renamed(func(j tokens.Job) tokens.Job { return tokens.Job{ID: j.Namespace + "/" + j.ID} }), "NamespacesNeverShareAJob"},
		{"joins namespace and id with nothing", renamed(func(j tokens.Job) tokens.Job { return tokens.Job{ID: j.Namespace + j.ID} }), "NamespacesNeverShareAJob"},
	}
}

func lifeMutants() []broken {
	return []broken{
		{"forgets everything when it is closed", func() Opener {
			m := NewMemory(nil)
			return OpenFunc(func(testing.TB) tokens.Store {
				clear(m.disk.rows)
				return m.Reopen()
			})
		}, "CommittedRecordsSurviveReopening"},
		{"loses the last commit when it is closed", breed(func(x *mutant) {
			var mu sync.Mutex
			var last tokens.Job
			var was row
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				mu.Lock()
				defer mu.Unlock()
				m.disk.mu.Lock()
				before := m.disk.rows[c.Job]
				m.disk.mu.Unlock()
				v, err := m.Commit(ctx, c)
				if err == nil {
					last, was = c.Job, before
				}
				return v, err
			}
			x.close = func(m *Memory) error {
				m.Crash()
				mu.Lock()
				defer mu.Unlock()
				if last.ID != "" {
					m.disk.rows[last] = was
				}
				return nil
			}
		}), "TheLastCommitSurvivesReopening"},
		{"is another store after reopening", breed(func(x *mutant) {
			id := fmt.Sprintf("%08x", rand.Uint32())
			x.info = func(i tokens.Info) tokens.Info { i.ID = id; return i }
		}), "InfoIsTheSameAfterReopening"},
		{"raises its epoch when it is opened", func() Opener {
			m := NewMemory(nil)
			epoch := uint32(0)
			return OpenFunc(func(testing.TB) tokens.Store {
				epoch++
				m.Configure(true, epoch)
				return m.Reopen()
			})
		}, "InfoIsTheSameAfterReopening"},
		{"has a dot in its id", breed(func(x *mutant) {
			x.info = func(i tokens.Info) tokens.Info { i.ID = "a.b"; return i }
		}), "InfoNamesTheStoreInAFormThatFitsAHeader"},
		{"does not say when it was opened", breed(func(x *mutant) {
			x.info = func(i tokens.Info) tokens.Info { i.Opened = time.Time{}; return i }
		}), "InfoSaysWhenAnExclusiveStoreWasOpened"},
		{"follows the wall clock back", func() Opener {
			w := newWalled()
			return &bred{walled: w, open: func(testing.TB) tokens.Store {
				x := &mutant{Memory: w.Reopen()}
				x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
					snap, err := m.Load(ctx, job)
					snap.Now = m.disk.wall()
					return snap, err
				}
				return x
			}}
		}, "TimeDoesNotFollowAStepBackOfTheWallClock"},
		{"starts its clock anew when it is reopened", func() Opener {
			m := NewMemory(nil)
			return OpenFunc(func(testing.TB) tokens.Store {
				x := &mutant{Memory: m.Reopen()}
				opened := time.Now()
				x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
					snap, err := m.Load(ctx, job)
					snap.Now = time.Unix(1, 0).Add(time.Since(opened))
					return snap, err
				}
				return x
			})
		}, "TimeNeverRunsBackAcrossReopening"},
		{"acknowledges before it writes", acknowledgesEarly, "CloseWaitsForCommitsUnderWay"},
		{"writes after it was closed", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				m.gone.Store(false)
				return m.Commit(ctx, c)
			}
		}), "AClosedStoreTakesNoCommits"},
		{"hides that it was closed", breed(func(x *mutant) { x.err = func(*Memory) error { return nil } }), "AClosedStoreTakesNoCommits"},
		{"is always sick", breed(func(x *mutant) { x.err = func(*Memory) error { return errInjected } }), "AnOpenStoreHasNoError"},
		{"loses one job of many", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				v, err := m.Commit(ctx, c)
				if err == nil && strings.HasSuffix(c.Job.ID, "-17") {
					m.disk.mu.Lock()
					delete(m.disk.rows, c.Job)
					m.disk.mu.Unlock()
				}
				return v, err
			}
		}), "ConcurrentCommitsOfManyJobsAllCount"},
	}
}

// acknowledgesEarly keeps the last three new records in memory, and Close forgets them.
func acknowledgesEarly() Opener {
	m := NewMemory(nil)
	return OpenFunc(func(testing.TB) tokens.Store {
		x := &mutant{Memory: m.Reopen()}
		var mu sync.Mutex
		var pending []tokens.Change
		x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
			mu.Lock()
			defer mu.Unlock()
			if err := m.Err(); err != nil {
				return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, err)
			}
			pending = append(pending, c)
			if len(pending) > 3 {
				if _, err := m.Commit(ctx, pending[0]); err != nil {
					return 0, err
				}
				pending = pending[1:]
			}
			return 1, nil
		}
		return x
	})
}
