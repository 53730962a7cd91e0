package badgerstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

var errClosed = errors.New("the store is closed")

// change is one commit on its way. The queue's lock protects taken.
type change struct {
	entry
	record tokens.Record
	// writes are the entries that go with the record, marks what they make of the
	// writes.
	writes []entry
	marks  []placedMark
	expect uint64
	taken  bool
	done   chan answer
}

type answer struct {
	version tokens.Version
	err     error
}

func (c *change) size() int {
	n := c.entry.size()
	for _, e := range c.writes {
		n += e.size()
	}
	return n
}

func (c *change) refuse(err error) {
	c.done <- answer{err: fmt.Errorf("%w: %w", tokens.ErrRefused, err)}
}

func (s *Store) enqueue(c *change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Looked at under the lock, so that breakOff finds it or it finds the fault.
	if p := s.broken.Load(); p != nil {
		return fmt.Errorf("%w: %w", tokens.ErrRefused, *p)
	}
	if s.closing {
		return fmt.Errorf("%w: %w", tokens.ErrRefused, errClosed)
	}
	s.queue = append(s.queue, c)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// abandon gives a commit up. One that is still queued has not been written. One that
// was taken may be on disk, now or later, and nobody waits to learn it.
func (s *Store) abandon(c *change, cause error) (tokens.Version, error) {
	s.mu.Lock()
	taken := c.taken
	for i := range s.queue {
		if s.queue[i] == c {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	select {
	case a := <-c.done:
		return a.version, a.err
	default:
	}
	if !taken {
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, cause)
	}
	err := fmt.Errorf("a commit did not end in time: %w", cause)
	s.breakOff(err)
	return 0, fmt.Errorf("%w: %w", tokens.ErrUnknown, err)
}

// breakOff closes the store for writes, for good, and refuses what is queued.
func (s *Store) breakOff(err error) {
	err = fmt.Errorf("the store takes no writes until it is restarted: %w", err)
	if s.broken.CompareAndSwap(nil, &err) {
		s.opt.Logger.Error("store closed for writes", "error", err)
	}
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, c := range queue {
		c.refuse(err)
	}
}

// run is the committer. It ends when stop is closed and the queue is empty.
func (s *Store) run() {
	defer close(s.done)
	beats := s.seams.beats
	if beats == nil {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		beats = t.C
	}
	for {
		select {
		case <-s.wake:
			s.writeQueued()
		case <-beats:
			s.beat()
		case <-s.stop:
			s.writeQueued()
			s.beat()
			return
		}
	}
}

// beat makes the clock durable if it has moved, so that time does not run backwards
// after a crash, and looks whether there is space again.
func (s *Store) beat() {
	if s.broken.Load() != nil || s.watchSpace() != nil || !s.clock.now().After(s.beaten) {
		return
	}
	s.write(nil)
}

func (s *Store) writeQueued() {
	for {
		changes := s.take()
		if len(changes) == 0 {
			return
		}
		err := s.watchSpace()
		if p := s.broken.Load(); p != nil {
			err = *p
		}
		if err != nil {
			for _, c := range changes {
				c.refuse(err)
			}
			continue
		}
		if current := s.current(changes); len(current) > 0 {
			s.write(current)
			s.opt.ObserveBatch(len(current))
		}
	}
}

// take takes as much of the queue as one transaction carries.
func (s *Store) take() []*change {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size, entries := 0, 0, 0
	for _, c := range s.queue {
		size += c.size()
		entries += 1 + len(c.writes)
		if n == maxBatchChanges || size > maxBatchBytes || entries > maxBatchEntries {
			break
		}
		c.taken = true
		n++
	}
	taken := s.queue[:n:n]
	s.queue = s.queue[n:]
	return taken
}

// current answers the changes that were decided on a version that is no longer the
// newest, and returns the rest. A second change of a job in one batch can not know
// the version of the first.
func (s *Store) current(changes []*change) []*change {
	var rest []*change
	seen := make(map[string]bool, len(changes))
	for _, c := range changes {
		version, err := s.versionOf(c.key)
		switch {
		case err != nil:
			c.refuse(fmt.Errorf("compare version: %w", err))
		case version != c.expect || seen[string(c.key)]:
			c.done <- answer{err: tokens.ErrConflict}
		default:
			seen[string(c.key)] = true
			rest = append(rest, c)
		}
	}
	return rest
}

// versionOf returns the version of the newest record, zero if there is none.
func (s *Store) versionOf(key []byte) (uint64, error) {
	if r, ok := s.recent.get(key); ok {
		return r.version, nil
	}
	_, version, err := s.newest(key)
	return version, err
}

// newest returns the newest value of a key and its version.
func (s *Store) newest(key []byte) (value []byte, version uint64, err error) {
	err = s.read(func() error {
		value, version, err = get(s.db, s.sequence, key)
		return err
	})
	return value, version, err
}

// write makes one batch durable and acknowledges it.
func (s *Store) write(changes []*change) {
	if err := s.commit(changes); err != nil {
		s.breakOff(err)
		for _, c := range changes {
			c.done <- answer{err: fmt.Errorf("%w: %w", tokens.ErrUnknown, err)}
		}
		return
	}
	// The records before the number: a reader that finds none here looks at the
	// number, and one that sees the number must not find an older record.
	s.recent.put(changes, s.sequence)
	s.marks.putAll(changes, s.sequence)
	s.acknowledged.Store(s.sequence)
	for _, c := range changes {
		c.done <- answer{version: tokens.Version(s.sequence)}
	}
	// Nobody reads at a lower number now, so compaction may drop versions that
	// only such a reader could see. If somebody reads, the next batch tries again.
	if s.reading.TryLock() {
		s.db.SetDiscardTs(s.sequence)
		s.reading.Unlock()
	}
}

// commit writes the changes and the clock at the next sequence number, to Badger and to
// the sidecar at the same time, and returns when both are durable. After an error
// nothing is known about them.
//
// That both may be in flight at once rests on the sidecar's redo, and on the next batch
// being begun only when both are done. So a crash leaves the sidecar at most one batch
// ahead of Badger, and that batch is whole in it: open commits it then, acknowledged or
// not. A sidecar further ahead means that Badger has lost something.
func (s *Store) commit(changes []*change) error {
	defer s.observe("batch", time.Now())
	s.writing.Store(max(1, int64(time.Since(s.born))))
	defer s.writing.Store(0)
	now := s.clock.now()
	n := 1
	for _, c := range changes {
		n += 1 + len(c.writes)
	}
	entries := append(make([]entry, 0, n), clockEntry(now))
	for _, c := range changes {
		entries = append(append(entries, c.entry), c.writes...)
	}
	next := s.sequence + 1
	remembered := make(chan error, 1)
	go func() {
		defer s.observe("sequence", time.Now())
		remembered <- s.side.remember(next, entries)
	}()
	err := s.commitDurably(next, entries)
	if err := errors.Join(err, <-remembered); err != nil {
		return err
	}
	s.sequence = next
	s.beaten = now
	return nil
}

// commitDurably commits to Badger alone, and returns when that is durable.
func (s *Store) commitDurably(sequence uint64, entries []entry) error {
	if err := s.seams.commit(s.db, sequence, entries); err != nil {
		return err
	}
	return s.syncLog()
}
