package badgerstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

const (
	// compactWorth is how many bytes must have been removed for a compaction to be
	// worth its own writes, and compactShare which part of the store they must be.
	compactWorth = 16 << 20
	compactShare = 4
	// turnTimeout bounds how long the log takes to become a table.
	turnTimeout = 30 * time.Second
	// keyFiller is a key whose value fills the log up.
	keyFiller = "f"
	// fillerSize is that of one such value: two logs are filled by 64 of them.
	fillerSize = 256 << 10
)

// Compact gives the space of purged writes and replies back to the file system. Call it
// after a sweep: it does nothing until enough was removed, and then rewrites the store,
// so that each byte is rewritten a bounded number of times. Badger by itself keeps what
// was removed until later writes push the removals through its levels. Commits and
// reads go on meanwhile. It may be called concurrently; Close waits for it. An error
// leaves the store as it was, only larger; it wraps ErrNoSpace while there is not room for
// a second copy.
func (s *Store) Compact() (err error) {
	s.compacting.Lock()
	defer s.compacting.Unlock()
	if err := s.Err(); err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	freed, size := s.freed.Load(), s.tableBytes()
	if freed < compactWorth || freed < size/compactShare {
		return nil
	}
	defer s.observe("compact", time.Now())
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("compact store: %v", r)
		}
	}()
	// Old tables are deleted when the new ones are whole.
	if n, err := s.seams.free(s.opt.Dir); err != nil {
		return fmt.Errorf("compact store: %w", err)
	} else if need := size + s.opt.MinFree; n < need {
		return fmt.Errorf("compact store: %w: %d bytes on the file system of %s, %d are needed", ErrNoSpace, n, s.opt.Dir, need)
	}
	if err := s.turnLog(); err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	s.discardOld()
	// One worker: compaction shares the disk with commits.
	if err := s.db.Flatten(1); err != nil {
		return fmt.Errorf("compact store: %w", err)
	}
	s.freed.Add(-freed)
	return nil
}

// tableBytes is how large the tables are.
func (s *Store) tableBytes() (n int64) {
	for _, l := range s.db.Levels() {
		n += l.Size
	}
	return n
}

// discardOld lets compaction drop what only a reader of an old sequence number could
// see.
func (s *Store) discardOld() {
	s.reading.Lock()
	s.db.SetDiscardTs(s.acknowledged.Load())
	s.reading.Unlock()
}

// turnLog makes a table of the log that is being written: the removals in it hide
// tables, and compaction reads tables only. Badger offers no other way than to fill the
// log up.
func (s *Store) turnLog() error {
	dir := storeDir(s.opt.Dir)
	files, err := listFiles(dir)
	if err != nil {
		return err
	}
	newest := 0
	for _, path := range files.logs {
		newest = max(newest, logNumber(path))
	}
	next := filepath.Join(dir, fmt.Sprintf("%05d.mem", newest+1))
	_, version, err := get(s.db, s.acknowledged.Load(), []byte(keyFiller))
	if err != nil {
		return err
	}
	for n := 0; !exists(next); n++ {
		if n*fillerSize > 2*memTableSize {
			return errors.New("the log does not turn over")
		}
		if version, err = s.fill(version, make([]byte, fillerSize)); err != nil {
			return err
		}
	}
	if _, err = s.fill(version, nil); err != nil {
		return err
	}
	return waitGone(files.logs)
}

// fill commits a value of the filler.
func (s *Store) fill(expect uint64, value []byte) (uint64, error) {
	v, err := s.submit(context.Background(), &change{
		entry:  entry{key: []byte(keyFiller), value: value, removed: value == nil},
		expect: expect, done: make(chan answer, 1),
	})
	return uint64(v), err
}

// waitGone waits until Badger has made tables of logs, and removed them.
func waitGone(logs []string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(turnTimeout)
	for _, path := range logs {
		for exists(path) {
			if time.Now().After(deadline) {
				return fmt.Errorf("log %s does not become a table", filepath.Base(path))
			}
			<-tick.C
		}
	}
	return nil
}
