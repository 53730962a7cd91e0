package tokens

import "context"

// Watch judges a write whose body has not been received yet, so that a stale one is
// refused before its body is read, and has it cut when it becomes stale meanwhile.
// Nothing waits for it. End it with Unwatch or Admit. The error is a *Refusal or
// wraps ErrStoreUnavailable.
func (a *Authority) Watch(ctx context.Context, at *Attempt) (err error) {
	defer func() {
		if err != nil {
			a.forget(at.Job)
		}
	}()
	checkedLive := false
	for {
		s := a.shardOf(at.Job)
		s.mu.Lock()
		j := s.jobs[at.Job]
		if j != nil && j.loaded && (!at.LiveLease || checkedLive) {
			w := at.Write
			w.LiveLease = false // judged by the store's time below
			v, ref := judge(&j.rec, a.base, &w, 0)
			if ref == nil {
				at.Calm = v == verdictGo && j.older == 0 && a.quiet(j) <= 0
				at.shard, at.job, at.stage = s, j, stageWatching
				j.watchers.add(at)
			}
			s.mu.Unlock()
			if ref != nil {
				return ref
			}
			return nil
		}
		s.mu.Unlock()
		if err := a.judgeStored(ctx, at); err != nil {
			return err
		}
		checkedLive = true
	}
}

// Unwatch ends a Watch. It may be called more than once.
func (a *Authority) Unwatch(at *Attempt) {
	if a.unwatch(at) {
		a.forget(at.Job)
	}
}

// unwatch reports whether the attempt was watching.
func (a *Authority) unwatch(at *Attempt) bool {
	if at.shard == nil {
		return false
	}
	at.shard.mu.Lock()
	defer at.shard.mu.Unlock()
	if at.stage != stageWatching {
		return false
	}
	at.stage = stageNone
	at.job.watchers.remove(at)
	return true
}

// forget drops what was made in memory for a call that came to nothing, if the store has
// never heard of its job. Anybody can make up ids.
func (a *Authority) forget(key Job) {
	s := a.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[key]; j != nil {
		j.unwanted = true
		s.drop(j)
	}
}

// judgeStored judges by the store's record and time, without changing anything.
func (a *Authority) judgeStored(ctx context.Context, at *Attempt) error {
	var ref *Refusal
	err := a.do(ctx, at.Job, func(d *draft) {
		_, ref = judge(&d.Record, a.base, &at.Write, d.Now.UnixMilli())
	})
	switch {
	case err != nil:
		return a.staleOr(at, err)
	case ref != nil:
		return ref
	}
	return nil
}

// staleOr prefers what memory is sure of to an error of the store: a generation
// below a floor that was durable stays below it, whatever the store does now.
func (a *Authority) staleOr(at *Attempt, err error) error {
	s := a.shardOf(at.Job)
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[at.Job]; j != nil && at.Generation < j.rec.floorFrom(a.base) {
		if _, ref := judge(&j.rec, a.base, &at.Write, 0); ref != nil {
			return ref
		}
	}
	return err
}
