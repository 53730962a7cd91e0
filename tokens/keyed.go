package tokens

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// alive reports whether an attempt is in flight in this process. What another process
// began is not: it died, or the store would not be ours.
func (a *Authority) alive(attempt string) bool {
	_, ok := a.live.Load(attempt)
	return ok
}

// start makes the attempt of a keyed write durable and registers it, in one step: the
// record says in flight from the moment that it may be sent. The writes under its keys
// are judged by the committed records. again tells to decide from the beginning. changed
// is the job's signal from before.
func (a *Authority) start(ctx context.Context, at *Attempt, changed <-chan struct{}) (again bool, err error) {
	id := a.boot + "-" + strconv.FormatUint(a.attempts.Add(1), 10)
	var (
		ref     *Refusal
		raise   bool
		started = false
	)
	op := &operation{
		keys: at.keys(),
		here: true,
		apply: func(d *draft) {
			ref, raise, started = nil, false, false
			now := d.Now.UnixMilli()
			v, r := judge(&d.Record, a.base, &at.Write, now)
			if r == nil {
				r = a.judgeKeys(d, at)
			}
			if ref = r; r != nil {
				return
			}
			if raise = v == verdictRaise; raise {
				return
			}
			a.live.Store(id, nil)
			at.begin(d, id, now)
			started = true
		},
		published: func(s *shard, j *job) {
			if started {
				at.register(s, j)
				at.started(j)
			}
		},
	}
	err = a.run(ctx, at.Job, op)
	switch {
	case err != nil && errors.Is(err, context.Cause(ctx)) && ctx.Err() != nil:
		// The caller is gone and the operation goes on without it: wait for it,
		// so that the attempt is not left behind.
		if op.done == nil {
			return false, err // the store had failed before
		}
		<-op.done
		if op.err == nil && started && !op.skipped {
			at.id = id
			return false, nil
		}
		a.live.Delete(id)
		return false, err
	case err != nil:
		a.live.Delete(id)
		return false, a.staleOr(at, err)
	case ref != nil:
		a.live.Delete(id)
		return a.awaitDuplicate(ctx, at, ref, changed)
	case raise:
		a.live.Delete(id)
		return true, nil
	}
	at.id = id
	return false, nil
}

// judgeKeys judges the writes under the attempt's keys.
func (a *Authority) judgeKeys(d *draft, at *Attempt) *Refusal {
	for _, key := range at.keys() {
		if ref := judgeKey(d.writes[key], key, &at.Write, d.Record.floorFrom(a.base), a.alive); ref != nil {
			return ref
		}
	}
	return nil
}

// begin puts the attempt's records into the draft.
func (at *Attempt) begin(d *draft, id string, now int64) {
	at.records = make(map[string]WriteRecord, 2)
	for _, key := range at.keys() {
		w := started(d.writes[key], key, &at.Write, id, now)
		at.records[key] = w
		d.setWrite(key, w)
	}
}

// checkKey judges the key without starting anything.
func (a *Authority) checkKey(ctx context.Context, at *Attempt) error {
	s := a.shardOf(at.Job)
	for {
		s.mu.Lock()
		changed := at.duplicateSignal(s.job(at.Job, max(1, a.opt.MaxCached/shardCount)))
		s.mu.Unlock()
		var ref *Refusal
		err := a.run(ctx, at.Job, &operation{keys: at.keys(), apply: func(d *draft) { ref = a.judgeKeys(d, at) }})
		if err != nil {
			return a.staleOr(at, err)
		}
		if ref == nil {
			return nil
		}
		again, err := a.awaitDuplicate(ctx, at, ref, changed)
		if err != nil || !again {
			return err
		}
	}
}

// duplicateSignal is the job's signal, if the attempt may have to wait for another under
// its key. The shard is locked.
func (at *Attempt) duplicateSignal(j *job) <-chan struct{} {
	if at.DuplicateWait <= 0 {
		return nil
	}
	return j.signal()
}

// awaitDuplicate waits for a write under the same key that is in flight, if the route
// wants that, and then tells to decide again. Every other refusal stands.
func (a *Authority) awaitDuplicate(ctx context.Context, at *Attempt, ref *Refusal, changed <-chan struct{}) (again bool, err error) {
	if !errors.Is(ref, ErrWriteInProgress) || at.DuplicateWait <= 0 {
		return false, ref
	}
	s := a.shardOf(at.Job)
	s.mu.Lock()
	j := s.job(at.Job, max(1, a.opt.MaxCached/shardCount))
	j.waiting++
	s.mu.Unlock()
	began := time.Now()
	err = await(ctx, changed, at.DuplicateWait)
	at.DuplicateWait -= time.Since(began)
	s.mu.Lock()
	j.waiting--
	s.mu.Unlock()
	if err != nil {
		return false, fmt.Errorf("wait for the write under the same key: %w", err)
	}
	if at.DuplicateWait <= 0 {
		return false, ref
	}
	return true, nil
}

// Record makes the outcome of a keyed write durable; it does nothing for one without a
// key. The attempt stays registered until Settle. It may be called again, to add the
// reply. After an error the write counts as unknown, never as free.
func (a *Authority) Record(ctx context.Context, at *Attempt, s Settlement) error {
	if at.id == "" {
		return nil
	}
	op := &operation{here: true, size: s.size()}
	if at.tried {
		// What this process began nobody else has changed, as long as it is in
		// flight: an operator can not resolve it. Later, somebody may have.
		op.keys = at.keys()
	}
	op.apply = func(d *draft) {
		now := d.Now.UnixMilli()
		counted := false
		for _, key := range at.keys() {
			had := at.records[key]
			if at.tried {
				had = d.writes[key]
			}
			mine := s
			if IsOnceKey(key) {
				mine.Reply = nil
			}
			next, ok := settled(had, at.id, mine, at.Retention, now)
			if !ok {
				continue
			}
			d.setWrite(key, next)
			if !counted && !at.recorded && s.Outcome != OutcomeUnknown {
				d.set(d.Record.tallied(at.Generation, s.Outcome))
			}
			counted = true
		}
	}
	err := a.run(ctx, at.Job, op)
	at.tried = true
	at.recorded = at.recorded || err == nil
	return err
}

// Known returns what is known of the write under a key, for the answer to a write that
// was refused for another reason; nil if nothing is.
func (a *Authority) Known(ctx context.Context, key Job, name string) *WriteRecord {
	if name == "" {
		return nil
	}
	w, err := a.store.LoadWrite(ctx, key, name)
	if err != nil || w.State == "" {
		return nil
	}
	w = a.lost(w)
	return &w
}

// lost turns an in-flight write that nobody tracks into an unknown one.
func (a *Authority) lost(w WriteRecord) WriteRecord {
	if w.State == WriteInFlight && !a.alive(w.Attempt) {
		w.State = WriteUnknown
	}
	return w
}

// Resolve records what an operator found out about a write whose outcome is unknown. The
// error is a *Refusal (ErrWriteInProgress, ErrWriteSettled), wraps ErrWriteNotFound or
// ErrStoreUnavailable, or is the cause of ctx. retention is in milliseconds.
func (a *Authority) Resolve(ctx context.Context, key Job, name string, v Verdict, retention int64) (WriteRecord, error) {
	var (
		out WriteRecord
		ref *Refusal
	)
	defer a.forget(key)
	// The record of a route's one write per generation goes with that of its key.
	names := []string{name}
	had, err := a.store.LoadWrite(ctx, key, name)
	if err != nil {
		return WriteRecord{}, fmt.Errorf("%w: load write: %w", ErrStoreUnavailable, err)
	}
	if had.State != "" && !IsOnceKey(name) {
		names = append(names, onceKey(had.Route, had.Generation))
	}
	err = a.run(ctx, key, &operation{keys: names, apply: func(d *draft) {
		now := d.Now.UnixMilli()
		had := d.writes[name]
		if out = had; had.State == "" {
			return
		}
		out, ref = resolve(had, v, retention, now, a.alive)
		if ref != nil || out.State == had.State {
			return
		}
		d.setWrite(name, out)
		for _, once := range names[1:] {
			if w := d.writes[once]; w.Attempt == had.Attempt {
				if w, ref := resolve(w, v, retention, now, a.alive); ref == nil {
					d.setWrite(once, w)
				}
			}
		}
	}})
	switch {
	case err != nil:
		return WriteRecord{}, err
	case ref != nil:
		return WriteRecord{}, ref
	case out.State == "":
		return WriteRecord{}, ErrWriteNotFound
	}
	return out, nil
}

// Sweep purges settled writes whose time is up and whose job nobody holds, by the store's
// clock, and returns how many. Unknown ones are never purged. The error wraps
// ErrStoreUnavailable or is the cause of ctx.
func (a *Authority) Sweep(ctx context.Context) (purged int, err error) {
	now, err := a.store.Load(ctx, Job{ID: " "}) // no job has this id; its time is the store's
	if err != nil {
		return 0, fmt.Errorf("%w: read the store's time: %w", ErrStoreUnavailable, err)
	}
	q := WritesQuery{ExpiredAt: now.Now.UnixMilli(), Limit: 500}
	for {
		page, lerr := a.store.ListWrites(ctx, q)
		if err := lerr; err != nil {
			return purged, fmt.Errorf("%w: list expired writes: %w", ErrStoreUnavailable, err)
		}
		byJob := make(map[Job][]string)
		for _, l := range page {
			q.After = l
			byJob[l.Job] = append(byJob[l.Job], l.Key)
		}
		n, perr := a.purge(ctx, byJob)
		purged += n
		err = errors.Join(err, perr) // one job that fails does not keep the others
		if len(page) < q.Limit || ctx.Err() != nil {
			return purged, err
		}
	}
}

// purge forgets what may be forgotten of the named writes. Jobs go side by side, so that
// their commits share a sync.
func (a *Authority) purge(ctx context.Context, byJob map[Job][]string) (purged int, err error) {
	type result struct {
		n   int
		err error
	}
	results := make(chan result, len(byJob))
	for key, names := range byJob {
		go func() {
			n := 0
			err := a.run(ctx, key, &operation{keys: names, apply: func(d *draft) {
				n = 0
				for _, name := range names {
					if w := d.writes[name]; w.State != "" && purgeable(d.Record, w, d.Now.UnixMilli()) {
						d.purge(name)
						n++
					}
				}
			}})
			if err != nil {
				n = 0
			}
			results <- result{n, err}
		}()
	}
	for range byJob {
		r := <-results
		purged += r.n
		err = errors.Join(err, r.err)
	}
	return purged, err
}

// Unknown returns how many keyed writes have an unknown outcome, and when the oldest of
// them began; zero if there is none.
func (a *Authority) Unknown(ctx context.Context) (n int, oldest time.Time, err error) {
	q := WritesQuery{Open: true, Limit: 1000}
	for {
		page, err := a.store.ListWrites(ctx, q)
		if err != nil {
			return 0, time.Time{}, fmt.Errorf("%w: list open writes: %w", ErrStoreUnavailable, err)
		}
		for _, l := range page {
			q.After = l
			if l.hidden() || a.lost(l.Record).State != WriteUnknown {
				continue
			}
			n++
			if at := time.UnixMilli(l.Record.Started); oldest.IsZero() || at.Before(oldest) {
				oldest = at
			}
		}
		if len(page) < q.Limit {
			return n, oldest, nil
		}
	}
}
