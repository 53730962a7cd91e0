package badgerstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Badger writes its log through a shared memory map and, with SyncWrites, syncs that map
// and its empty value log after each transaction. Here the log alone is synced, which is
// half the work and keeps the same promise where fdatasync covers what was written through
// a map: on Linux, where msync(MS_SYNC) is that same call for the file behind the map
// (mm/msync.c). So SyncWrites stays on everywhere else; see syncsLog.

// syncLog makes durable what was committed last, and the name of the log that it is in:
// Badger does not sync the directory that it makes a log in.
func (s *Store) syncLog() error {
	if err := s.followLog(); err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	if !syncsLog {
		return nil
	}
	sync := s.seams.syncLog
	if sync == nil {
		sync = syncData
	}
	if err := sync(s.logFile); err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	return nil
}

// followLog opens the newest log. The one before was synced when it was the newest, to its
// end: a transaction lies in one log.
func (s *Store) followLog() error {
	rotated := false
	for first := s.logFile == nil; ; first = false {
		number := s.log + 1
		if first {
			number = s.log
		}
		f, err := os.Open(filepath.Join(s.db.Opts().Dir, fmt.Sprintf("%05d.mem", number)))
		if errors.Is(err, fs.ErrNotExist) && !first {
			break
		}
		if err != nil {
			return err
		}
		if err := s.closeLog(); err != nil {
			return errors.Join(err, f.Close())
		}
		s.log, s.logFile = number, f
		rotated = rotated || !first
	}
	if !rotated {
		return nil
	}
	return syncPath(s.db.Opts().Dir)
}

func (s *Store) closeLog() error {
	if s.logFile == nil {
		return nil
	}
	err := s.logFile.Close()
	s.logFile = nil
	return err
}
