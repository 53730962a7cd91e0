package badgerstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
)

// finding is what a look at the directory shows, before Badger is let near it.
type finding struct {
	// fresh tells that there is no store yet.
	fresh bool
	// last is the highest sequence number found, records how many entries of
	// records, old versions counted.
	last    uint64
	records int
	// remembered is the sidecar's newest slot, at place; missing tells that there
	// is none, and nothing to be missed either.
	remembered slot
	place      int64
	missing    bool
}

// behind tells that the store lacks one change and that the sidecar holds it: either the
// process died before Badger had it, or the end of Badger's log is damaged.
func (f finding) behind() bool {
	return f.last+1 == f.remembered.sequence && len(f.remembered.redo) > 0
}

func storeDir(dir string) string    { return filepath.Join(dir, "store") }
func sidecarPath(dir string) string { return filepath.Join(dir, sidecarName) }

// inspect reads all of the store and changes nothing. The error wraps ErrDamaged if
// anything that was acknowledged is not there, or if Badger would refuse or drop
// something.
func inspect(dir string) (finding, error) {
	var f finding
	var side error
	f.remembered, f.place, side = readSidecar(sidecarPath(dir))
	if side != nil && !errors.Is(side, fs.ErrNotExist) && !errors.Is(side, errNoSlot) {
		return f, side
	}
	files, err := listFiles(storeDir(dir))
	if err != nil {
		return f, err
	}
	if !files.manifest {
		switch {
		case !errors.Is(side, fs.ErrNotExist):
			return f, damaged(dir, "the sequence file is there, but the store beside it is gone")
		case files.any():
			return f, damaged(dir, "the store has no MANIFEST")
		case exists(salvagedDir(dir)):
			return f, damaged(dir, "a salvage was interrupted")
		}
		f.fresh, f.missing = true, true
		return f, nil
	}
	count := func(key, _ []byte, _ uint64) {
		if len(key) > 0 && key[0] == prefixRecord {
			f.records++
		}
	}
	if f.last, err = files.verify(count); errors.Is(err, fs.ErrPermission) {
		return f, err
	} else if err != nil {
		return f, damaged(dir, "%w", err)
	}
	switch {
	case side != nil && f.records > 0:
		return f, damaged(dir, "the store ends at change %d, and how many changes were acknowledged is not known: %w", f.last, side)
	case side != nil:
		f.missing = true
	case f.last < f.remembered.sequence && !f.behind():
		return f, damaged(dir, "the store ends at change %d, but change %d was acknowledged: acknowledged floors were lost",
			f.last, f.remembered.sequence)
	}
	return f, nil
}

// storeFiles are Badger's files, in the order in which they were made.
type storeFiles struct {
	dir                  string
	manifest             bool
	logs, tables, values []string
}

func (s storeFiles) any() bool { return len(s.logs)+len(s.tables)+len(s.values) > 0 }

func listFiles(dir string) (storeFiles, error) {
	s := storeFiles{dir: dir}
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("list store: %w", err)
	}
	for _, f := range list {
		path := filepath.Join(dir, f.Name())
		switch filepath.Ext(f.Name()) {
		case ".mem":
			s.logs = append(s.logs, path)
		case ".sst":
			s.tables = append(s.tables, path)
		case ".vlog":
			s.values = append(s.values, path)
		}
		s.manifest = s.manifest || f.Name() == badger.ManifestFilename
	}
	slices.SortFunc(s.logs, func(a, b string) int { return logNumber(a) - logNumber(b) })
	return s, nil
}

// logNumber is the number in a log's name; Badger counts them up.
func logNumber(path string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".mem"))
	if err != nil {
		return -1
	}
	return n
}

// verify reads everything that Badger would open and returns the highest sequence
// number. It is an error if something can not be read, or if a sequence number is
// missing between the tables and the logs or in a log. Only the end of the newest
// log may be torn; whether something acknowledged was lost there the caller judges
// by the number returned.
func (s storeFiles) verify(fn visit) (uint64, error) {
	last, err := s.verifyTables(fn)
	if err != nil {
		return 0, err
	}
	for _, path := range s.logs {
		b, err := os.ReadFile(path)
		if err != nil {
			return 0, fmt.Errorf("read log: %w", err)
		}
		sp, err := readLog(b, fn)
		if err != nil {
			return 0, fmt.Errorf("read log %s: %w", filepath.Base(path), err)
		}
		// A log that was written to a table just before the process died is
		// there twice.
		if sp.first > last+1 {
			return 0, fmt.Errorf("read log %s: it begins with change %d, but what is before it ends at change %d: acknowledged floors were lost",
				filepath.Base(path), sp.first, last)
		}
		last = max(last, sp.last)
	}
	return last, s.verifyRest()
}

func (s storeFiles) verifyTables(fn visit) (last uint64, err error) {
	f, err := os.Open(filepath.Join(s.dir, badger.ManifestFilename))
	if err != nil {
		return 0, fmt.Errorf("read MANIFEST: %w", err)
	}
	defer f.Close()
	manifest, _, err := badger.ReplayManifestFile(f, 0, badger.DefaultOptions(s.dir).WithLogger(nil))
	if err != nil {
		return 0, fmt.Errorf("read MANIFEST: %w", err)
	}
	for id := range manifest.Tables {
		top, err := readTable(table.NewFilename(id, s.dir), fn)
		if err != nil {
			return 0, fmt.Errorf("table %s: %w", table.IDToFilename(id), err)
		}
		last = max(last, top)
	}
	return last, nil
}

// verifyRest looks at the files that hold nothing of ours and that Badger still wants
// whole. Values are too small to reach the value log.
func (s storeFiles) verifyRest() error {
	for _, path := range s.values {
		b := make([]byte, 8)
		f, err := os.Open(path)
		if err == nil {
			// A short file is an empty one.
			_, _ = f.Read(b)
			err = f.Close()
		}
		if err != nil {
			return fmt.Errorf("read value log: %w", err)
		}
		if key := binary.BigEndian.Uint64(b); key != 0 {
			return fmt.Errorf("read value log %s: its header names encryption key %d", filepath.Base(path), key)
		}
	}
	if exists(filepath.Join(s.dir, badger.KeyRegistryFileName)) {
		if _, err := badger.OpenKeyRegistry(badger.KeyRegistryOptions{Dir: s.dir, ReadOnly: true}); err != nil {
			return fmt.Errorf("read KEYREGISTRY: %w", err)
		}
	}
	return nil
}

// removeEmpty deletes logs of length zero. Badger leaves one when it dies between
// truncating and deleting, or between making and filling it, and then can not open
// it. Whatever such a file once held has been found elsewhere by inspect.
func removeEmpty(dir string) error {
	s, err := listFiles(storeDir(dir))
	if err != nil {
		return err
	}
	for _, path := range slices.Concat(s.logs, s.values) {
		if fi, err := os.Stat(path); err != nil {
			return fmt.Errorf("look at log: %w", err)
		} else if fi.Size() > 0 {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove empty log: %w", err)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
