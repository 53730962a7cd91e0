package badgerstore

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/tokenstest"
)

// directory is the data of one store, under a wall clock that tests step.
type directory struct {
	dir  string
	wall *steppedClock
}

func (d *directory) Open(t testing.TB) tokens.Store {
	t.Helper()
	return mustOpen(t, Options{Dir: d.dir, Clock: d.wall})
}

func (d *directory) StepWall(by time.Duration) { d.wall.step(by) }

func TestTheStoreConforms(t *testing.T) {
	tokenstest.Run(t, func(t testing.TB) tokenstest.Opener {
		return &directory{dir: t.TempDir(), wall: &steppedClock{}}
	})
}
