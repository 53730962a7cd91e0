package tokenstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// Mode is a way in which a store fails.
type Mode uint8

// The ways in which a call fails. LoadFails is for the next load, all others are for
// the next commit.
const (
	// Healthy does not fail.
	Healthy Mode = iota
	// Refuse writes nothing and answers ErrRefused.
	Refuse
	// WriteAndFail writes and answers ErrUnknown: the reply was lost.
	WriteAndFail
	// DropAndUnknown does not write and answers ErrUnknown: the request was lost.
	DropAndUnknown
	// HangWritten writes, then hangs until the context ends; ErrUnknown.
	HangWritten
	// HangDropped hangs until the context ends and does not write; ErrUnknown.
	HangDropped
	// Bare writes nothing and answers an error of no kind, which a store must
	// never do.
	Bare
	// LoadFails fails the next load.
	LoadFails
	// LoadHangs hangs the next load until its context ends.
	LoadHangs
)

var errInjected = errors.New("injected fault")

// Faulty is a Store that fails when it is told to, and counts its calls. It may be used
// concurrently; set Decide and OnCommit before.
type Faulty struct {
	tokens.Store
	// Decide is asked for each commit that FailNext has nothing for.
	Decide func(c tokens.Change) Mode
	// OnCommit is told each change that is durable, before Commit returns.
	OnCommit func(c tokens.Change, v tokens.Version)

	mu          sync.Mutex
	commitModes []Mode
	loadModes   []Mode
	gate        *Gate
	loads       int
	commits     int
	err         atomic.Pointer[error]
}

// NewFaulty returns a faulty store over a sound one.
func NewFaulty(s tokens.Store) *Faulty { return &Faulty{Store: s} }

// FailNext makes the next load or commit, as the mode says, fail. Calls queue up.
func (f *Faulty) FailNext(m Mode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m == LoadFails || m == LoadHangs {
		f.loadModes = append(f.loadModes, m)
		return
	}
	f.commitModes = append(f.commitModes, m)
}

// Pending returns how many faults of FailNext have not struck yet.
func (f *Faulty) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.commitModes) + len(f.loadModes)
}

// SetErr makes Err answer err and every commit be refused with it; nil heals the store.
func (f *Faulty) SetErr(err error) {
	if err == nil {
		f.err.Store(nil)
		return
	}
	f.err.Store(&err)
}

// Gate holds commits.
type Gate struct {
	arrived chan tokens.Job
	open    chan struct{}
}

// Arrived waits until one more commit stands at the gate and returns its job.
func (g *Gate) Arrived() tokens.Job { return <-g.arrived }

// Open lets all held and all later commits go on. Call it once.
func (g *Gate) Open() { close(g.open) }

// HoldCommits makes every commit from now on stand at the returned gate, before it
// writes, until the gate is opened or its context ends (ErrUnknown, not written).
func (f *Faulty) HoldCommits() *Gate {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = &Gate{arrived: make(chan tokens.Job, 1024), open: make(chan struct{})}
	return f.gate
}

// Counts returns how many loads and commits were asked for.
func (f *Faulty) Counts() (loads, commits int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loads, f.commits
}

// Load implements tokens.Store.
func (f *Faulty) Load(ctx context.Context, job tokens.Job) (tokens.Snapshot, error) {
	f.mu.Lock()
	f.loads++
	mode := Healthy
	if len(f.loadModes) > 0 {
		mode, f.loadModes = f.loadModes[0], f.loadModes[1:]
	}
	f.mu.Unlock()
	switch mode {
	case LoadFails:
		return tokens.Snapshot{}, errInjected
	case LoadHangs:
		<-ctx.Done()
		return tokens.Snapshot{}, context.Cause(ctx)
	}
	return f.Store.Load(ctx, job)
}

// Commit implements tokens.Store.
func (f *Faulty) Commit(ctx context.Context, c tokens.Change) (tokens.Version, error) {
	mode, gate := f.next(c)
	if p := f.err.Load(); p != nil {
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, *p)
	}
	if gate != nil {
		gate.arrived <- c.Job
		select {
		case <-gate.open:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", tokens.ErrUnknown, context.Cause(ctx))
		}
	}
	switch mode {
	case Refuse:
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, errInjected)
	case DropAndUnknown:
		return 0, fmt.Errorf("%w: %w", tokens.ErrUnknown, errInjected)
	case Bare:
		return 0, errInjected
	case HangDropped:
		<-ctx.Done()
		return 0, fmt.Errorf("%w: %w", tokens.ErrUnknown, context.Cause(ctx))
	}
	v, err := f.Store.Commit(ctx, c)
	if err != nil {
		return 0, err
	}
	if f.OnCommit != nil {
		f.OnCommit(c, v)
	}
	switch mode {
	case WriteAndFail:
		return 0, fmt.Errorf("%w: %w", tokens.ErrUnknown, errInjected)
	case HangWritten:
		<-ctx.Done()
		return 0, fmt.Errorf("%w: %w", tokens.ErrUnknown, context.Cause(ctx))
	}
	return v, nil
}

// next counts a commit and returns what happens to it.
func (f *Faulty) next(c tokens.Change) (Mode, *Gate) {
	f.mu.Lock()
	f.commits++
	mode, fixed := Healthy, len(f.commitModes) > 0
	if fixed {
		mode, f.commitModes = f.commitModes[0], f.commitModes[1:]
	}
	gate := f.gate
	f.mu.Unlock()
	if !fixed && f.Decide != nil {
		mode = f.Decide(c)
	}
	return mode, gate
}

// Err implements tokens.Store.
func (f *Faulty) Err() error {
	if p := f.err.Load(); p != nil {
		return *p
	}
	return f.Store.Err()
}
