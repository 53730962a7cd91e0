// Package tokenstest proves that an engine keeps the contract of [tokens.Store], and
// holds the stores that other tests are built on.
//
//   - [Run] is the conformance suite; every engine runs it.
//   - [Machine] drives a tokens.Authority over an engine through random histories of
//     claims, writes, crashes and store errors, and checks the promises after each step.
//   - [Memory] is the reference store, [Faulty] a store that fails on demand.
//
// It is imported by tests only.
package tokenstest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// Opener is the data of one store, wherever it lies.
type Opener interface {
	// Open opens the store on its data, which is the same each time. Whoever
	// opened it closes it, and does so before it is opened again. It may fail
	// the test.
	Open(t testing.TB) tokens.Store
}

// OpenFunc is an Opener that is a function.
type OpenFunc func(t testing.TB) tokens.Store

// Open implements Opener.
func (f OpenFunc) Open(t testing.TB) tokens.Store { return f(t) }

// WallStepper is an Opener whose wall clock a test can step, forward or back, also
// while the store is open. Run then checks that the store's time does not follow.
type WallStepper interface {
	Opener
	StepWall(d time.Duration)
}

// Factory makes the data of a new, empty store. Its clean-up belongs to t.
type Factory func(t testing.TB) Opener

// Run checks every sentence of the Store contract against stores made by f. Each case
// gets its own.
func Run(t *testing.T, f Factory) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.check(t, f(t)) })
	}
}

type conformance struct {
	name  string
	check func(t *testing.T, o Opener)
}

// cases lists the suite; each group is in the file of its operation.
func cases() []conformance {
	var all []conformance
	for _, group := range [][]conformance{
		infoCases(), loadCases(), commitCases(), concurrencyCases(), listCases(),
		writeCases(), writeListCases(), nameCases(), reopenCases(), timeCases(), contextCases(), closeCases(),
	} {
		all = append(all, group...)
	}
	return all
}

// callTimeout bounds one call of a store in the suite; one that takes longer hangs.
const callTimeout = 20 * time.Second

// subject is an open store with calls that fail the test by themselves.
type subject struct {
	tokens.Store
	t *testing.T
	// closed tells that the case has closed it already.
	closed bool
}

// open opens the store and closes it at the end of the case.
func open(t *testing.T, o Opener) *subject {
	t.Helper()
	s := &subject{Store: o.Open(t), t: t}
	t.Cleanup(func() {
		if !s.closed {
			s.close()
		}
	})
	return s
}

func (s *subject) close() {
	s.t.Helper()
	s.closed = true
	if err := s.Close(); err != nil {
		s.t.Errorf("close store: %v", err)
	}
}

func (s *subject) load(job tokens.Job) tokens.Snapshot {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), callTimeout)
	defer cancel()
	snap, err := s.Load(ctx, job)
	if err != nil {
		s.t.Fatalf("load %q: %v", job, err)
	}
	return snap
}

func (s *subject) list(q tokens.ListQuery) []tokens.Listed {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), callTimeout)
	defer cancel()
	page, err := s.List(ctx, q)
	if err != nil {
		s.t.Fatalf("list %+v: %v", q, err)
	}
	return page
}

// commit must succeed.
func (s *subject) commit(job tokens.Job, expect tokens.Version, r tokens.Record) tokens.Version {
	s.t.Helper()
	return s.commitWrites(job, expect, r)
}

// commitWrites commits a record with writes and must succeed.
func (s *subject) commitWrites(job tokens.Job, expect tokens.Version, r tokens.Record, writes ...tokens.WriteChange) tokens.Version {
	s.t.Helper()
	v, err := s.try(job, expect, r, writes...)
	if err != nil {
		s.t.Fatalf("commit %q on version %d: %v", job, expect, err)
	}
	if v == 0 {
		s.t.Fatalf("commit %q: it answered version 0, which means that there is no record", job)
	}
	return v
}

// try commits and checks that an error is of exactly one kind.
func (s *subject) try(job tokens.Job, expect tokens.Version, r tokens.Record, writes ...tokens.WriteChange) (tokens.Version, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), callTimeout)
	defer cancel()
	v, err := s.Commit(ctx, tokens.Change{Job: job, Expect: expect, Record: r, Writes: writes})
	if err != nil {
		if kindErr := oneKind(err); kindErr != nil {
			s.t.Error(kindErr)
		}
	}
	return v, err
}

// oneKind returns an error unless err is exactly one of conflict, refused, unknown.
func oneKind(err error) error {
	n := 0
	for _, kind := range []error{tokens.ErrConflict, tokens.ErrRefused, tokens.ErrUnknown} {
		if errors.Is(err, kind) {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("commit error %q is %d of ErrConflict, ErrRefused and ErrUnknown, want exactly one", err.Error(), n)
	}
	return nil
}

// wantRecord fails unless the store holds exactly this record under this version.
func (s *subject) wantRecord(job tokens.Job, v tokens.Version, want tokens.Record) {
	s.t.Helper()
	got := s.load(job)
	if got.Version != v {
		s.t.Errorf("load %q: version %d, want %d", job, got.Version, v)
	}
	if !reflect.DeepEqual(got.Record, want) {
		s.t.Errorf("load %q:\n got %s\nwant %s", job, show(got.Record), show(want))
	}
}

// show prints a record in the form in which it is stored.
func show(r tokens.Record) string {
	b, err := tokens.EncodeRecord(r)
	if err != nil {
		return fmt.Sprintf("%+v (%v)", r, err)
	}
	return string(b)
}

// sample is a valid record that differs for every g.
func sample(g tokens.Generation) tokens.Record {
	return tokens.Record{
		Floor: g, Seen: g, Issued: g,
		Lease: &tokens.Lease{Generation: g, Owner: fmt.Sprintf("owner-%d", g), ID: fmt.Sprintf("s.%d", g), TTL: 1000, Until: 2000 + int64(g), Granted: 1000 + int64(g)},
	}
}

// job returns a job of the empty namespace.
func job(id string) tokens.Job { return tokens.Job{ID: id} }
