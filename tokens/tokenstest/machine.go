package tokenstest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// Advancer is an Opener whose store's clock stands still until a test moves it on.
type Advancer interface {
	Opener
	Advance(d time.Duration)
}

// Machine drives one Authority over the opener's store through random histories of lease
// operations, writes, operator actions, crashes, reopenings, store errors and clock
// steps, and compares each answer with a model. After each step it checks that
//
//   - the floor is the model's, in memory and in the store, and never fell;
//   - no generation and no lease id was granted twice;
//   - no attempt lives, in a form that can still send, beside one of a newer generation;
//   - whatever was overtaken was told so.
//
// The number of histories and their length are rapid's flags. The opener's store is used
// for all of them, with other jobs each time. Without an Advancer no lease runs out.
func Machine(t *testing.T, o Opener) {
	m := &machine{t: t, opener: o, ttl: time.Hour.Milliseconds()}
	if a, ok := o.(Advancer); ok {
		m.advance, m.ttl = a.Advance, 1000
	}
	m.store = NewFaulty(o.Open(t))
	defer func() {
		if err := m.store.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	}()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		m.begin(t, run)
		t.Repeat(map[string]func(*rapid.T){
			"":         m.invariants,
			"claim":    m.claim,
			"renew":    m.renew,
			"release":  func(t *rapid.T) { m.end(t, tokens.Released) },
			"complete": func(t *rapid.T) { m.end(t, tokens.Completed) },
			"revoke":   m.revoke,
			"fence":    m.fence,
			"reopen":   m.reopen,
			"admit":    m.admit,
			"gate":     m.gate,
			"sent":     m.sent,
			"settle":   m.settle,
			"fault":    m.fault,
			"crash":    m.crash,
			"restart":  m.restart,
			"clock":    m.clock,
		})
	})
}

// machine is the system under test beside its model.
type machine struct {
	t       *testing.T
	opener  Opener
	advance func(d time.Duration)
	ttl     int64

	store *Faulty
	a     *tokens.Authority
	base  tokens.Generation
	jobs  []*modelJob
	// armed is the fault that the next load or commit will meet; latched tells
	// that a commit of unknown outcome has closed the authority.
	armed   Mode
	latched bool
}

// modelJob is what the model knows of one job.
type modelJob struct {
	key tokens.Job
	state
	// maybe is the state that a commit of unknown outcome may have made.
	maybe *state
	// granted and secrets are what was ever granted.
	granted  map[tokens.Generation]tokens.LeaseRef
	secrets  map[string]bool
	ended    map[tokens.Generation]tokens.Ended
	attempts []*attempt
	// sent is the highest generation of which a byte may have been sent by a
	// process that lives.
	sent tokens.Generation
	// highest is the highest floor that anybody was ever told.
	highest tokens.Generation
}

// state is the part of a record that the rules decide by.
type state struct {
	floor, seen, issued tokens.Generation
	lease               tokens.Lease
	completed           bool
}

func stateOf(r tokens.Record) state {
	s := state{floor: r.Floor, seen: r.Seen, issued: r.Issued, completed: r.Completed}
	if r.Lease != nil {
		s.lease = *r.Lease
	}
	return s
}

// alike compares states without the times and the secret, which the model can not
// predict.
func alike(a, b state) bool {
	for _, l := range []*tokens.Lease{&a.lease, &b.lease} {
		*l = tokens.Lease{Generation: l.Generation, Owner: l.Owner, ClaimID: l.ClaimID}
	}
	return a == b
}

// attempt is a write that was admitted.
type attempt struct {
	at    *tokens.Attempt
	stage attemptStage
	cuts  atomic.Int32
}

// Cut implements tokens.Cutter.
func (a *attempt) Cut() { a.cuts.Add(1) }

type attemptStage uint8

const (
	admitted attemptStage = iota
	sending
	sentWhole
	cut
	vetoed
)

// begin forgets the jobs of the history before and starts a new process.
func (m *machine) begin(t *rapid.T, run int) {
	m.jobs = nil
	for i := range 2 {
		m.jobs = append(m.jobs, &modelJob{
			key:     tokens.Job{Namespace: "machine", ID: fmt.Sprintf("run-%d-%d", run, i)},
			granted: make(map[tokens.Generation]tokens.LeaseRef),
			secrets: make(map[string]bool),
			ended:   make(map[tokens.Generation]tokens.Ended),
		})
	}
	m.newProcess(t)
}

// newProcess makes a new authority: the attempts of the old one are gone, and what a
// commit of unknown outcome did is read from the store.
func (m *machine) newProcess(t *rapid.T) {
	m.disarm()
	a, err := tokens.NewAuthority(context.Background(), m.store, tokens.Options{})
	if err != nil {
		t.Fatalf("new authority: %v", err)
	}
	m.a, m.latched = a, false
	m.base = tokens.Generation(m.store.Info().Epoch) * tokens.EpochSize
	for _, j := range m.jobs {
		j.attempts, j.sent = nil, 0
		m.observe(t, j)
	}
}

// disarm takes back a fault that has not struck.
func (m *machine) disarm() {
	m.store = NewFaulty(m.store.Store)
	m.armed = Healthy
}

// now is the store's time.
func (m *machine) now(t *rapid.T, j *modelJob) int64 {
	return m.stored(t, j).Now.UnixMilli()
}

// stored reads behind the back of the authority and of the faults.
func (m *machine) stored(t *rapid.T, j *modelJob) tokens.Snapshot {
	snap, err := m.store.Store.Load(context.Background(), j.key)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return snap
}

// observe takes over what the store holds, which is the model's state or, after a commit
// of unknown outcome, the one that it would have made.
func (m *machine) observe(t *rapid.T, j *modelJob) {
	got := stateOf(m.stored(t, j).Record)
	if !alike(got, j.state) && (j.maybe == nil || !alike(got, *j.maybe)) {
		t.Fatalf("%s: the store holds %+v, want %+v or %+v", j.key, got, j.state, j.maybe)
	}
	if l := got.lease; l.Generation != 0 && l.ID != j.lease.ID {
		m.grant(t, j, l)
	}
	if old := j.lease; old.Generation != 0 && got.lease.Generation == 0 && j.maybe != nil {
		j.ended[old.Generation] = ""
	}
	j.maybe = nil
	m.adopt(j, got)
}

// grant notes a new lease and that neither its generation nor its id was used before.
func (m *machine) grant(t *rapid.T, j *modelJob, l tokens.Lease) {
	if _, twice := j.granted[l.Generation]; twice || j.secrets[l.ID] {
		t.Fatalf("%s: generation %d was granted twice", j.key, l.Generation)
	}
	j.secrets[l.ID] = true
	j.granted[l.Generation] = tokens.LeaseRef{Job: j.key, Owner: l.Owner, Generation: l.Generation, LeaseID: l.ID}
}

// adopt makes next the model's state and overtakes the attempts below its floor.
func (m *machine) adopt(j *modelJob, next state) {
	j.state = next
	j.highest = max(j.highest, next.floor)
	for _, at := range j.attempts {
		if at.at.Generation >= m.floor(j) {
			continue
		}
		switch {
		case at.stage == admitted:
			at.stage = vetoed
		case at.stage == sending, at.stage == sentWhole && at.at.AbortSent:
			at.stage = cut
		}
	}
}

func (m *machine) floor(j *modelJob) tokens.Generation { return max(j.state.floor, m.base) }

// answer compares an answer with what the model wants: refusal, or nil and next. It
// reports whether the operation took effect.
func (m *machine) answer(t *rapid.T, what string, j *modelJob, refusal error, next state, err error) bool {
	struck := Healthy
	if m.armed != Healthy && m.store.Pending() == 0 {
		struck, m.armed = m.armed, Healthy
	}
	// What memory is sure of may be refused with the store gone.
	sure := what == "admit" && refusal != nil && errors.Is(err, refusal) && !errors.Is(refusal, tokens.ErrTakeoverPending)
	switch {
	case m.latched, struck == LoadFails, struck == Refuse:
		if !sure && !errors.Is(err, tokens.ErrStoreUnavailable) {
			t.Fatalf("%s: %s with a store that fails: %v, want ErrStoreUnavailable", j.key, what, err)
		}
		return false
	case struck != Healthy:
		if refusal != nil && !errors.Is(refusal, tokens.ErrTakeoverPending) {
			t.Fatalf("%s: %s committed something although it had to be refused with %v", j.key, what, refusal)
		}
		if !errors.Is(err, tokens.ErrStoreUnavailable) {
			t.Fatalf("%s: %s with a commit of unknown outcome: %v, want ErrStoreUnavailable", j.key, what, err)
		}
		j.maybe = &next
		if m.store.Info().Exclusive {
			m.latched = true
			return false
		}
		// Any operation makes the authority read the record again.
		if _, err := m.a.Renew(context.Background(), tokens.LeaseRef{Job: j.key}, 1); !errors.Is(err, tokens.ErrLeaseLost) {
			t.Fatalf("%s: renew of no lease: %v", j.key, err)
		}
		m.observe(t, j)
		return false
	case refusal != nil:
		if !errors.Is(err, refusal) {
			t.Fatalf("%s: %s: %v, want %v; state %+v", j.key, what, err, refusal, j.state)
		}
		if errors.Is(refusal, tokens.ErrTakeoverPending) {
			m.adopt(j, next) // the floor has risen all the same
		}
		return false
	case err != nil:
		t.Fatalf("%s: %s: %v, want success; state %+v", j.key, what, err, j.state)
	}
	m.adopt(j, next)
	return true
}

// invariants hold after every step.
func (m *machine) invariants(t *rapid.T) {
	if err := m.a.Err(); (err != nil) != m.latched {
		t.Fatalf("authority: %v, but an unknown outcome has closed it: %v", err, m.latched)
	}
	for _, j := range m.jobs {
		snap := m.stored(t, j)
		if got := stateOf(snap.Record); !alike(got, j.state) && (j.maybe == nil || !alike(got, *j.maybe)) {
			t.Fatalf("%s: the store holds %+v, want %+v or %+v", j.key, got, j.state, j.maybe)
		}
		if snap.Record.Floor < j.highest {
			t.Fatalf("%s: the floor fell from %d to %d", j.key, j.highest, snap.Record.Floor)
		}
		if got := m.a.Floor(j.key); got != 0 && got != m.floor(j) {
			t.Fatalf("%s: the floor in memory is %d, want %d", j.key, got, m.floor(j))
		}
		m.attemptInvariants(t, j)
	}
}

func (m *machine) attemptInvariants(t *rapid.T, j *modelJob) {
	var oldest, newest tokens.Generation
	for _, at := range j.attempts {
		over := at.stage == cut || at.stage == vetoed
		if over && at.cuts.Load() == 0 {
			t.Fatalf("%s: an attempt of generation %d was overtaken and not told", j.key, at.at.Generation)
		}
		if ref := m.a.Overtaken(at.at); over && (!errors.Is(ref, tokens.ErrStaleGeneration) || ref.Floor <= at.at.Generation) {
			t.Fatalf("%s: an overtaken attempt of generation %d gets the refusal %+v", j.key, at.at.Generation, ref)
		}
		if !over && at.cuts.Load() != 0 {
			t.Fatalf("%s: an attempt of generation %d was cut under floor %d", j.key, at.at.Generation, m.floor(j))
		}
		if at.stage != vetoed {
			newest = max(newest, at.at.Generation)
			if oldest == 0 || at.at.Generation < oldest {
				oldest = at.at.Generation
			}
		}
	}
	if oldest != newest {
		t.Fatalf("%s: unsettled attempts of generations %d and %d live side by side", j.key, oldest, newest)
	}
}
