package leaseclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// State is what a holder knows of its lease.
type State uint8

// The states of a lease. It goes from Held to Uncertain and back, and from both to Lost for good.
const (
	// Held: the last renewal succeeded, or none was due yet.
	Held State = iota
	// Uncertain: the last renewal failed and is tried again until the deadline. Work may go on.
	Uncertain
	// Lost: the lease is over, for any reason. Err says which.
	Lost
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Held:
		return "held"
	case Uncertain:
		return "uncertain"
	case Lost:
		return "lost"
	}
	return "state " + strconv.Itoa(int(s))
}

// Lease is a job's ownership by one generation. It is for one use: once it is over it stays over, and the job has to be
// claimed anew. All methods may be called concurrently.
type Lease struct {
	client     *Client
	jobID      string
	owner      string
	generation tokens.Generation
	// secret returns the lease id. It is a func so that no way of printing a Lease shows it.
	secret      func() string
	ttl         time.Duration
	margin      time.Duration
	minLeft     time.Duration
	predecessor *Predecessor

	ctx    context.Context
	cancel context.CancelCauseFunc
	// turn is taken by whoever ends the lease. completing, which it guards, tells that a completion was sent.
	turn       chan struct{}
	completing bool

	mu     sync.Mutex
	term   term
	failed error // how the last renewal failed, nil if it did not
	over   error // why the lease is over, nil while it is not
	ending bool  // Release or Complete was called: no write is started any more
	onLost func(error)
	// writes counts the outstanding ones; idle is closed when it falls to zero.
	writes int
	idle   chan struct{}

	// renewal is the scheduler's; the client's lock guards it.
	renewal renewal
}

func (c *Client) newLease(parent context.Context, q wire.ClaimRequest, out wire.ClaimResponse, sent instant, o claimOptions) *Lease {
	ttl := time.Duration(out.TTL) * time.Millisecond
	l := &Lease{
		client: c, jobID: out.JobID, owner: q.Owner, generation: out.Generation, secret: func() string { return out.LeaseID },
		ttl: ttl, margin: c.cfg.margin(ttl), minLeft: c.cfg.minLeft(ttl),
		predecessor: predecessorOf(out.Predecessor), turn: make(chan struct{}, 1),
	}
	l.renewal.index = -1
	l.term = term{sent, time.Duration(out.ExpiresIn)*time.Millisecond - l.margin}
	l.ctx, l.cancel = context.WithCancelCause(parent)
	return l
}

// JobID is the job.
func (l *Lease) JobID() string { return l.jobID }

// Generation is the lease's generation, higher than any before it.
func (l *Lease) Generation() tokens.Generation { return l.generation }

// Predecessor is what the old holder did; nil on a job's first claim. It does not change.
func (l *Lease) Predecessor() *Predecessor { return l.predecessor }

// Context ends when the lease is over, at its deadline at the latest; context.Cause then returns what Err returns. It
// has the values of the context of Claim, but neither its deadline nor its end. All work of the job belongs under it.
//
// After a suspension of the machine it ends within a second. Until then Deadline, State, Err and Transport know already.
func (l *Lease) Context() context.Context { return l.ctx }

// Deadline is when the lease is over unless it is renewed before. It moves with every renewal, and compares correctly
// with time.Now as long as the machine was not suspended.
func (l *Lease) Deadline() time.Time { return l.deadline() }

// State returns what is known now. It looks at the clocks.
func (l *Lease) State() State {
	if l.Err() != nil {
		return Lost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return Uncertain
	}
	return Held
}

// Err returns nil until the lease is over: then a *LostError, ErrReleased after Release, or ErrCompleted after Complete.
// It looks at the clocks.
func (l *Lease) Err() error {
	l.expire(l.client.now())
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// Header sets the three headers that fence a write, for programs that send it by other means than Transport. It sets
// them whatever the state of the lease is. They hold the lease id: do not log them.
func (l *Lease) Header(h http.Header) {
	h.Set(wire.HeaderJobID, l.jobID)
	h.Set(wire.HeaderGeneration, strconv.FormatUint(uint64(l.generation), 10))
	h.Set(wire.HeaderLease, l.secret())
}

// String describes the lease without its id.
func (l *Lease) String() string {
	return fmt.Sprintf("lease of job %q, generation %d, %s", l.jobID, l.generation, l.State())
}

// Format prints String, whatever the verb.
func (l *Lease) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, l.String()) }

func (l *Lease) left(now instant) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term.left(now)
}

func (l *Lease) deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term.deadline()
}

// extend notes that the server agreed to a term. A deadline never moves back, as the server keeps the later one too, and
// one that has passed does not move at all.
func (l *Lease) extend(t term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.client.now()
	if l.over == nil && l.term.left(now) > 0 {
		l.failed = nil
		if t.left(now) > l.term.left(now) {
			l.term = t
		}
	}
}

// expire ends a lease whose deadline has passed, and reports whether it is over.
func (l *Lease) expire(now instant) bool {
	l.mu.Lock()
	if l.over != nil || l.term.left(now) > 0 {
		defer l.mu.Unlock()
		return l.over != nil
	}
	last := l.failed
	l.mu.Unlock()
	l.lose(l.loss(ErrExpired, last))
	return true
}

// loss is the error of a loss.
func (l *Lease) loss(reason, last error) *LostError {
	return &LostError{JobID: l.jobID, Generation: l.generation, Reason: reason, Last: last}
}

// lose ends the lease for a reason that its holder did not ask for.
func (l *Lease) lose(cause *LostError) {
	if f := l.finish(cause); f != nil {
		go f(cause)
	}
}

// finish makes the lease over. Only the first call has an effect; it returns what is to be called on loss.
func (l *Lease) finish(cause error) func(error) {
	l.mu.Lock()
	if l.over != nil {
		l.mu.Unlock()
		return nil
	}
	l.over = cause
	f := l.onLost
	l.mu.Unlock()
	l.cancel(cause)
	l.client.remove(l)
	return f
}

// arm sets what is called on loss, when the lease is handed out.
func (l *Lease) arm(f func(error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil {
		l.onLost = f
	}
	return l.over
}

// abandon ends a lease that is not handed out.
func (l *Lease) abandon(cause error) {
	l.finish(cause)
	if !errors.Is(cause, ErrLost) {
		l.releaseLater()
	}
}

// begin admits a request of a Transport, or says why not. A write is counted until done is called.
func (l *Lease) begin(write bool) error {
	now := l.client.now()
	l.expire(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over != nil:
		return l.over
	case !write:
		return nil
	case l.ending:
		return ErrReleased
	}
	if left := l.term.left(now); left < l.minLeft {
		return fmt.Errorf("%w: %v, and %v is wanted", ErrTooLate, left.Round(time.Millisecond), l.minLeft)
	}
	l.writes++
	return nil
}

func (l *Lease) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes--
	if l.writes == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// drained is closed once no write is outstanding.
func (l *Lease) drained() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	done := make(chan struct{})
	if l.writes == 0 {
		close(done)
		return done
	}
	if l.idle == nil {
		l.idle = done
	}
	return l.idle
}
