package badgerstore

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// endOf is the last change that a log holds whole.
func endOf(t *testing.T, log []byte) uint64 {
	t.Helper()
	s, err := readLog(log, func([]byte, []byte, uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	return s.last
}

// newestLog is the path of the log with the highest number.
func newestLog(t *testing.T, dir string) string {
	t.Helper()
	files, err := listFiles(storeDir(dir))
	if err != nil || len(files.logs) == 0 {
		t.Fatalf("logs %v (%v)", files.logs, err)
	}
	return files.logs[len(files.logs)-1]
}

func needsOwnSync(t *testing.T, s *Store) {
	t.Helper()
	if s.db.Opts().SyncWrites == syncsLog {
		t.Error("the log is synced twice, or not at all: an acknowledged floor can vanish with the power")
	}
}

// disk is what would be left after the power failed: what was synced, when it was synced.
type disk struct {
	mu        sync.Mutex
	log       string
	logBytes  []byte
	sideBytes []byte
}

func (d *disk) keep(f *os.File, side bool) error {
	// Read through another descriptor: the one that is synced has no place of its own.
	b, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	if err := syncData(f); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if side {
		d.sideBytes = b
	} else {
		d.log, d.logBytes = filepath.Base(f.Name()), b
	}
	return nil
}

// image copies a store as the disk has it: of its log and sequence file what was synced.
func (d *disk) image(t *testing.T, dir string) string {
	t.Helper()
	image := t.TempDir()
	copyDir(t, dir, image)
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, b := range map[string][]byte{
		filepath.Join(storeDir(image), d.log): d.logBytes,
		sidecarPath(image):                    d.sideBytes,
	} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return image
}

func TestWhatIsAcknowledgedSurvivesTheLossOfEverythingThatWasNotSynced(t *testing.T) {
	dir := t.TempDir()
	d := &disk{}
	sm := neverBeats()
	sm.sync = func(f *os.File) error { return d.keep(f, true) }
	sm.syncLog = func(f *os.File) error { return d.keep(f, false) }
	s := mustOpenWith(t, Options{Dir: dir}, sm)
	needsOwnSync(t, s)
	if !syncsLog {
		return
	}
	for g := tokens.Generation(1); g <= 12; g++ {
		mustRaise(t, s, job("j"), g)
		if got := endOf(t, d.logBytes); got != s.acknowledged.Load() {
			t.Fatalf("change %d was acknowledged, the log was synced with change %d", s.acknowledged.Load(), got)
		}
		c := mustOpenWith(t, Options{Dir: d.image(t, dir)}, neverBeats())
		if got := floorOf(t, c, job("j")); got != g {
			t.Fatalf("floor %d was acknowledged, the disk has %d", g, got)
		}
		closeStore(t, c)
	}
}

// Not by luck with the sequence file either: the log alone holds it.
func TestACommitIsNotAcknowledgedBeforeItsLogIsSynced(t *testing.T) {
	if !syncsLog {
		return
	}
	dir := t.TempDir()
	sm := neverBeats()
	var armed atomic.Bool
	entered, release := make(chan uint64), make(chan struct{})
	sm.syncLog = func(f *os.File) error {
		if armed.Load() {
			b, err := os.ReadFile(f.Name())
			if err != nil {
				return err
			}
			entered <- endOf(t, b)
			<-release
		}
		return syncData(f)
	}
	s := mustOpenWith(t, Options{Dir: dir}, sm)
	before := s.acknowledged.Load()
	armed.Store(true)
	one := start(t.Context(), s, job("one"), 1)
	select {
	case got := <-entered:
		if got != before+1 {
			t.Errorf("the log is synced with change %d in it, want %d", got, before+1)
		}
	case err := <-one:
		t.Fatalf("acknowledged (%v), and no log was synced", err)
	}
	two := start(t.Context(), s, job("two"), 1)
	awaitQueue(t, s, 1)
	select {
	case <-one:
		t.Error("acknowledged before the log was synced")
	default:
	}
	if got := s.acknowledged.Load(); got != before {
		t.Errorf("change %d can be read before the log was synced", got)
	}
	armed.Store(false)
	close(release)
	for _, r := range []<-chan error{one, two} {
		if err := <-r; err != nil {
			t.Error(err)
		}
	}
}

func TestALogThatCanNotBeSyncedClosesTheStoreForWrites(t *testing.T) {
	if !syncsLog {
		return
	}
	sm := neverBeats()
	var armed atomic.Bool
	var syncs atomic.Int32
	sm.syncLog = func(f *os.File) error {
		if armed.Load() {
			syncs.Add(1)
			return io.ErrShortWrite
		}
		return syncData(f)
	}
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, sm)
	armed.Store(true)
	wantError(t, <-start(t.Context(), s, job("j"), 1), tokens.ErrUnknown)
	wantError(t, <-start(t.Context(), s, job("later"), 1), tokens.ErrRefused)
	wantError(t, s.Err(), io.ErrShortWrite)
	_ = s.Close()
	if n := syncs.Load(); n != 1 {
		t.Errorf("the log was synced %d times after the failure, want never again", n-1)
	}
}

// Whatever turns the log over: it is the log with the newest change that is synced.
func TestTheLogThatIsSyncedHoldsTheBatchAlsoWhenItTurnsOver(t *testing.T) {
	if !syncsLog {
		return
	}
	dir := t.TempDir()
	sm := neverBeats()
	var synced atomic.Pointer[string]
	var end atomic.Uint64
	sm.syncLog = func(f *os.File) error {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			return err
		}
		name := f.Name()
		synced.Store(&name)
		end.Store(endOf(t, b))
		return syncData(f)
	}
	s := mustOpenWith(t, Options{Dir: dir}, sm)
	logs := make(map[string]bool)
	for n := range 3 * memTableSize / maxBatchBytes {
		if _, err := s.Commit(t.Context(), tokens.Change{Job: jobN(n), Record: fat(1)}); err != nil {
			t.Fatal(err)
		}
		logs[*synced.Load()] = true
		if got, want := end.Load(), s.acknowledged.Load(); got != want {
			t.Errorf("change %d was acknowledged, the synced log ends at %d", want, got)
		}
		if got, want := *synced.Load(), newestLog(t, dir); got != want {
			t.Errorf("%s was synced, %s is the newest", got, want)
		}
	}
	if len(logs) < 2 {
		t.Error("the log did not turn over")
	}
}

// A value in the value log would not be synced, nor found by the look before a start.
func TestNothingReachesTheValueLog(t *testing.T) {
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, neverBeats())
	most := s.db.Opts().ValueThreshold
	if most < maxBatchBytes {
		t.Errorf("a value of %d bytes goes to the value log, a batch has up to %d", most, maxBatchBytes)
	}
	err := commitAt(s.db, s.sequence+1, []entry{{key: []byte("r"), value: make([]byte, most)}})
	if err == nil {
		t.Error("a value for the value log was committed")
	}
	if _, version, err := get(s.db, s.sequence+1, []byte("r")); err != nil || version != 0 {
		t.Errorf("it was written at %d (%v)", version, err)
	}
	if err := errors.Join(s.Err(), raise(t.Context(), s, job("j"), 1)); err != nil {
		t.Error(err)
	}
}
