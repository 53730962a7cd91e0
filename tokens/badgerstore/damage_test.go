package badgerstore

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// copyDir copies what a crash at this moment would leave: the sequence file first, so
// that it is never ahead of the rest.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	copyFile(t, sidecarPath(from), sidecarPath(to))
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == sidecarPath(from) {
			return nil // files come and go under a running store
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		copyFile(t, path, filepath.Join(to, rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// copyFile leaves out a file that is gone.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if os.IsNotExist(err) {
		return
	}
	if err == nil {
		// Badger's logs are mostly zeros that were never written.
		err = os.WriteFile(to, trimmed(b), 0o600)
	}
	if err == nil {
		err = os.Truncate(to, int64(len(b)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

const damagedJobs = 1000

// crashed returns the image of a store that died with a full log: as many jobs as
// commits, the floor of each its number plus one.
func crashed(t testing.TB) string {
	t.Helper()
	dir, image := t.TempDir(), t.TempDir()
	s := mustOpenWith(t, Options{Dir: dir}, neverBeats())
	for n := range damagedJobs {
		mustRaise(t, s, jobN(n), tokens.Generation(n+1))
	}
	copyDir(t, dir, image)
	closeStore(t, s)
	return image
}

// stopped returns the image of the same store after an orderly end: all in tables.
func stopped(t testing.TB) string {
	t.Helper()
	image := crashed(t)
	closeStore(t, mustOpenWith(t, Options{Dir: image}, neverBeats()))
	return image
}

// wantIntactOrRefused opens a directory twice and tells whether it was refused.
func wantIntactOrRefused(t *testing.T, dir, what string) (refusal error) {
	t.Helper()
	for range 2 {
		s, err := open(Options{Dir: dir}, neverBeats())
		if err != nil {
			wantError(t, err, ErrDamaged)
			if !strings.Contains(err.Error(), "fenceproxy salvage --data "+dir) {
				t.Errorf("%s: the refusal names no way out: %v", what, err)
			}
			refusal = err
			continue
		}
		if refusal != nil {
			t.Errorf("%s: refused at first, then opened", what)
		}
		for n := range damagedJobs {
			snap, err := s.Load(t.Context(), jobN(n))
			if err == nil && snap.Record.Floor != tokens.Generation(n+1) {
				t.Errorf("%s: it opened, and the floor of %s is %d", what, jobN(n), snap.Record.Floor)
				break
			}
		}
		closeStore(t, s)
	}
	return refusal
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

// used is how much of a file is not trailing zeros.
func used(t *testing.T, path string) int64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(trimmed(b)))
}

// trimmed is b without the zeros at its end, by pages at first.
func trimmed(b []byte) []byte {
	var zeros [4096]byte
	for len(b) >= len(zeros) && bytes.Equal(b[len(b)-len(zeros):], zeros[:]) {
		b = b[:len(b)-len(zeros)]
	}
	return bytes.TrimRight(b, "\x00")
}

func TestAFlippedByteIsNeverALostFloor(t *testing.T) {
	log, tables := crashed(t), stopped(t)
	for _, c := range []struct {
		image, pattern string
		// mustRefuse: all bytes of the file count.
		mustRefuse bool
	}{
		{log, "store/*.mem", true},
		{log, "store/*.vlog", false},
		{log, "store/MANIFEST", false},
		{log, "store/KEYREGISTRY", false},
		{log, "sequence", false},
		{tables, "store/*.sst", true},
		{tables, "store/MANIFEST", false},
	} {
		matches, err := filepath.Glob(filepath.Join(c.image, c.pattern))
		if err != nil || len(matches) == 0 {
			t.Fatalf("no %s in the image (%v)", c.pattern, err)
		}
		newest, err := filepath.Rel(c.image, matches[len(matches)-1])
		if err != nil {
			t.Fatal(err)
		}
		size := used(t, filepath.Join(c.image, newest))
		whole := size
		if c.pattern == "store/*.mem" {
			whole = lastTransaction(t, filepath.Join(c.image, newest))
		}
		// Heads and footers count most; where everything counts, look closer.
		spread, edge := int64(4), int64(4)
		if c.mustRefuse {
			spread, edge = 12, 12
		}
		positions := map[int64]bool{}
		for i := range spread {
			positions[size*i/spread] = true
		}
		for i := range min(size, edge) {
			positions[size-1-i] = true
			positions[i] = true
		}
		for at := range positions {
			dir := t.TempDir()
			copyDir(t, c.image, dir)
			flip(t, filepath.Join(dir, newest), at)
			refused := wantIntactOrRefused(t, dir, newest)
			// The last transaction is in the sequence file as well.
			if refused == nil && c.mustRefuse && at >= walHeader && at < whole {
				t.Errorf("%s with byte %d of %d flipped opens", newest, at, size)
			}
		}
	}
}

// lastTransaction is where the last transaction of a log begins.
func lastTransaction(t *testing.T, path string) (begins int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next := int64(walHeader)
	for at := next; ; {
		r, ok := readRecord(b[at:])
		if !ok {
			return begins
		}
		at += int64(r.size)
		if r.meta&walEndsTxn != 0 {
			begins, next = next, at
		}
	}
}

func TestARefusalNamesWhatWasLostAndChangesNothing(t *testing.T) {
	dir := crashed(t)
	logs, err := filepath.Glob(filepath.Join(dir, "store", "*.mem"))
	if err != nil {
		t.Fatal(err)
	}
	log := logs[len(logs)-1]
	flip(t, log, used(t, log)/2)
	before, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	refusal := wantIntactOrRefused(t, dir, "half a log")
	if refusal == nil {
		t.Fatal("half of the floors are gone, and the store opens")
	}
	for _, want := range []string{"ends at change 50", "but change 1002 was acknowledged", "acknowledged floors were lost",
		"nothing was changed", "put back the data directory as it was when it was last written", "starts a new epoch above every generation ever issued"} {
		if !strings.Contains(refusal.Error(), want) {
			t.Errorf("the refusal %q does not say %q", refusal, want)
		}
	}
	after, err := os.ReadFile(log)
	if err != nil || string(after) != string(before) {
		t.Errorf("the refused store was changed (%v)", err)
	}
}

// splitLog makes two logs of the one in dir, cut at a transaction near the middle.
func splitLog(t *testing.T, dir string) (first, second string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "store", "*.mem"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v (%v)", logs, err)
	}
	b, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	at, half := walHeader, int(used(t, logs[0]))/2
	for {
		r, ok := readRecord(b[at:])
		if !ok {
			t.Fatal("the log ends early")
		}
		at += r.size
		if at > half && r.meta&walEndsTxn != 0 {
			break
		}
	}
	second = filepath.Join(dir, "store", "00099.mem")
	if err := os.WriteFile(second, append(append([]byte(nil), b[:walHeader]...), b[at:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(logs[0], int64(at)); err != nil {
		t.Fatal(err)
	}
	return logs[0], second
}

// The newest sequence number is there, so only the hole before it can tell.
func TestAHoleBeforeTheNewestLogIsNoticed(t *testing.T) {
	dir := crashed(t)
	splitLog(t, dir)
	if err := wantIntactOrRefused(t, dir, "two whole logs"); err != nil {
		t.Fatalf("two whole logs: %v", err)
	}
	for name, damage := range map[string]func(first string){
		"flipped":   func(first string) { flip(t, first, used(t, first)-100) },
		"truncated": func(first string) { _ = os.Truncate(first, used(t, first)-100) },
		"emptied":   func(first string) { _ = os.Truncate(first, 0) },
		"deleted":   func(first string) { _ = os.Remove(first) },
	} {
		dir := crashed(t)
		first, _ := splitLog(t, dir)
		damage(first)
		if wantIntactOrRefused(t, dir, name) == nil {
			t.Errorf("a log before the newest was %s, and the store opens", name)
		}
	}
}

func TestAMissingPartIsRefused(t *testing.T) {
	for name, remove := range map[string]string{
		"sequence file": "sequence", "store": "store", "MANIFEST": "store/MANIFEST", "table": "store/*.sst",
	} {
		dir := stopped(t)
		matches, err := filepath.Glob(filepath.Join(dir, remove))
		if err != nil || len(matches) == 0 {
			t.Fatalf("no %s (%v)", name, err)
		}
		for _, path := range matches {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		if wantIntactOrRefused(t, dir, name) == nil {
			t.Errorf("the %s is gone, and the store opens", name)
		}
	}
}

func TestASequenceFileOfAnotherStoreIsRefused(t *testing.T) {
	dir, other := stopped(t), stopped(t)
	copyFile(t, sidecarPath(other), sidecarPath(dir))
	if wantIntactOrRefused(t, dir, "foreign sequence file") == nil {
		t.Error("the sequence file of another store is taken")
	}
}

// Badger deletes a log by truncating it first, and can not open what a crash leaves
// in between.
func TestALogThatACrashLeftEmptyIsNoDamage(t *testing.T) {
	dir := stopped(t)
	for _, name := range []string{"00000.mem", "00098.mem", "000098.vlog"} {
		if err := os.WriteFile(filepath.Join(storeDir(dir), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := wantIntactOrRefused(t, dir, "empty logs"); err != nil {
		t.Error(err)
	}
}

func TestANewerFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := mustOpenWith(t, Options{Dir: dir}, neverBeats())
	e, err := meta{Format: formatVersion + 1, ID: s.Info().ID}.entry()
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	db, err := openBadger(storeDir(dir), s.opt.Logger)
	if err != nil {
		t.Fatal(err)
	}
	if err := commitAt(db, s.sequence+1, []entry{e}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Open(Options{Dir: dir})
	wantError(t, err, ErrFormat)
}
