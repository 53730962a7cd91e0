//go:build !linux

package badgerstore

import (
	"math"
	"os"
	"time"
)

// started carries the monotonic reading that elapsed is measured from.
var started = time.Now()

func elapsed() time.Duration { return time.Since(started) }

// syncsLog: POSIX promises for msync alone that it covers a memory map.
const syncsLog = false

func syncData(f *os.File) error { return f.Sync() }

// freeBytes is not watched here: only Linux is supported in production.
func freeBytes(string) (int64, error) { return math.MaxInt64, nil }

// lockFile leaves exclusion to Badger's own lock.
func lockFile(*os.File) (held bool, err error) { return false, nil }
