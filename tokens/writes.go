package tokens

import (
	"context"
	"fmt"
	"strings"
)

// Writes lists keyed writes, only those in the given state unless it is empty. The error
// wraps ErrStoreUnavailable.
func (a *Authority) Writes(ctx context.Context, q WritesQuery, state WriteState) ([]ListedWrite, error) {
	return a.writes(ctx, q, state, func(Job) bool { return true })
}

// WritesUnder is Writes for the jobs of a namespace whose ids begin with prefix, in the
// order of job and key. q names neither a job, nor where to go on, nor a time.
func (a *Authority) WritesUnder(ctx context.Context, namespace, prefix string, q WritesQuery, state WriteState) ([]ListedWrite, error) {
	// No key is lower: what comes after it begins with the first write under the prefix.
	q.After = ListedWrite{Job: Job{Namespace: namespace, ID: prefix}, Key: "\x01"}
	return a.writes(ctx, q, state, func(j Job) bool {
		return j.Namespace == namespace && strings.HasPrefix(j.ID, prefix)
	})
}

// writes lists writes as long as their jobs are wanted.
func (a *Authority) writes(ctx context.Context, q WritesQuery, state WriteState, wanted func(Job) bool) ([]ListedWrite, error) {
	var out []ListedWrite
	limit := q.Limit
	if limit <= 0 {
		return nil, nil
	}
	for {
		page, err := a.store.ListWrites(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("%w: list writes: %w", ErrStoreUnavailable, err)
		}
		for _, l := range page {
			if !wanted(l.Job) {
				return out, nil
			}
			q.After = l
			l.Record = a.lost(l.Record)
			if l.hidden() || state != "" && l.Record.State != state {
				continue
			}
			if out = append(out, l); len(out) == limit {
				return out, nil
			}
		}
		if len(page) < q.Limit {
			return out, nil
		}
	}
}
