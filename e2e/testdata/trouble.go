// This file is in no build of fenceproxy. The black box tests add it to the store of a variant of the program, by an
// overlay, and put its functions in the place of the store's own. While a file of one of these names is in the directory
// that TROUBLE_DIR names, there is trouble:
//
//	commit-fails    a transaction ends with an error, and nothing is written
//	commit-hangs    a transaction does not end
//	space-hangs     the look at the free space before a transaction does not end, so nothing of it is written anywhere
//	sequence-fails  the sequence file can not be synced
//	free            its text is how many bytes are free on the disk
//	wall            its text is by how much the wall clock is off, as a duration

package badgerstore

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// trouble returns the text of a file of the directory, and whether it is there.
func trouble(name string) (string, bool) {
	b, err := os.ReadFile(filepath.Join(os.Getenv("TROUBLE_DIR"), name))
	return strings.TrimSpace(string(b)), err == nil
}

// hang returns when there is no trouble of this name.
func hang(name string) {
	for {
		if _, hangs := trouble(name); !hangs {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func troubledCommit(db *badger.DB, sequence uint64, entries []entry) error {
	hang("commit-hangs")
	if _, fails := trouble("commit-fails"); fails {
		return errors.New("commit transaction: trouble that was asked for")
	}
	return commitAt(db, sequence, entries)
}

func troubledSync(f *os.File) error {
	if _, fails := trouble("sequence-fails"); fails {
		return syscall.EIO
	}
	return syncData(f)
}

func troubledFree(dir string) (int64, error) {
	hang("space-hangs")
	if text, is := trouble("free"); is {
		return strconv.ParseInt(text, 10, 64)
	}
	return freeBytes(dir)
}

type troubledClock struct{ systemClock }

func (c troubledClock) Wall() time.Time {
	text, is := trouble("wall")
	if !is {
		return c.systemClock.Wall()
	}
	by, err := time.ParseDuration(text)
	if err != nil {
		panic("read " + text + ": " + err.Error())
	}
	return c.systemClock.Wall().Add(by)
}
