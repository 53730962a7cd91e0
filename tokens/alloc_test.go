package tokens_test

import (
	"fmt"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// idle is a Cutter that does nothing and allocates nothing.
type idle struct{}

// Cut implements tokens.Cutter.
func (idle) Cut() {}

// hot is an authority that has admitted generation 7 of each job once.
func hot(tb testing.TB, jobs int) (*tokens.Authority, []tokens.Job) {
	tb.Helper()
	a, err := tokens.NewAuthority(tb.Context(), tokenstest.NewMemory(nil), tokens.Options{MaxPerJob: 1 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	names := make([]tokens.Job, jobs)
	for i := range names {
		names[i] = tokens.Job{Namespace: "payments", ID: fmt.Sprintf("tenant/42/job-%06d", i)}
		at := &tokens.Attempt{Write: tokens.Write{Job: names[i], Generation: 7}, Cutter: idle{}}
		if err := a.Admit(tb.Context(), at); err != nil {
			tb.Fatal(err)
		}
		a.Settle(at, tokens.Applied)
	}
	return a, names
}

func admitAndSettle(tb testing.TB, a *tokens.Authority, at *tokens.Attempt) {
	if err := a.Admit(tb.Context(), at); err != nil {
		tb.Error(err)
		return
	}
	at.Gate()
	at.SentWhole()
	a.Settle(at, tokens.Applied)
}

func TestAdmittingTheSameGenerationDoesNotAllocate(t *testing.T) {
	a, names := hot(t, 1)
	at := &tokens.Attempt{Write: tokens.Write{Job: names[0], Generation: 7}, Cutter: idle{}}
	ctx := t.Context()
	n := testing.AllocsPerRun(1000, func() {
		if err := a.Admit(ctx, at); err != nil {
			t.Error(err)
		}
		at.Gate()
		at.SentWhole()
		a.Settle(at, tokens.Applied)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkAdmitSettle is the hot path: one write of a job whose floor does not change.
func BenchmarkAdmitSettle(b *testing.B) {
	a, names := hot(b, 1)
	at := &tokens.Attempt{Write: tokens.Write{Job: names[0], Generation: 7}, Cutter: idle{}}
	b.ReportAllocs()
	for b.Loop() {
		admitAndSettle(b, a, at)
	}
}

// BenchmarkAdmitSettleParallel has every processor write to other jobs of many.
func BenchmarkAdmitSettleParallel(b *testing.B) {
	a, names := hot(b, 10_000)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		at := &tokens.Attempt{Write: tokens.Write{Generation: 7}, Cutter: idle{}}
		for i := 0; pb.Next(); i++ {
			at.Job = names[i%len(names)]
			admitAndSettle(b, a, at)
		}
	})
}

// BenchmarkAdmitSettleOneHotJob has every processor write to the same job.
func BenchmarkAdmitSettleOneHotJob(b *testing.B) {
	a, names := hot(b, 1)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		at := &tokens.Attempt{Write: tokens.Write{Job: names[0], Generation: 7}, Cutter: idle{}}
		for pb.Next() {
			admitAndSettle(b, a, at)
		}
	})
}

// BenchmarkRefuseStale is what a fenced client that will not lie down costs.
func BenchmarkRefuseStale(b *testing.B) {
	a, names := hot(b, 1)
	at := &tokens.Attempt{Write: tokens.Write{Job: names[0], Generation: 6}, Cutter: idle{}}
	b.ReportAllocs()
	for b.Loop() {
		if a.Admit(b.Context(), at) == nil {
			b.Fatal("a stale write was admitted")
		}
	}
}
