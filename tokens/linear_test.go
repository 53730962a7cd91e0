package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// history records what clients saw of one job, and which of their writes are under way.
type history struct {
	t     *testing.T
	a     *tokens.Authority
	job   tokens.Job
	began time.Time

	mu   sync.Mutex
	ops  []porcupine.Operation
	live map[tokens.Generation]int
}

// record runs one operation and notes when it was called and when it returned. One whose
// outcome is unknown may take effect at any time later.
func (h *history) record(client int, in input, run func() (tokens.Generation, error)) (output, bool) {
	called := time.Since(h.began).Nanoseconds()
	g, err := run()
	returned := time.Since(h.began).Nanoseconds()
	out, ok := answer(g, err)
	if !ok {
		return out, false
	}
	if out.unknown {
		if !errors.Is(err, tokens.ErrUnknown) {
			h.t.Errorf("%s: %v", in.kind, err)
		}
		returned = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: called, Output: out, Return: returned})
	return out, out.err == nil && !out.unknown
}

// write admits, sends and settles one write, and checks the order that the proxy
// promises: nothing newer is sent while something older may still be.
func (h *history) write(client int, rnd *rand.Rand, g tokens.Generation) {
	w := newWrite(h.job, g)
	w.TakeoverWait = time.Minute
	_, admitted := h.record(client, input{opAdmit, g}, func() (tokens.Generation, error) {
		return 0, h.a.Admit(context.Background(), &w.Attempt)
	})
	if !admitted {
		return
	}
	pause(rnd)
	if w.Gate() {
		h.mu.Lock()
		for older, n := range h.live {
			if older < g && n > 0 {
				h.t.Errorf("%s: generation %d is sent while %d writes of generation %d are under way", h.job, g, n, older)
			}
		}
		h.live[g]++
		h.mu.Unlock()
		pause(rnd)
		if rnd.IntN(2) == 0 {
			w.SentWhole()
		}
		pause(rnd)
		h.mu.Lock()
		h.live[g]--
		h.mu.Unlock()
	}
	h.a.Settle(&w.Attempt, tokens.Applied)
}

// pause lets other goroutines in between.
func pause(rnd *rand.Rand) {
	if rnd.IntN(3) == 0 {
		time.Sleep(time.Duration(rnd.IntN(50)) * time.Microsecond)
	}
}

// client is a worker with bad manners: it goes on with leases that it has lost.
func (h *history) client(id, rounds int, rnd *rand.Rand) {
	var mine []tokens.LeaseRef
	for range rounds {
		pause(rnd)
		n := rnd.IntN(10)
		switch {
		case len(mine) == 0 || n == 0:
			var l tokens.Lease
			_, granted := h.record(id, input{kind: opClaim}, func() (tokens.Generation, error) {
				g, err := h.a.Claim(context.Background(), tokens.ClaimRequest{Job: h.job, Owner: fmt.Sprint(id), TTL: time.Hour.Milliseconds()}, 0, 0)
				l = g.Lease
				return l.Generation, err
			})
			if granted {
				mine = append(mine, tokens.LeaseRef{Job: h.job, Owner: l.Owner, Generation: l.Generation, LeaseID: l.ID})
			} else if rnd.IntN(8) == 0 {
				// Somebody holds it, perhaps nobody who knows.
				h.record(id, input{kind: opRevoke}, func() (tokens.Generation, error) {
					_, err := h.a.Revoke(context.Background(), h.job, 0, "")
					return 0, err
				})
			}
		case n < 6:
			h.write(id, rnd, mine[len(mine)-1-rnd.IntN(min(2, len(mine)))].Generation)
		case n < 8:
			ref := mine[len(mine)-1]
			h.record(id, input{opRenew, ref.Generation}, func() (tokens.Generation, error) {
				_, err := h.a.Renew(context.Background(), ref, 0)
				return 0, err
			})
		default:
			ref := mine[len(mine)-1-rnd.IntN(min(2, len(mine)))]
			h.record(id, input{opRelease, ref.Generation}, func() (tokens.Generation, error) {
				_, err := h.a.Release(context.Background(), ref, 0, "")
				return 0, err
			})
			if rnd.IntN(2) == 0 {
				mine = nil
			}
		}
	}
}

// TestConcurrentHistoriesAreLinearizable lets clients loose on jobs of a store that fails
// now and then, and asks porcupine whether what they saw could have happened one after
// the other, with each operation somewhere between its call and its return.
func TestConcurrentHistoriesAreLinearizable(t *testing.T) {
	for round := range 6 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Logf("seed %d", seed)
			p := startShared(t, tokens.Options{})
			var mu sync.Mutex
			faults := rand.New(rand.NewPCG(seed, 0))
			p.store.Decide = func(tokens.Change) tokenstest.Mode {
				mu.Lock()
				defer mu.Unlock()
				modes := []tokenstest.Mode{tokenstest.Refuse, tokenstest.WriteAndFail, tokenstest.DropAndUnknown}
				if n := faults.IntN(120); n < len(modes) {
					return modes[n]
				}
				return tokenstest.Healthy
			}
			var wg sync.WaitGroup
			var jobs []*history
			for i := range 3 {
				h := &history{t: t, a: p.Authority, job: tokens.Job{ID: fmt.Sprint("job-", i)}, began: time.Now(), live: make(map[tokens.Generation]int)}
				jobs = append(jobs, h)
				for id := range 4 {
					rnd := rand.New(rand.NewPCG(seed, uint64(1+10*i+id)))
					wg.Go(func() { h.client(id, 60, rnd) })
				}
			}
			wg.Wait()
			for _, h := range jobs {
				h.check()
			}
		})
	}
}

func (h *history) check() {
	h.t.Helper()
	granted := 0
	for _, op := range h.ops {
		if op.Output.(output).g != 0 {
			granted++
		}
	}
	if granted < 3 {
		h.t.Errorf("%s: a history with %d grants proves little", h.job, granted)
	}
	model := jobModel()
	if result := porcupine.CheckOperationsTimeout(model, h.ops, 20*time.Second); result != porcupine.Ok {
		for _, op := range h.ops {
			h.t.Logf("%10d-%-10d client %d: %s", op.Call, op.Return, op.ClientId, model.DescribeOperation(op.Input, op.Output))
		}
		h.t.Errorf("%s: a history of %d operations is not linearizable: %s", h.job, len(h.ops), result)
	}
}

// TestTheHistoryModelBites proves that the model refuses what must not happen.
func TestTheHistoryModelBites(t *testing.T) {
	op := func(at int64, in input, out output) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: at, Return: at + 1}
	}
	claim, release := input{kind: opClaim}, input{opRelease, 1}
	for name, h := range map[string][]porcupine.Operation{
		"two holders":              {op(1, claim, output{g: 1}), op(3, claim, output{g: 2})},
		"a generation used twice":  {op(1, claim, output{g: 1}), op(3, release, output{}), op(5, claim, output{g: 1})},
		"a stale write":            {op(1, claim, output{g: 1}), op(3, release, output{}), op(5, input{opAdmit, 1}, output{})},
		"a refused holder":         {op(1, claim, output{g: 1}), op(3, input{opAdmit, 1}, output{err: tokens.ErrStaleGeneration})},
		"an unissued write":        {op(1, claim, output{g: 1}), op(3, input{opAdmit, 2}, output{})},
		"a renewal after the end":  {op(1, claim, output{g: 1}), op(3, release, output{}), op(5, input{opRenew, 1}, output{})},
		"a lost holder":            {op(1, claim, output{g: 1}), op(3, input{opRenew, 1}, output{err: tokens.ErrLeaseLost})},
		"a release after a revoke": {op(1, claim, output{g: 1}), op(3, input{kind: opRevoke}, output{}), op(5, release, output{})},
	} {
		if porcupine.CheckOperations(jobModel(), h) {
			t.Errorf("the model allows %s", name)
		}
	}
}
