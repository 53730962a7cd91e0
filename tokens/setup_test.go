package tokens_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

var j1 = tokens.Job{ID: "j1"}

// process is an authority over a memory store that fails on demand.
type process struct {
	*tokens.Authority
	t     *testing.T
	mem   *tokenstest.Memory
	store *tokenstest.Faulty
}

// start begins with an empty store.
func start(t *testing.T, opt tokens.Options) *process {
	t.Helper()
	return startOn(t, tokenstest.NewMemory(nil), opt)
}

// startShared begins with an empty store that says that it is shared.
func startShared(t *testing.T, opt tokens.Options) *process {
	t.Helper()
	mem := tokenstest.NewMemory(nil)
	mem.Configure(false, 0)
	return startOn(t, mem.Reopen(), opt)
}

func startOn(t *testing.T, mem *tokenstest.Memory, opt tokens.Options) *process {
	t.Helper()
	p := &process{t: t, mem: mem, store: tokenstest.NewFaulty(mem)}
	var err error
	if p.Authority, err = tokens.NewAuthority(t.Context(), p.store, opt); err != nil {
		t.Fatal(err)
	}
	return p
}

// crash ends the process and starts another on its data.
func (p *process) crash(opt tokens.Options) *process {
	p.t.Helper()
	return startOn(p.t, p.mem.Reopen(), opt)
}

// write is an attempt that counts how often it was cut.
type write struct {
	tokens.Attempt
	cuts atomic.Int32
}

// Cut implements tokens.Cutter.
func (w *write) Cut() { w.cuts.Add(1) }

func newWrite(job tokens.Job, g tokens.Generation) *write {
	w := &write{}
	w.Job, w.Generation, w.Cutter, w.TakeoverWait = job, g, w, 10*time.Second
	return w
}

// admit must succeed.
func (p *process) admit(g tokens.Generation) *write {
	p.t.Helper()
	w := newWrite(j1, g)
	if err := p.Admit(p.t.Context(), &w.Attempt); err != nil {
		p.t.Fatalf("admit generation %d: %v", g, err)
	}
	return w
}

// sending is admitted and has passed the gate.
func (p *process) sending(g tokens.Generation) *write {
	p.t.Helper()
	w := p.admit(g)
	if !w.Gate() {
		p.t.Fatalf("the gate vetoed generation %d", g)
	}
	return w
}

// sent was sent whole and waits for its reply.
func (p *process) sent(g tokens.Generation) *write {
	p.t.Helper()
	w := p.sending(g)
	w.SentWhole()
	return w
}

// refused must be refused.
func (p *process) refused(g tokens.Generation, want error) *tokens.Refusal {
	p.t.Helper()
	w := newWrite(j1, g)
	err := p.Admit(p.t.Context(), &w.Attempt)
	wantErr(p.t, err, want)
	var ref *tokens.Refusal
	errors.As(err, &ref)
	return ref
}

// claim must succeed; it does not wait.
func (p *process) claim(owner string, ttl time.Duration) tokens.Grant {
	p.t.Helper()
	g, err := p.Claim(p.t.Context(), request(owner, ttl), 0, 0)
	if err != nil {
		p.t.Fatalf("claim for %s: %v", owner, err)
	}
	return g
}

func request(owner string, ttl time.Duration) tokens.ClaimRequest {
	return tokens.ClaimRequest{Job: j1, Owner: owner, TTL: ttl.Milliseconds()}
}

func refOf(l tokens.Lease) tokens.LeaseRef {
	return tokens.LeaseRef{Job: j1, Owner: l.Owner, Generation: l.Generation, LeaseID: l.ID}
}

// inFlight is how many attempts are registered.
func (p *process) inFlight() int {
	p.t.Helper()
	v, err := p.Job(context.Background(), j1)
	if errors.Is(err, tokens.ErrJobNotFound) {
		return 0
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return v.InFlight
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

// later runs f and tells whether it is done and what it answered.
type later struct {
	err  error
	done atomic.Bool
	took time.Duration
}

func background(f func() error) *later {
	l := &later{}
	began := time.Now()
	go func() {
		l.err = f()
		l.took = time.Since(began)
		l.done.Store(true)
	}()
	return l
}

// admitLater admits in the background and returns once it is admitted or blocked. It
// needs a synctest bubble.
func (p *process) admitLater(w *write) *later {
	l := background(func() error { return p.Admit(p.t.Context(), &w.Attempt) })
	synctest.Wait()
	return l
}

// waiting fails unless it is still blocked; answered unless it has come back.
func (l *later) waiting(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if l.done.Load() {
		t.Fatalf("it did not wait: %v", l.err)
	}
}

func (l *later) answered(t *testing.T, want error, took time.Duration) {
	t.Helper()
	synctest.Wait()
	if !l.done.Load() {
		t.Fatal("it is still waiting")
	}
	if want == nil && l.err != nil || !errors.Is(l.err, want) {
		t.Fatalf("%v, want %v", l.err, want)
	}
	if l.took != took {
		t.Fatalf("it took %v, want %v", l.took, took)
	}
}

// quiet watches a store for a caller that polls it.
type quiet struct {
	t      *testing.T
	ctx    context.Context
	store  *tokenstest.Faulty
	before int
}

// watchLoads gives callers a context that ends when the test does.
func watchLoads(t *testing.T, s *tokenstest.Faulty) *quiet {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	loads, _ := s.Counts()
	return &quiet{t: t, ctx: ctx, store: s, before: loads}
}

// until yields until done, and fails when the store has been asked far more often than
// anybody needs, or after ten seconds.
func (q *quiet) until(done func() bool) {
	q.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	settled := 0
	for settled < 200 { // some time more, for those who poll after they are done
		if done() {
			settled++
		}
		if loads, _ := q.store.Counts(); loads > q.before+100 {
			q.t.Fatalf("the store was asked %d times: somebody polls it", loads-q.before)
		}
		if time.Now().After(deadline) {
			q.t.Fatal("it does not come to an end")
		}
		runtime.Gosched()
	}
}
