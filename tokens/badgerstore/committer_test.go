package badgerstore

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// gate is a commit seam that holds each transaction until the test lets it go.
type gate struct {
	entered chan struct{}
	release chan error
	// done lets everything through from then on.
	done chan struct{}
}

func newGate() *gate {
	return &gate{make(chan struct{}, 64), make(chan error), make(chan struct{})}
}

func (g *gate) commit(db *badger.DB, sequence uint64, entries []entry) error {
	select {
	case <-g.done:
		return commitAt(db, sequence, entries)
	case g.entered <- struct{}{}:
	}
	select {
	case err := <-g.release:
		if err != nil {
			return err
		}
	case <-g.done:
	}
	return commitAt(db, sequence, entries)
}

// openGated returns a store whose commits from now on pass the gate.
func openGated(t *testing.T, opt Options) (*Store, *gate) {
	g := newGate()
	sm := neverBeats()
	var armed atomic.Bool
	sm.commit = func(db *badger.DB, sequence uint64, entries []entry) error {
		if armed.Load() {
			return g.commit(db, sequence, entries)
		}
		return commitAt(db, sequence, entries)
	}
	s := mustOpenWith(t, opt, sm)
	armed.Store(true)
	t.Cleanup(func() {
		select {
		case <-g.done:
		default:
			close(g.done)
		}
	})
	return s, g
}

// start commits in the background.
func start(ctx context.Context, s *Store, j tokens.Job, g tokens.Generation) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := s.Commit(ctx, tokens.Change{Job: j, Record: atFloor(g)})
		result <- err
	}()
	return result
}

// awaitQueue waits until n commits are queued.
func awaitQueue(t *testing.T, s *Store, n int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		s.mu.Lock()
		queued := len(s.queue)
		s.mu.Unlock()
		if queued == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d commits are queued, want %d", queued, n)
		}
		runtime.Gosched()
	}
}

func TestCommitsThatQueueDuringASyncShareTheNextOne(t *testing.T) {
	const writers = 64
	var mu sync.Mutex
	var batches []int
	s, g := openGated(t, Options{Dir: t.TempDir(), ObserveBatch: func(n int) {
		mu.Lock()
		batches = append(batches, n)
		mu.Unlock()
	}})
	results := []<-chan error{start(t.Context(), s, jobN(0), 1)}
	<-g.entered
	for i := 1; i < writers; i++ {
		results = append(results, start(t.Context(), s, jobN(i), 1))
	}
	awaitQueue(t, s, writers-1)
	close(g.done)
	for i, r := range results {
		if err := <-r; err != nil {
			t.Errorf("commit %d: %v", i, err)
		}
	}
	closeStore(t, s)
	sum := 0
	for _, n := range batches {
		sum += n
	}
	if sum != writers || len(batches) != 2 {
		t.Errorf("%d commits went in batches %v, want %d in 2", sum, batches, writers)
	}
}

func TestAConflictInABatchIsItsOwnOnly(t *testing.T) {
	s, g := openGated(t, Options{Dir: t.TempDir()})
	first := start(t.Context(), s, job("first"), 1)
	<-g.entered
	one := start(t.Context(), s, job("same"), 1)
	awaitQueue(t, s, 1)
	two := start(t.Context(), s, job("same"), 2)
	awaitQueue(t, s, 2)
	other := start(t.Context(), s, job("other"), 1)
	awaitQueue(t, s, 3)
	close(g.done)
	for _, r := range []<-chan error{first, one, other} {
		if err := <-r; err != nil {
			t.Error(err)
		}
	}
	wantError(t, <-two, tokens.ErrConflict)
	if got := floorOf(t, s, job("same")); got != 1 {
		t.Errorf("the floor is %d, want the first commit's", got)
	}
}

func TestACommitThatIsStillQueuedWhenItsContextEndsIsNotWritten(t *testing.T) {
	s, g := openGated(t, Options{Dir: t.TempDir()})
	first := start(t.Context(), s, job("first"), 1)
	<-g.entered
	ctx, cancel := context.WithCancel(t.Context())
	queued := start(ctx, s, job("queued"), 1)
	awaitQueue(t, s, 1)
	cancel()
	wantError(t, <-queued, tokens.ErrRefused)
	close(g.done)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if got := floorOf(t, s, job("queued")); got != 0 {
		t.Errorf("a refused commit was written: floor %d", got)
	}
	if err := s.Err(); err != nil {
		t.Errorf("the store is closed for writes: %v", err)
	}
}

func TestACommitThatHangsHasAnUnknownOutcomeAndIsTheLast(t *testing.T) {
	dir := t.TempDir()
	s, g := openGated(t, Options{Dir: dir})
	ctx, cancel := context.WithCancel(t.Context())
	hanging := start(ctx, s, job("hanging"), 1)
	<-g.entered
	queued := start(t.Context(), s, job("queued"), 1)
	awaitQueue(t, s, 1)
	cancel()
	wantError(t, <-hanging, tokens.ErrUnknown)
	// Nobody waits for the disk to wake up.
	wantError(t, <-queued, tokens.ErrRefused)
	wantError(t, <-start(t.Context(), s, job("later"), 1), tokens.ErrRefused)
	if s.Err() == nil {
		t.Error("the store says that it takes writes")
	}
	close(g.done)
	closeStore(t, s)
	s = mustOpen(t, Options{Dir: dir})
	if got := floorOf(t, s, job("queued")); got != 0 {
		t.Errorf("a refused commit was written: floor %d", got)
	}
	mustRaise(t, s, job("later"), 1)
}

func TestAFailedCommitClosesTheStoreForWrites(t *testing.T) {
	broken := errors.New("input/output error")
	s, g := openGated(t, Options{Dir: t.TempDir()})
	failing := start(t.Context(), s, job("failing"), 1)
	<-g.entered
	g.release <- broken
	err := <-failing
	wantError(t, err, tokens.ErrUnknown)
	wantError(t, err, broken)
	wantError(t, <-start(t.Context(), s, job("later"), 1), tokens.ErrRefused)
	wantError(t, s.Err(), broken)
	if got := floorOf(t, s, job("later")); got != 0 {
		t.Errorf("a refused commit was written: floor %d", got)
	}
}

func TestACommitWhoseNumberCouldNotBeRememberedIsNotAcknowledged(t *testing.T) {
	broken := errors.New("input/output error")
	sm := neverBeats()
	var syncs, failFrom atomic.Int32
	failFrom.Store(1 << 30)
	sm.sync = func(f *os.File) error {
		if syncs.Add(1) >= failFrom.Load() {
			return broken
		}
		return syncData(f)
	}
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, sm)
	failFrom.Store(0)
	before := syncs.Load()
	wantError(t, <-start(t.Context(), s, job("j"), 1), tokens.ErrUnknown)
	wantError(t, <-start(t.Context(), s, job("later"), 1), tokens.ErrRefused)
	wantError(t, s.Err(), broken)
	_ = s.Close()
	if n := syncs.Load() - before; n != 1 {
		t.Errorf("the sidecar was synced %d times after the failure, want never again", n-1)
	}
}

func TestTooLargeARecordIsRefused(t *testing.T) {
	s := mustOpen(t, Options{Dir: t.TempDir()})
	r := atFloor(1)
	r.Result = []byte(`"` + strings.Repeat("x", maxBatchBytes) + `"`)
	_, err := s.Commit(t.Context(), tokens.Change{Job: job("j"), Record: r})
	wantError(t, err, tokens.ErrRefused)
	mustRaise(t, s, job("j"), 1)
}

// fat is a record of which few fill a log.
func fat(g tokens.Generation) tokens.Record {
	r := atFloor(g)
	r.Result = []byte(`"` + strings.Repeat("x", maxBatchBytes*3/4) + `"`)
	return r
}

func TestANewLogIsNoticedBeforeItsFirstBatchIsAcknowledged(t *testing.T) {
	dir := t.TempDir()
	s := mustOpenWith(t, Options{Dir: dir}, neverBeats())
	first := s.log
	for n := range 3 * memTableSize / maxBatchBytes {
		if _, err := s.Commit(t.Context(), tokens.Change{Job: jobN(n), Record: fat(1)}); err != nil {
			t.Fatal(err)
		}
	}
	files, err := listFiles(storeDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	newest := logNumber(files.logs[len(files.logs)-1])
	closeStore(t, s)
	if newest <= first || s.log != newest {
		t.Errorf("the committer knows log %d, the newest is %d, the first was %d", s.log, newest, first)
	}
}

// Old versions go when nobody can read them, and only then.
func TestAReaderNeverMissesARecordThatIsBeingRewritten(t *testing.T) {
	s := mustOpen(t, Options{Dir: t.TempDir()})
	j := job("j")
	mustRaise(t, s, j, 1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := tokens.Generation(1)
			for {
				select {
				case <-stop:
					return
				default:
				}
				snap, err := s.Load(context.Background(), j)
				if err != nil || snap.Record.Floor < last {
					t.Errorf("floor %d after %d (%v)", snap.Record.Floor, last, err)
					return
				}
				last = snap.Record.Floor
			}
		})
	}
	v := tokens.Version(0)
	for g := tokens.Generation(2); g < 40; g++ {
		snap, err := s.Load(t.Context(), j)
		if err != nil || snap.Version <= v {
			t.Fatalf("version %d after %d (%v)", snap.Version, v, err)
		}
		v = snap.Version
		if _, err := s.Commit(t.Context(), tokens.Change{Job: j, Expect: v, Record: fat(g)}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}
