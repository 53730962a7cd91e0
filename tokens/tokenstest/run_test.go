package tokenstest

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// TestMemoryKeepsTheContract runs the suite on the reference store.
func TestMemoryKeepsTheContract(t *testing.T) {
	Run(t, func(testing.TB) Opener { return newWalled() })
}

// TestASharedMemoryKeepsTheContract runs it on one that says that it is shared.
func TestASharedMemoryKeepsTheContract(t *testing.T) {
	Run(t, func(testing.TB) Opener {
		m := NewMemory(nil)
		m.Configure(false, 3)
		return m
	})
}

// TestAHealthyFaultyStoreKeepsTheContract proves that the wrapper adds nothing.
func TestAHealthyFaultyStoreKeepsTheContract(t *testing.T) {
	Run(t, func(testing.TB) Opener {
		m := NewMemory(nil)
		return OpenFunc(func(t testing.TB) tokens.Store { return NewFaulty(m.Reopen()) })
	})
}

// walled is a memory store whose wall clock can be stepped.
type walled struct {
	*Memory
	step time.Duration
}

func newWalled() *walled {
	w := &walled{}
	w.Memory = NewMemory(func() time.Time { return time.Now().Add(w.step) })
	return w
}

// StepWall implements WallStepper. The store is idle when it is called.
func (w *walled) StepWall(d time.Duration) { w.step += d }
