package badgerstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// The directory is copied at random moments, also while a log is turned over, as a
// crash would leave it. What was acknowledged before the copy began must be in it.
func TestACrashLosesNothingThatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, Options{Dir: dir})
	const writers = 8
	var acknowledged [writers]atomic.Uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			j := job(fmt.Sprint("w", w))
			v := tokens.Version(0)
			for g := tokens.Generation(1); ; g++ {
				select {
				case <-stop:
					return
				default:
				}
				r := atFloor(g)
				if w == 0 {
					r = fat(g) // turns the log over every few commits
				}
				var err error
				if v, err = s.Commit(t.Context(), tokens.Change{Job: j, Expect: v, Record: r}); err != nil {
					t.Errorf("commit: %v", err)
					return
				}
				acknowledged[w].Store(uint64(g))
			}
		})
	}
	opened := 0
	for range 8 {
		var want [writers]tokens.Generation
		for w := range want {
			want[w] = tokens.Generation(acknowledged[w].Load())
		}
		image := t.TempDir()
		copyDir(t, dir, image)
		c, err := open(Options{Dir: image}, neverBeats())
		if err != nil {
			// A copy takes time, so it may miss a log that became a table
			// meanwhile; a crash does not. Refusing it is right.
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("open image: %v", err)
			}
			continue
		}
		opened++
		for w := range want {
			if got := floorOf(t, c, job(fmt.Sprint("w", w))); got < want[w] {
				t.Errorf("floor %d was acknowledged, the image has %d", want[w], got)
			}
		}
		closeStore(t, c)
	}
	close(stop)
	wg.Wait()
	if opened == 0 {
		t.Error("no image could be opened, so nothing was tested")
	}
	t.Logf("%d of 8 images opened", opened)
}
