package badgerstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// SalvageReport says what a salvage did.
type SalvageReport struct {
	// Jobs were kept, each in the newest version that could be read; Dropped
	// had a newest version that makes no sense.
	Jobs, Dropped int
	// Writes are the keyed writes that were kept; Blocked of them had a free key
	// or a record that makes no sense, and their outcome counts as unknown until
	// an operator resolves it.
	Writes, Blocked int
	// Epoch is the new one.
	Epoch uint32
	// Found is the highest sequence number that could be read, Acknowledged the
	// one that the sequence file remembered, zero if it could not be read.
	Found, Acknowledged uint64
	// Unreadable lists what could not be read to its end, and why.
	Unreadable []string
	// Kept is where the old files are.
	Kept string
}

// The new store is built beside the old one and takes its place in two renames.
func salvagedDir(dir string) string     { return filepath.Join(dir, "store.new") }
func salvagedSidecar(dir string) string { return filepath.Join(dir, sidecarName+".new") }

// Salvage replaces the store in opt.Dir, damaged or not, by one that holds every job
// that can still be read, in an epoch above every generation ever issued: what was
// lost may have been a higher floor, so no generation from before is admitted again.
// The old files are kept beside it. Records are never deleted, so the newest version
// of a job found anywhere is the best there is. An interrupted salvage can be
// repeated. It must not be used while the store is open; the error then wraps
// ErrLocked.
func Salvage(opt Options) (report SalvageReport, err error) {
	opt = opt.withDefaults()
	if !exists(opt.Dir) {
		return report, fmt.Errorf("salvage store: %w", &fs.PathError{Op: "open", Path: opt.Dir, Err: fs.ErrNotExist})
	}
	lock, err := hold(opt.Dir, opt.Clock.Wall())
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := finishSwap(opt.Dir); err != nil {
		return report, err
	}
	w := wreck{newest: make(map[string]version)}
	// Whatever makes Open refuse the store may have cost it changes.
	_, intact := inspect(opt.Dir)
	w.damaged = intact != nil
	if err := w.collect(opt.Dir); err != nil {
		return report, err
	}
	report = SalvageReport{Found: w.last, Acknowledged: w.side.sequence, Unreadable: w.unreadable}
	m, groups, err := w.rebuild(opt, &report)
	if err != nil {
		return report, err
	}
	report.Epoch = m.Epoch
	if err := build(opt, m, max(w.last, w.side.sequence), groups); err != nil {
		return report, err
	}
	report.Kept, err = swap(opt.Dir)
	return report, err
}

// version is a value as it was at a sequence number; nil if the key was removed.
type version struct {
	sequence uint64
	value    []byte
}

// wreck is what can be read of a store.
type wreck struct {
	side       slot
	sideErr    error
	newest     map[string]version
	last       uint64
	unreadable []string
	// damaged tells that something may be lost.
	damaged bool
}

func (w *wreck) visit(key, value []byte, sequence uint64) {
	w.last = max(w.last, sequence)
	if old, ok := w.newest[string(key)]; !ok || sequence > old.sequence {
		w.newest[string(key)] = version{sequence, bytes.Clone(value)}
	}
}

// redo takes what the sidecar holds for something that was found.
func (w *wreck) redo() {
	found := w.last
	for _, e := range w.side.redo {
		value := e.value
		if e.removed {
			value = nil
		}
		w.visit(e.key, value, w.side.sequence)
	}
	w.last = found // of the store itself
}

// collect reads every table and log, also those that the MANIFEST does not name.
func (w *wreck) collect(dir string) error {
	w.side, _, w.sideErr = readSidecar(sidecarPath(dir))
	if w.sideErr != nil {
		w.unreadable = append(w.unreadable, fmt.Sprintf("%s: %v", sidecarName, w.sideErr))
	}
	files, err := listFiles(storeDir(dir))
	if err != nil {
		return err
	}
	for _, path := range files.tables {
		if _, err := readTable(path, w.visit); err != nil {
			w.unreadable = append(w.unreadable, fmt.Sprintf("%s: %v", filepath.Base(path), err))
		}
	}
	for _, path := range files.logs {
		b, err := os.ReadFile(path)
		if err == nil {
			_, err = readLog(b, w.visit)
		}
		if err != nil {
			w.unreadable = append(w.unreadable, fmt.Sprintf("%s: %v", filepath.Base(path), err))
		}
	}
	return nil
}

// rebuild turns what was read into what the new store begins with.
// Each group of entries is written in one transaction.
func (w *wreck) rebuild(opt Options, report *SalvageReport) (meta, [][]entry, error) {
	m, metaErr := decodeMeta(w.newest[keyMeta].value)
	if metaErr != nil {
		m = meta{ID: w.side.id}
	}
	if m.Format > formatVersion {
		return meta{}, nil, fmt.Errorf("%w: %s has format %d", ErrFormat, opt.Dir, m.Format)
	}
	if metaErr != nil || m.ID == w.side.id {
		w.redo()
	}
	var known time.Time
	if c, ok := w.newest[keyClock]; ok {
		if t, err := decodeClock(c.value); err == nil {
			known = t
		}
	}
	epoch := max(m.Epoch, w.side.epoch)
	groups, err := w.rebuildWrites(report)
	if err != nil {
		return meta{}, nil, err
	}
	groups = append(groups, []entry{clockEntry(newStoreClock(opt.Clock, known).now())})
	for key, v := range w.newest {
		if !strings.HasPrefix(key, string(rune(prefixRecord))) {
			continue
		}
		r, err := tokens.DecodeRecord(v.value)
		if err != nil {
			report.Dropped++
			continue
		}
		// Only generations that were issued here belong to an epoch; an
		// outside issuer numbers as it likes.
		epoch = max(epoch, uint32(r.Issued/tokens.EpochSize))
		groups = append(groups, []entry{{key: []byte(key), value: v.value}})
		report.Jobs++
	}
	if metaErr != nil && w.sideErr != nil && report.Jobs == 0 {
		return meta{}, nil, errors.New("salvage store: nothing can be read, not even the epoch; put back an intact copy of the data directory")
	}
	if m.ID == "" {
		var err error
		if m.ID, err = newID(opt.Rand); err != nil {
			return meta{}, nil, err
		}
	}
	m.Format, m.Epoch = formatVersion, epoch+1
	return m, groups, nil
}

// build writes the new store above sequence number last, and then its sidecar: once
// that is there, the new store is whole.
func build(opt Options, m meta, last uint64, groups [][]entry) (err error) {
	dir := salvagedDir(opt.Dir)
	// What is left of an interrupted one; its sidecar first, which calls it whole.
	for _, path := range []string{salvagedSidecar(opt.Dir), dir} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("build store: %w", err)
		}
	}
	if err := makeDir(dir); err != nil {
		return err
	}
	db, err := openBadger(dir, opt.Logger)
	if err != nil {
		return err
	}
	e, err := m.entry()
	if err != nil {
		return errors.Join(err, db.Close())
	}
	last, err = writeAll(db, last, append([][]entry{{e}}, groups...))
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("build store: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("build store: %w", err)
	}
	for _, f := range files {
		if err := syncPath(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	if err := syncPath(dir); err != nil {
		return err
	}
	return createSidecar(salvagedSidecar(opt.Dir), slot{id: m.ID, epoch: m.Epoch, sequence: last})
}

// writeAll writes groups of entries in transactions that Badger takes, numbered from
// last+1, and returns the last number. A group is not torn apart.
func writeAll(db *badger.DB, last uint64, groups [][]entry) (uint64, error) {
	for len(groups) > 0 {
		var batch []entry
		size := 0
		for len(groups) > 0 && len(batch) < maxBatchChanges && (len(batch) == 0 || size+sizeOf(groups[0]) <= maxBatchBytes) {
			batch = append(batch, groups[0]...)
			size += sizeOf(groups[0])
			groups = groups[1:]
		}
		last++
		if err := commitAt(db, last, batch); err != nil {
			return last, err
		}
	}
	return last, nil
}

func sizeOf(group []entry) (n int) {
	for _, e := range group {
		n += e.size()
	}
	return n
}

// swap puts the new store in the place of the old one and returns where that is now.
// The old sequence file stays in its place until the new one replaces it, so that at
// no moment the directory looks like a new one.
func swap(dir string) (kept string, err error) {
	for n := 1; ; n++ {
		kept = filepath.Join(dir, fmt.Sprintf("damaged-%d", n))
		if !exists(kept) {
			break
		}
	}
	if err := makeDir(kept); err != nil {
		return "", err
	}
	if exists(sidecarPath(dir)) {
		if err := os.Link(sidecarPath(dir), filepath.Join(kept, sidecarName)); err != nil {
			return "", fmt.Errorf("keep old sequence file: %w", err)
		}
	}
	if exists(storeDir(dir)) {
		if err := os.Rename(storeDir(dir), filepath.Join(kept, "store")); err != nil {
			return "", fmt.Errorf("keep old store: %w", err)
		}
	}
	if err := syncPath(kept); err != nil {
		return "", err
	}
	return kept, finishSwap(dir)
}

// finishSwap moves a whole new store into its place, if there is one and the place is
// free.
func finishSwap(dir string) error {
	if exists(storeDir(dir)) || !exists(salvagedDir(dir)) || !exists(salvagedSidecar(dir)) {
		// One that is not whole, or was not needed, is built afresh.
		return nil
	}
	if err := os.Rename(salvagedDir(dir), storeDir(dir)); err != nil {
		return fmt.Errorf("place new store: %w", err)
	}
	// Durable one after the other: the store first, its number afterwards.
	if err := syncPath(dir); err != nil {
		return err
	}
	if err := os.Rename(salvagedSidecar(dir), sidecarPath(dir)); err != nil {
		return fmt.Errorf("place new sequence file: %w", err)
	}
	return syncPath(dir)
}
