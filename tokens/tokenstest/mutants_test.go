package tokenstest

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// mutant is a memory store with one promise broken. A nil field keeps the promise.
type mutant struct {
	*Memory
	load   func(ctx context.Context, m *Memory, job tokens.Job) (tokens.Snapshot, error)
	commit func(ctx context.Context, m *Memory, c tokens.Change) (tokens.Version, error)
	list   func(ctx context.Context, m *Memory, q tokens.ListQuery) ([]tokens.Listed, error)
	write  func(ctx context.Context, m *Memory, job tokens.Job, key string) (tokens.WriteRecord, error)
	writes func(ctx context.Context, m *Memory, q tokens.WritesQuery) ([]tokens.ListedWrite, error)
	info   func(i tokens.Info) tokens.Info
	err    func(m *Memory) error
	close  func(m *Memory) error
}

func (x *mutant) Load(ctx context.Context, job tokens.Job) (tokens.Snapshot, error) {
	if x.load == nil {
		return x.Memory.Load(ctx, job)
	}
	return x.load(ctx, x.Memory, job)
}

func (x *mutant) Commit(ctx context.Context, c tokens.Change) (tokens.Version, error) {
	if x.commit == nil {
		return x.Memory.Commit(ctx, c)
	}
	return x.commit(ctx, x.Memory, c)
}

func (x *mutant) List(ctx context.Context, q tokens.ListQuery) ([]tokens.Listed, error) {
	if x.list == nil {
		return x.Memory.List(ctx, q)
	}
	return x.list(ctx, x.Memory, q)
}

func (x *mutant) LoadWrite(ctx context.Context, job tokens.Job, key string) (tokens.WriteRecord, error) {
	if x.write == nil {
		return x.Memory.LoadWrite(ctx, job, key)
	}
	return x.write(ctx, x.Memory, job, key)
}

func (x *mutant) ListWrites(ctx context.Context, q tokens.WritesQuery) ([]tokens.ListedWrite, error) {
	if x.writes == nil {
		return x.Memory.ListWrites(ctx, q)
	}
	return x.writes(ctx, x.Memory, q)
}

func (x *mutant) Info() tokens.Info {
	if x.info == nil {
		return x.Memory.Info()
	}
	return x.info(x.Memory.Info())
}

func (x *mutant) Err() error {
	if x.err == nil {
		return x.Memory.Err()
	}
	return x.err(x.Memory)
}

func (x *mutant) Close() error {
	if x.close == nil {
		return x.Memory.Close()
	}
	return x.close(x.Memory)
}

// breed makes an Opener whose every opening is changed by change.
func breed(change func(x *mutant)) func() Opener {
	return func() Opener {
		w := newWalled()
		return &bred{walled: w, open: func(testing.TB) tokens.Store {
			x := &mutant{Memory: w.Reopen()}
			change(x)
			return x
		}}
	}
}

// bred is an Opener of mutants with a wall clock.
type bred struct {
	*walled
	open OpenFunc
}

func (b *bred) Open(t testing.TB) tokens.Store { return b.open(t) }

// broken is one mutant and the case of the suite that has to reject it.
type broken struct {
	name string
	make func() Opener
	by   string
}

func mutants() []broken {
	return slices.Concat(commitMutants(), loadMutants(), listMutants(), nameMutants(), lifeMutants(), writeMutants(), writeListMutants())
}

// mutantVariable names the mutant that a child process has to run the suite on.
const mutantVariable = "FENCEPROXY_TEST_MUTANT"

// reported tells whether the output of go test reports that the case failed.
func reported(out []byte, name string) bool {
	return bytes.Contains(out, []byte("--- FAIL: TestOneMutant/"+name))
}
