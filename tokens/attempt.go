package tokens

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Cutter is told that an attempt has been overtaken by a newer generation.
type Cutter interface {
	// Cut stops the attempt as fast as possible: its connection to the
	// upstream, or the reception of its body, is broken off. It must not block,
	// may be called at any time, also after Settle has returned, and then must
	// do nothing.
	Cut()
}

// Attempt is one write from its arrival until its outcome is settled. The caller
// owns it and may not copy or reuse it. Fill the exported fields before Watch or
// Admit.
type Attempt struct {
	Write
	// Cutter is told when the attempt must stop.
	Cutter Cutter
	// TakeoverWait is how long Admit may wait for older attempts.
	TakeoverWait time.Duration
	// AbortSent cuts the attempt at a takeover even after its request was sent
	// whole.
	AbortSent bool

	// DuplicateWait is how long Admit may wait for a write under the same key
	// that is in flight.
	DuplicateWait time.Duration

	// Waited is how long Admit waited for older attempts, and Took tells that
	// this was the first write of its generation known to this process.
	Waited time.Duration
	Took   bool

	// Calm tells, after Watch, that Admit would not have had to wait or to make
	// anything durable just then.
	Calm bool

	shard *shard
	job   *job
	stage stage
	prev  *Attempt
	next  *Attempt
	// id names the attempt of a keyed write; records are what was committed of
	// it, by key.
	id       string
	records  map[string]WriteRecord
	recorded bool
	tried    bool // Record was called
	starting bool // it is one of the job's starting
}

// stage of an attempt. The shard's lock protects it.
type stage uint8

const (
	// stageNone: not admitted, or settled.
	stageNone stage = iota
	// stageWatching: the body is being received; nothing waits for it.
	stageWatching
	// stageAdmitted: registered, and no byte has been let through the gate.
	stageAdmitted
	// stageSending: the gate let it through.
	stageSending
	// stageSent: the request was sent whole.
	stageSent
	// stageCut: a takeover broke it off after the gate; it is settled by the
	// caller once its connection is closed.
	stageCut
	// stageVetoed: a takeover came before the gate. It is settled: no byte of
	// it can be sent any more.
	stageVetoed
)

// Admit judges a write and registers its attempt. A raised floor is durable before
// Admit goes on; then it waits until no older attempt is left, at most TakeoverWait,
// and decides afresh. So an attempt is never registered while an older one lives, and
// nothing is registered while it waits.
//
// After nil the attempt is registered: pass the gate before the first byte, and call
// Settle whatever happens. After an error it is not: a *Refusal, one that wraps
// ErrStoreUnavailable, or the cause of ctx when that ended first.
func (a *Authority) Admit(ctx context.Context, at *Attempt) error {
	a.unwatch(at)
	return a.admit(ctx, at, true)
}

// Ready is Admit without the registration, for a write whose body is held back until
// its fence has said yes (RFC 9110, section 10.1.1): it raises the floor, judges the key
// as far as that goes without the body, and waits until no older attempt is left. After
// nil, or ErrAlreadyApplied, which stands only if the body is the same, receive the body
// and call Admit, which decides afresh; what was waited here is not waited again.
func (a *Authority) Ready(ctx context.Context, at *Attempt) error {
	return a.admit(ctx, at, false)
}

// admit is Admit, or with register unset Ready.
func (a *Authority) admit(ctx context.Context, at *Attempt, register bool) (err error) {
	defer func() {
		if err != nil {
			a.forget(at.Job)
		}
	}()
	s := a.shardOf(at.Job)
	var started time.Time
	waited := at.Waited
	checkedLive, checkedKey := false, false
	for {
		s.mu.Lock()
		j := s.jobs[at.Job]
		if j == nil || !j.loaded || at.LiveLease && !checkedLive {
			s.mu.Unlock()
			if err := a.judgeStored(ctx, at); err != nil {
				return err
			}
			checkedLive = true
			continue
		}
		w := at.Write
		w.LiveLease = false // judged by the store's time above
		v, ref := judge(&j.rec, a.base, &w, 0)
		if ref != nil {
			s.mu.Unlock()
			return ref
		}
		if err := a.Err(); err != nil {
			s.mu.Unlock()
			return err
		}
		if v == verdictRaise {
			s.mu.Unlock()
			if err := a.raise(ctx, at); err != nil {
				return err
			}
			continue
		}
		if j.attempts.n-j.older+j.waiting+j.starting >= int(a.mostPerJob.Load()) {
			ref := &Refusal{Err: ErrOverloaded, Floor: j.rec.floorFrom(a.base)}
			s.mu.Unlock()
			return ref
		}
		quiet := a.quiet(j)
		if at.durable() && !checkedKey && (!register || j.older > 0 || quiet > 0) {
			// The key is judged before older attempts are waited for.
			s.mu.Unlock()
			if err := a.checkKey(ctx, at); err != nil {
				return err
			}
			checkedKey = true
			continue
		}
		if j.older == 0 && quiet <= 0 {
			if !register {
				s.mu.Unlock()
			} else if !at.durable() {
				at.register(s, j)
				s.mu.Unlock()
			} else {
				changed := at.duplicateSignal(j)
				j.starting++
				at.starting = true
				s.mu.Unlock()
				again, err := a.start(ctx, at, changed)
				s.mu.Lock()
				at.started(j)
				s.mu.Unlock()
				if err != nil {
					return err
				}
				if again {
					continue
				}
			}
			if !started.IsZero() {
				at.Waited = waited + time.Since(started)
			}
			return nil
		}
		// Older attempts live. Wait for them without holding a place.
		if started.IsZero() {
			started = time.Now()
		}
		left := at.TakeoverWait - waited - time.Since(started)
		if left <= 0 {
			ref := &Refusal{Err: ErrTakeoverPending, Floor: j.rec.floorFrom(a.base)}
			s.mu.Unlock()
			at.Waited = waited + time.Since(started)
			return ref
		}
		if j.older == 0 {
			left = min(left, quiet)
		}
		changed := j.signal()
		j.waiting++
		s.mu.Unlock()
		err := await(ctx, changed, left)
		s.mu.Lock()
		j.waiting--
		s.mu.Unlock()
		if err != nil {
			return fmt.Errorf("wait for older attempts: %w", err)
		}
		checkedLive, checkedKey = false, false
	}
}

// quiet is how long attempts of a dead process may still be in flight. The shard is locked.
func (a *Authority) quiet(j *job) time.Duration {
	if j.before && a.opt.RestartLinger > 0 {
		return time.Until(a.quietUntil)
	}
	return 0
}

// register makes the attempt one that newer generations wait for. The shard is
// locked, the write was judged under the same lock, and no older attempt is left.
func (at *Attempt) register(s *shard, j *job) {
	at.shard, at.job, at.stage = s, j, stageAdmitted
	j.attempts.add(at)
	if t := &j.tally[0]; t.Generation != at.Generation {
		at.Took = t.Generation != 0 || j.rec.Seen > at.Generation || len(j.rec.Past) > 0
		j.tally[1] = *t
		*t = Tally{Generation: at.Generation}
	}
}

// started ends the place that the attempt had while it was made durable. The shard is
// locked.
func (at *Attempt) started(j *job) {
	if at.starting {
		at.starting = false
		j.starting--
	}
}

// raise makes the write's generation the floor, durably.
func (a *Authority) raise(ctx context.Context, at *Attempt) error {
	var ref *Refusal
	err := a.do(ctx, at.Job, func(d *draft) {
		now := d.Now.UnixMilli()
		var v verdict
		if v, ref = judge(&d.Record, a.base, &at.Write, now); ref == nil && v == verdictRaise {
			d.set(follow(d.Record, &at.Write, now))
		}
	})
	switch {
	case err != nil:
		return a.staleOr(at, err)
	case ref != nil:
		return ref
	}
	return nil
}

// await waits for changed, for d or for the end of ctx, whose cause it returns.
func await(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Gate must be called by whoever writes to the upstream, immediately before the first
// byte. False is a veto: a newer generation took over after the attempt was admitted,
// it counts as settled, its successor may already be writing, and no byte may be sent.
func (at *Attempt) Gate() bool {
	at.shard.mu.Lock()
	defer at.shard.mu.Unlock()
	if at.stage == stageSending || at.stage == stageSent {
		return true
	}
	// The floor is not compared again: overtake has changed the stage of every
	// attempt below it under this same lock.
	if at.stage != stageAdmitted {
		return false
	}
	at.stage = stageSending
	return true
}

// SentWhole tells that the whole request has been written to the upstream: from now
// on a takeover waits for its reply instead of cutting it.
func (at *Attempt) SentWhole() {
	at.shard.mu.Lock()
	if at.stage == stageSending {
		at.stage = stageSent
	}
	at.shard.mu.Unlock()
}

// Overtaken returns the refusal that a write gets which a takeover vetoed or cut: what
// judging it again would say.
func (a *Authority) Overtaken(at *Attempt) *Refusal {
	s := a.shardOf(at.Job)
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[at.Job]; j != nil {
		if _, ref := judge(&j.rec, a.base, &at.Write, 0); ref != nil && errors.Is(ref, ErrStaleGeneration) {
			return ref
		}
	}
	return &Refusal{Err: ErrStaleGeneration, Floor: at.Generation + 1, Ended: Superseded}
}

// Settle ends an admitted attempt with its outcome. For one that was cut or timed
// out it must be called only when its connection has been closed, and after the time
// that the upstream is given to stop. It returns the job's floor now.
func (a *Authority) Settle(at *Attempt, o Outcome) Generation {
	s, j := at.shard, at.job
	s.mu.Lock()
	defer s.mu.Unlock()
	floor := j.rec.floorFrom(a.base)
	switch at.stage {
	case stageNone, stageWatching:
		return floor
	case stageVetoed:
	default:
		j.attempts.remove(at)
		if at.Generation < floor {
			j.older--
			if j.older == 0 {
				j.wake()
			}
		}
	}
	at.stage = stageNone
	if at.id != "" {
		// Its outcome was counted with its record, or is not known to be.
		a.live.Delete(at.id)
		j.wake()
		return floor
	}
	for i := range j.tally {
		if j.tally[i].Generation == at.Generation {
			j.tally[i].add(o)
		}
	}
	return floor
}

// Floor returns the job's floor as memory knows it; zero if it does not.
func (a *Authority) Floor(key Job) Generation {
	s := a.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[key]; j != nil && j.loaded {
		return j.rec.floorFrom(a.base)
	}
	return 0
}
