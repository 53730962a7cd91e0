package tokens

import (
	"context"
	"fmt"
)

// View is what operators see of a job. It holds no secret.
type View struct {
	Job      Job
	Record   Record
	State    State
	Floor    Generation
	InFlight int
	// ExpiresIn is in milliseconds, zero or negative once the lease ran out.
	ExpiresIn int64
}

// State is a job's state in one word.
type State string

// The states of a job.
const (
	// StateHeld: somebody holds the lease.
	StateHeld State = "held"
	// StateLapsed: the lease ran out and nobody took it.
	StateLapsed State = "lapsed"
	// StateFree: the last generation ended, anybody may claim.
	StateFree State = "free"
	// StateCompleted: completed and not reopened.
	StateCompleted State = "completed"
	// StateExternal: never claimed here; an outside issuer's generations are
	// followed.
	StateExternal State = "external"
)

// States lists every state.
func States() []State {
	return []State{StateHeld, StateLapsed, StateFree, StateCompleted, StateExternal}
}

func (a *Authority) view(l Listed) View {
	r := l.Record.withoutSecrets()
	v := View{Job: l.Job, Record: r, Floor: r.floorFrom(a.base)}
	switch {
	case r.Completed:
		v.State = StateCompleted
	case r.Lease != nil:
		v.ExpiresIn = r.Lease.Until - l.Now.UnixMilli()
		v.State = StateHeld
		if v.ExpiresIn <= 0 {
			v.State = StateLapsed
		}
	case r.Issued > 0:
		v.State = StateFree
	default:
		v.State = StateExternal
	}
	s := a.shardOf(l.Job)
	s.mu.Lock()
	if j := s.jobs[l.Job]; j != nil {
		v.InFlight = j.attempts.n
	}
	s.mu.Unlock()
	return v
}

// Job returns one job. The error wraps ErrJobNotFound or ErrStoreUnavailable.
func (a *Authority) Job(ctx context.Context, key Job) (View, error) {
	snap, err := a.store.Load(ctx, key)
	if err != nil {
		return View{}, fmt.Errorf("%w: load record: %w", ErrStoreUnavailable, err)
	}
	if snap.Version == 0 {
		return View{}, ErrJobNotFound
	}
	return a.view(Listed{Job: key, Snapshot: snap}), nil
}

// List returns jobs in byte order of their ids, only those in the given state unless
// it is empty, and where to go on; the cursor is empty at the end.
func (a *Authority) List(ctx context.Context, q ListQuery, state State) (views []View, cursor string, err error) {
	if q.Limit <= 0 {
		return nil, "", nil
	}
	limit := q.Limit
	for {
		page, err := a.store.List(ctx, q)
		if err != nil {
			return nil, "", fmt.Errorf("%w: list records: %w", ErrStoreUnavailable, err)
		}
		for _, l := range page {
			q.After = l.Job
			if v := a.view(l); state == "" || v.State == state {
				views = append(views, v)
				if len(views) == limit {
					return views, l.Job.ID, nil
				}
			}
		}
		if len(page) < q.Limit {
			return views, "", nil
		}
	}
}

// Revoke kills the current generation of a job. expected is the generation that the
// operator means, zero for whichever it is. Repeating it changes nothing. The error is
// a *Refusal (ErrGenerationMismatch), wraps ErrJobNotFound or ErrStoreUnavailable, or
// is the cause of ctx.
func (a *Authority) Revoke(ctx context.Context, key Job, expected Generation, trace string) (View, error) {
	return a.operate(ctx, key, func(s Snapshot) (Record, error) {
		if s.Version == 0 {
			return s.Record, ErrJobNotFound
		}
		next, ref := revoke(s.Record, a.base, expected, s.Now.UnixMilli(), trace)
		if ref != nil {
			return s.Record, ref
		}
		return next, nil
	})
}

// Fence raises the floor of a job to at least floor; a lower one changes nothing. An
// outside issuer calls it at takeover. A lease below the floor is revoked. The error
// is as for Revoke.
func (a *Authority) Fence(ctx context.Context, key Job, floor Generation, trace string) (View, error) {
	if floor == 0 || floor > MaxGeneration {
		return View{}, fmt.Errorf("%w: a floor is from 1 to %d", ErrInvalidGeneration, MaxGeneration)
	}
	return a.operate(ctx, key, func(s Snapshot) (Record, error) {
		return fence(s.Record, floor, s.Now.UnixMilli(), trace), nil
	})
}

// Reopen lets a completed job be claimed again; any other job is left as it is. The
// error is as for Revoke.
func (a *Authority) Reopen(ctx context.Context, key Job) (View, error) {
	return a.operate(ctx, key, func(s Snapshot) (Record, error) {
		if s.Version == 0 {
			return s.Record, ErrJobNotFound
		}
		return reopen(s.Record), nil
	})
}

// operate applies one operator's rule and returns the job as it is afterwards.
func (a *Authority) operate(ctx context.Context, key Job, rule func(Snapshot) (Record, error)) (View, error) {
	var (
		out     Snapshot
		refused error
	)
	err := a.ask(ctx, key, func(d *draft) {
		next, err := rule(d.Snapshot)
		refused = err
		if err == nil && !sameState(next, d.Record) {
			d.set(next)
		}
		out = d.Snapshot
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return View{}, err
	}
	return a.view(Listed{Job: key, Snapshot: out}), nil
}

// sameState reports whether an operator's rule left everything as it was.
func sameState(a, b Record) bool {
	return a.Floor == b.Floor && a.Seen == b.Seen && a.Lease == b.Lease && a.Completed == b.Completed && len(a.Past) == len(b.Past)
}
