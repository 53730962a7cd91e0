package badgerstore

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// elapsed reads CLOCK_BOOTTIME, which goes on while the machine is suspended:
// leases must run out then as well.
func elapsed() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Every kernel that Go runs on has it; a wrong time would be worse
		// than none.
		panic("read CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// syncsLog: a sync of the log's file covers what Badger wrote to it through its memory
// map, as msync would.
const syncsLog = true

// syncData makes the file's bytes durable; its size does not change, so the
// metadata need not be.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// freeBytes returns what an unprivileged process may still write to the file
// system of dir.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("read free space: %w", err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// lockFile locks f for this open file alone, without waiting. held tells that
// somebody else has it.
func lockFile(f *os.File) (held bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
