package tokenstest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func loadMutants() []broken {
	return []broken{
		{"returns stale loads", breed(func(x *mutant) {
			var mu sync.Mutex
			cache := make(map[tokens.Job]tokens.Snapshot)
			x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
				mu.Lock()
				defer mu.Unlock()
				if old, ok := cache[job]; ok {
					return old, nil
				}
				snap, err := m.Load(ctx, job)
				cache[job] = snap
				return snap, err
			}
		}), "LoadReturnsTheNewestCommit"},
		{"makes a job when it is looked at", breed(func(x *mutant) {
			x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
				snap, err := m.Load(ctx, job)
				if err == nil && snap.Version == 0 {
					_, err = m.Commit(ctx, tokens.Change{Job: job, Record: sample(1)})
				}
				return snap, err
			}
		}), "ListOfAnEmptyStoreIsEmpty"},
		{"answers version one for an absent job", breed(func(x *mutant) {
			x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
				snap, err := m.Load(ctx, job)
				snap.Version = max(snap.Version, 1)
				return snap, err
			}
		}), "LoadOfAnAbsentJobIsVersionZero"},
		{"forgets a field", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				c.Record.RaisedBy = ""
				return m.Commit(ctx, c)
			}
		}), "LoadReturnsEveryField"},
		{"cuts a large result", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				if len(c.Record.Result) > 8<<10 {
					c.Record.Result = nil
				}
				return m.Commit(ctx, c)
			}
		}), "LoadReturnsALargeResult"},
		{"shares memory with its callers", breed(func(x *mutant) {
			var mu sync.Mutex
			shared := make(map[tokens.Job]tokens.Record)
			x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
				mu.Lock()
				defer mu.Unlock()
				snap, err := m.Load(ctx, job)
				snap.Record = shared[job]
				return snap, err
			}
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				mu.Lock()
				defer mu.Unlock()
				v, err := m.Commit(ctx, c)
				if err == nil {
					shared[c.Job] = c.Record
				}
				return v, err
			}
		}), "LoadedRecordsStayWhatTheyWere"},
		{"hangs when the context has ended", breed(func(x *mutant) {
			x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
				if ctx.Err() != nil {
					select {}
				}
				return m.Load(ctx, job)
			}
		}), "CallsReturnWhenTheirContextHasEnded"},
		{"tells no time", breed(func(x *mutant) {
			x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
				snap, err := m.Load(ctx, job)
				snap.Now = time.Time{}
				return snap, err
			}
		}), "LoadOfAnAbsentJobIsVersionZero"},
		{"tells a time that jumps about", breed(func(x *mutant) {
			x.load = func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error) {
				snap, err := m.Load(ctx, job)
				snap.Now = snap.Now.Add(time.Duration(rand.IntN(1000)) * time.Millisecond)
				return snap, err
			}
		}), "TimeNeverRunsBack"},
	}
}

func listMutants() []broken {
	changed := func(change func(q *tokens.ListQuery), edit func(page []tokens.Listed, q tokens.ListQuery) []tokens.Listed) func() Opener {
		return breed(func(x *mutant) {
			x.list = func(ctx context.Context, m *Memory, q tokens.ListQuery) ([]tokens.Listed, error) {
				asked := q
				change(&q)
				page, err := m.List(ctx, q)
				return edit(page, asked), err
			}
		})
	}
	as := func(*tokens.ListQuery) {}
	same := func(page []tokens.Listed, _ tokens.ListQuery) []tokens.Listed { return page }
	return []broken{
		{"lists backwards", changed(as, func(page []tokens.Listed, _ tokens.ListQuery) []tokens.Listed {
			slices.Reverse(page)
			return page
		}), "ListIsInByteOrder"},
		{"lists in dictionary order", changed(func(q *tokens.ListQuery) { q.Limit = 10000 }, func(page []tokens.Listed, q tokens.ListQuery) []tokens.Listed {
			slices.SortStableFunc(page, func(a, b tokens.Listed) int {
				return strings.Compare(strings.ToLower(a.Job.String()), strings.ToLower(b.Job.String()))
			})
			return page[:min(len(page), q.Limit)]
		}), "ListIsInByteOrder"},
		{"lists all namespaces", changed(func(q *tokens.ListQuery) {
			if q.Prefix == "" {
				q.AllNamespaces = true
			}
		}, same), "ListKeepsNamespacesApart"},
		{"ignores the prefix", changed(func(q *tokens.ListQuery) { q.Prefix = "" }, same), "ListSelectsByPrefix"},
		{"reads the prefix as a pattern", changed(func(q *tokens.ListQuery) { q.Prefix = strings.TrimRight(q.Prefix, "%_") }, same), "ListSelectsByPrefix"},
		{"ignores the limit", changed(func(q *tokens.ListQuery) { q.Limit = 10000 }, same), "ListGoesOnAfterACursor"},
		{"lists the cursor again", breed(func(x *mutant) {
			x.list = func(ctx context.Context, m *Memory, q tokens.ListQuery) ([]tokens.Listed, error) {
				page, err := m.List(ctx, q)
				if snap, loadErr := m.Load(ctx, q.After); loadErr == nil && snap.Version != 0 && q.Limit > 0 {
					page = append([]tokens.Listed{{Job: q.After, Snapshot: snap}}, page...)
					page = page[:min(len(page), q.Limit)]
				}
				return page, err
			}
		}), "ListGoesOnAfterACursor"},
		{"starts every namespace after the cursor's id", changed(func(q *tokens.ListQuery) { q.Limit = 10000 }, func(page []tokens.Listed, q tokens.ListQuery) []tokens.Listed {
			page = slices.DeleteFunc(page, func(l tokens.Listed) bool { return l.Job.ID <= q.After.ID })
			return page[:min(len(page), q.Limit)]
		}), "ListGoesOnAfterACursor"},
		{"lists records without versions", changed(as, func(page []tokens.Listed, _ tokens.ListQuery) []tokens.Listed {
			for i := range page {
				page[i].Version = 1
			}
			return page
		}), "ListCarriesRecordsAndVersions"},
	}
}
