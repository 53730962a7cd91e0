package tokens

import "context"

// count keeps the number of jobs and leases.
func (a *Authority) count(old, new Snapshot) {
	if old.Version == 0 {
		a.jobs.Add(1)
	}
	if had, has := old.Record.Lease != nil, new.Record.Lease != nil; has && !had {
		a.held.Add(1)
	} else if had && !has {
		a.held.Add(-1)
	}
}

// census counts what the store holds.
func (a *Authority) census(ctx context.Context) error {
	q := ListQuery{AllNamespaces: true, Limit: 1000}
	for {
		page, err := a.store.List(ctx, q)
		if err != nil {
			return err
		}
		for _, l := range page {
			a.count(Snapshot{}, l.Snapshot)
		}
		if len(page) < q.Limit {
			return nil
		}
		q.After = page[len(page)-1].Job
	}
}

// Jobs returns how many jobs the store holds, and Held how many of them have a
// lease that has not ended, run out or not.
func (a *Authority) Jobs() int64 { return a.jobs.Load() }

// Held returns how many leases have not ended.
func (a *Authority) Held() int64 { return a.held.Load() }
