package tokenstest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// committing breeds stores that commit something else than they are told.
func committing(change func(c *tokens.Change)) func() Opener {
	return breed(func(x *mutant) {
		x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
			c.Writes = slices.Clone(c.Writes)
			change(&c)
			return m.Commit(ctx, c)
		}
	})
}

// loading breeds stores that change what they load.
func loading(change func(w *tokens.WriteRecord)) func() Opener {
	return breed(func(x *mutant) {
		x.write = func(ctx context.Context, m *Memory, job tokens.Job, key string) (tokens.WriteRecord, error) {
			w, err := m.LoadWrite(ctx, job, key)
			if err == nil && w.State != "" {
				change(&w)
			}
			return w, err
		}
	})
}

// named breeds stores that take one key for another.
func named(key func(j tokens.Job, key string) (tokens.Job, string)) func() Opener {
	return breed(func(x *mutant) {
		x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
			if len(c.Writes) == 0 {
				return m.Commit(ctx, c)
			}
			v, err := m.Commit(ctx, tokens.Change{Job: c.Job, Expect: c.Expect, Record: c.Record})
			if err != nil {
				return v, err
			}
			m.disk.mu.Lock()
			defer m.disk.mu.Unlock()
			rows, err := encodeWrites(c)
			for name, r := range rows {
				name.job, name.key = key(name.job, name.key)
				if r.encoded == nil {
					delete(m.disk.writes, name)
				} else {
					m.disk.writes[name] = r
				}
			}
			return v, err
		}
		x.write = func(ctx context.Context, m *Memory, j tokens.Job, k string) (tokens.WriteRecord, error) {
			j, k = key(j, k)
			return m.LoadWrite(ctx, j, k)
		}
	})
}

func writeMutants() []broken {
	return []broken{
		{"answers an error for a write that is not there", breed(func(x *mutant) {
			x.write = func(ctx context.Context, m *Memory, job tokens.Job, key string) (tokens.WriteRecord, error) {
				w, err := m.LoadWrite(ctx, job, key)
				if err == nil && w.State == "" {
					err = errors.New("not found")
				}
				return w, err
			}
		}), "LoadOfAnAbsentWriteIsZero"},
		{"takes a write of any key of the job", named(func(j tokens.Job, _ string) (tokens.Job, string) { return j, "" }),
			"LoadOfAnAbsentWriteIsZero"},
		{"forgets the location", loading(func(w *tokens.WriteRecord) { w.Location = "" }), "LoadWriteReturnsEveryFieldAndTheReply"},
		{"keeps a header's first value only", loading(func(w *tokens.WriteRecord) {
			if w.Reply != nil {
				for k, v := range w.Reply.Header {
					w.Reply.Header[k] = v[:1]
				}
			}
		}), "LoadWriteReturnsEveryFieldAndTheReply"},
		{"cuts replies at 64,000 bytes", loading(func(w *tokens.WriteRecord) {
			if w.Reply != nil && len(w.Reply.Body) > 64000 {
				w.Reply.Body = w.Reply.Body[:64000]
			}
		}), "LoadWriteReturnsEveryFieldAndTheReply"},
		{"writes the writes of a commit that conflicts", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				v, err := m.Commit(ctx, c)
				if errors.Is(err, tokens.ErrConflict) {
					snap, loadErr := m.Load(ctx, c.Job)
					if loadErr != nil || snap.Version == 0 {
						return v, err
					}
					rows, encodeErr := encodeWrites(c)
					if encodeErr != nil {
						return 0, encodeErr
					}
					m.disk.mu.Lock()
					for name, r := range rows {
						if r.encoded != nil {
							m.disk.writes[name] = r
						}
					}
					m.disk.mu.Unlock()
				}
				return v, err
			}
		}), "WritesAndTheirRecordAreCommittedAllOrNone"},
		{"drops the writes of every commit but the first", committing(func(c *tokens.Change) {
			if c.Expect != 0 {
				c.Writes = nil
			}
		}), "WritesAndTheirRecordAreCommittedAllOrNone"},
		{"commits at most a hundred writes", committing(func(c *tokens.Change) {
			c.Writes = c.Writes[:min(len(c.Writes), 100)]
		}), "ManyWritesOfOneCommitAreAllThere"},
		{"purges nothing", committing(func(c *tokens.Change) {
			c.Writes = slices.DeleteFunc(c.Writes, func(w tokens.WriteChange) bool { return w.Purge })
		}), "APurgedWriteIsGoneWithItsReply"},
		{"purges the same key of every job", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				v, err := m.Commit(ctx, c)
				m.disk.mu.Lock()
				defer m.disk.mu.Unlock()
				for _, w := range c.Writes {
					for name := range m.disk.writes {
						if w.Purge && err == nil && name.key == w.Key {
							delete(m.disk.writes, name)
						}
					}
				}
				return v, err
			}
		}), "APurgedWriteIsGoneWithItsReply"},
		{"keeps the old reply when there is no new one", keepsReplies, "AWriteThatReplacesAnotherDropsItsReply"},
		{"joins job and key without a separator", named(func(j tokens.Job, key string) (tokens.Job, string) {
			return tokens.Job{Namespace: j.Namespace}, j.ID + key
		}), "WritesWithAlmostEqualNamesAreApart"},
		{"ignores namespaces of writes", named(func(j tokens.Job, key string) (tokens.Job, string) {
			return tokens.Job{ID: j.ID}, key
		}), "WritesWithAlmostEqualNamesAreApart"},
		{"ignores letter case in keys", named(func(j tokens.Job, key string) (tokens.Job, string) {
			return j, strings.ToLower(key)
		}), "WritesWithAlmostEqualNamesAreApart"},
		{"trims blanks of keys", named(func(j tokens.Job, key string) (tokens.Job, string) {
			return j, strings.TrimSpace(strings.ReplaceAll(key, " once 1 b", "b"))
		}), "WritesWithAlmostEqualNamesAreApart"},
		{"cuts keys at 254 bytes", named(func(j tokens.Job, key string) (tokens.Job, string) {
			return j, key[:min(len(key), 254)]
		}), "WritesWithAlmostEqualNamesAreApart"},
		{"keeps replies in the memory of the process", forgetsReplies, "CommittedWritesSurviveReopening"},
		{"calls a write that is too large a conflict", breed(func(x *mutant) {
			x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
				for _, w := range c.Writes {
					if w.Record.Reply != nil && len(w.Record.Reply.Body) > 32<<20 {
						return 0, tokens.ErrConflict
					}
				}
				return m.Commit(ctx, c)
			}
		}), "ACommitRefusesAWriteThatCanNotBeStored"},
		{"says that it took a write that is too large", committing(func(c *tokens.Change) {
			c.Writes = slices.DeleteFunc(c.Writes, func(w tokens.WriteChange) bool {
				return w.Record.Reply != nil && len(w.Record.Reply.Body) > 32<<20
			})
		}), "ACommitRefusesAWriteThatCanNotBeStored"},
	}
}

// keepsReplies updates replies only where there is a new one.
func keepsReplies() Opener {
	return breed(func(x *mutant) {
		x.commit = func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error) {
			old := make(map[string]*tokens.Reply)
			for _, w := range c.Writes {
				if had, err := m.LoadWrite(ctx, c.Job, w.Key); err == nil {
					old[w.Key] = had.Reply
				}
			}
			c.Writes = slices.Clone(c.Writes)
			for i := range c.Writes {
				if w := &c.Writes[i].Record; w.Reply == nil {
					w.Reply = old[c.Writes[i].Key]
				}
			}
			return m.Commit(ctx, c)
		}
	})()
}

// forgetsReplies loses what the process before has kept.
func forgetsReplies() Opener {
	return breed(func(x *mutant) {
		x.disk.mu.Lock()
		defer x.disk.mu.Unlock()
		for name, r := range x.disk.writes {
			r.reply = nil
			x.disk.writes[name] = r
		}
	})()
}

// listing breeds stores that list writes by another query, and change the page.
func listing(query func(q *tokens.WritesQuery), page func(q tokens.WritesQuery, page []tokens.ListedWrite) []tokens.ListedWrite) func() Opener {
	return breed(func(x *mutant) {
		x.writes = func(ctx context.Context, m *Memory, q tokens.WritesQuery) ([]tokens.ListedWrite, error) {
			asked := q
			if query != nil {
				query(&q)
			}
			got, err := m.ListWrites(ctx, q)
			if err == nil && page != nil {
				got = page(asked, got)
			}
			return got, err
		}
	})
}

func writeListMutants() []broken {
	type listed = tokens.ListedWrite
	return []broken{
		{"lists writes by key, then job", listing(nil, func(q tokens.WritesQuery, page []listed) []listed {
			if q.ExpiredAt == 0 && q.Job == (tokens.Job{}) {
				slices.SortStableFunc(page, func(a, b listed) int { return strings.Compare(a.Key, b.Key) })
			}
			return page
		}), "ListWritesIsInByteOrderOfJobAndKey"},
		{"lists one write more than asked for", listing(func(q *tokens.WritesQuery) { q.Limit++ }, nil), "ListWritesIsInByteOrderOfJobAndKey"},
		{"lists writes of all jobs that begin alike", breed(func(x *mutant) {
			x.writes = func(ctx context.Context, m *Memory, q tokens.WritesQuery) ([]tokens.ListedWrite, error) {
				want := q
				q.Job, q.Limit = tokens.Job{}, 1<<20
				page, err := m.ListWrites(ctx, q)
				page = slices.DeleteFunc(page, func(l listed) bool {
					return want.Job != (tokens.Job{}) && (l.Job.Namespace != want.Job.Namespace || !strings.HasPrefix(l.Job.ID, want.Job.ID))
				})
				return page[:min(len(page), want.Limit)], err
			}
		}), "ListWritesSelectsAJob"},
		{"ignores the job in a list of expired writes", listing(func(q *tokens.WritesQuery) {
			if q.ExpiredAt != 0 {
				q.Job = tokens.Job{}
			}
		}, nil), "ListWritesSelectsAJob"},
		{"takes in flight alone for open", listing(nil, func(q tokens.WritesQuery, page []listed) []listed {
			return slices.DeleteFunc(page, func(l listed) bool { return q.Open && l.Record.State == tokens.WriteUnknown })
		}), "ListWritesSelectsTheOpenOnes"},
		{"lists settled writes as open", listing(func(q *tokens.WritesQuery) { q.Open = false }, nil), "ListWritesSelectsTheOpenOnes"},
		{"leaves out what expires at the moment asked for", listing(func(q *tokens.WritesQuery) {
			if q.ExpiredAt > 1 {
				q.ExpiredAt--
			}
		}, nil), "ListWritesSelectsTheExpiredInTheirOrder"},
		{"lists expired writes by place", listing(nil, func(q tokens.WritesQuery, page []listed) []listed {
			if q.ExpiredAt != 0 {
				slices.SortFunc(page, func(a, b listed) int { return byPlace(tokens.WritesQuery{}, a, b) })
			}
			return page
		}), "ListWritesSelectsTheExpiredInTheirOrder"},
		{"begins again at the write that a list goes on after", breed(func(x *mutant) {
			x.writes = func(ctx context.Context, m *Memory, q tokens.WritesQuery) ([]tokens.ListedWrite, error) {
				page, err := m.ListWrites(ctx, q)
				if err == nil && q.After.Key != "" && len(page) == q.Limit && q.Limit > 0 {
					page = append([]listed{q.After}, page[:q.Limit-1]...)
				}
				return page, err
			}
		}), "ListWritesGoesOnAfterAnyWrite"},
		{"goes on after a time, not after a write of it", breed(func(x *mutant) {
			x.writes = func(ctx context.Context, m *Memory, q tokens.WritesQuery) ([]tokens.ListedWrite, error) {
				if q.ExpiredAt != 0 && q.After.Key != "" {
					q.After.Job, q.After.Key = tokens.Job{Namespace: "\U0010ffff"}, "\xff"
				}
				return m.ListWrites(ctx, q)
			}
		}), "ListWritesGoesOnAfterAnyWrite"},
		{"lists replies as well", breed(func(x *mutant) {
			x.writes = func(ctx context.Context, m *Memory, q tokens.WritesQuery) ([]tokens.ListedWrite, error) {
				page, err := m.ListWrites(ctx, q)
				for i := range page {
					if page[i].Record, err = m.LoadWrite(ctx, page[i].Job, page[i].Key); err != nil {
						return nil, err
					}
				}
				return page, err
			}
		}), "ListWritesLeavesRepliesAway"},
	}
}
