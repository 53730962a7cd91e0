package badgerstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// DefaultMinFree is how many bytes must be free for a commit: several times what one
// turn of logs and tables takes.
const DefaultMinFree = 64 << 20

// hangLimit is how long one batch may take before the store counts as broken, and how
// long Close waits for one. A disk that hangs says nothing by itself.
const hangLimit = 5 * time.Second

// Options of a store. Only Dir is required.
type Options struct {
	// Dir is the data directory, on a local disk. It is made with mode 0700 if
	// need be; what is in it is readable for its owner only, for it holds lease
	// ids.
	Dir string
	// Logger gets what operators should know; discarded if nil.
	Logger *slog.Logger
	// Clock is where time comes from; the system's if nil.
	Clock Clock
	// MinFree is how many bytes of the file system must be free for a commit;
	// DefaultMinFree if zero.
	MinFree int64
	// Rand is the source of a new store's id; crypto/rand if nil.
	Rand io.Reader
	// ObserveBatch, if not nil, is told after each batch how many changes it
	// carried, and ObserveOperation how long an operation took: load, commit,
	// list, batch (one transaction), sequence (one sync of the sequence file)
	// or compact. Both must not block.
	ObserveBatch     func(n int)
	ObserveOperation func(operation string, d time.Duration)
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	if o.MinFree == 0 {
		o.MinFree = DefaultMinFree
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.ObserveBatch == nil {
		o.ObserveBatch = func(int) {}
	}
	if o.ObserveOperation == nil {
		o.ObserveOperation = func(string, time.Duration) {}
	}
	return o
}

// seams are what tests replace.
type seams struct {
	free   func(dir string) (int64, error)
	sync   func(*os.File) error
	commit func(db *badger.DB, sequence uint64, entries []entry) error
	// syncLog makes Badger's newest log durable; syncData if nil.
	syncLog func(*os.File) error
	// beats drives the heartbeat; nil for one every second.
	beats <-chan time.Time
}

func productionSeams() seams {
	return seams{free: freeBytes, sync: syncData, commit: commitAt}
}

// Store implements tokens.Store over one directory. Its methods may be called
// concurrently.
type Store struct {
	opt   Options
	seams seams
	db    *badger.DB
	side  *sidecar
	lock  *os.File
	info  tokens.Info
	clock storeClock

	// mu protects the queue of the committer.
	mu      sync.Mutex
	queue   []*change
	closing bool
	wake    chan struct{}

	// What follows belongs to the committer: the sequence number of the last
	// batch, the clock in it, and the number of Badger's newest log, opened when
	// it was first synced.
	sequence uint64
	beaten   time.Time
	log      int
	logFile  *os.File

	// acknowledged is the sequence number that readers read at, recent what was
	// acknowledged last.
	acknowledged atomic.Uint64
	recent       recent
	marks        marks
	// writing is how long after born the batch under way was begun; zero if none is.
	// It is asked for with every write, so it is time that needs no system call, and
	// that a suspended machine does not run up.
	writing atomic.Int64
	born    time.Time
	// broken is set once, when the store can no longer tell what it holds; full
	// while too little space is free.
	broken, full atomic.Pointer[error]

	// reading is held shared by readers. Who holds it alone knows that nobody
	// reads at an old sequence number.
	reading sync.RWMutex
	closed  bool

	// freed is about how many bytes of values were removed since the last
	// compaction; compacting is held while one runs, and by Close.
	freed      atomic.Int64
	compacting sync.Mutex

	stop     chan struct{}
	done     chan struct{}
	once     sync.Once
	closeErr error
}

var _ tokens.Store = (*Store)(nil)

// Info implements tokens.Store.
func (s *Store) Info() tokens.Info { return s.info }

// Err implements tokens.Store.
func (s *Store) Err() error {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	if began := s.writing.Load(); began != 0 && time.Since(s.born)-time.Duration(began) > hangLimit {
		s.breakOff(fmt.Errorf("a batch did not end within %v", hangLimit))
	}
	if p := s.full.Load(); p != nil {
		return *p
	}
	return nil
}

// Load implements tokens.Store. The error wraps ErrDamaged if the record can not be
// read.
func (s *Store) Load(ctx context.Context, job tokens.Job) (snap tokens.Snapshot, err error) {
	defer s.observe("load", time.Now())
	if err := ctx.Err(); err != nil {
		return snap, fmt.Errorf("load record: %w", context.Cause(ctx))
	}
	key := recordKey(job)
	err = s.read(func() error {
		// One that is durable and not acknowledged yet is not shown, or a write of
		// the same commit would not be there beside it.
		if r, ok := s.recent.get(key); ok && r.version <= s.acknowledged.Load() {
			snap.Version, snap.Record = tokens.Version(r.version), unshared(r.record)
			return nil
		}
		value, written, err := get(s.db, s.acknowledged.Load(), key)
		if err != nil || written == 0 {
			return err
		}
		snap.Version = tokens.Version(written)
		snap.Record, err = tokens.DecodeRecord(value)
		return err
	})
	if err != nil {
		return tokens.Snapshot{}, fmt.Errorf("load record: %w", err)
	}
	snap.Now = s.clock.now()
	return snap, nil
}

// read runs fn while the store is open. An error or panic of fn wraps ErrDamaged:
// Badger trusts lengths that it reads from disk.
func (s *Store) read(fn func() error) (err error) {
	s.reading.RLock()
	defer s.reading.RUnlock()
	if s.closed {
		return errors.New("the store is closed")
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	if err := fn(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// Commit implements tokens.Store. A commit whose context ends while it is queued was
// not written; one that ends while it is being written has an unknown outcome, and
// the store refuses every later one.
func (s *Store) Commit(ctx context.Context, c tokens.Change) (tokens.Version, error) {
	defer s.observe("commit", time.Now())
	if err := s.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, err)
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, context.Cause(ctx))
	}
	value, err := tokens.EncodeRecord(c.Record)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, err)
	}
	writes, err := s.prepare(c)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, err)
	}
	v, err := s.submit(ctx, &change{
		entry: entry{key: recordKey(c.Job), value: value}, record: c.Record, writes: writes.entries, marks: writes.marks,
		expect: uint64(c.Expect), done: make(chan answer, 1),
	})
	if err == nil {
		s.freed.Add(writes.freed)
	}
	return v, err
}

// submit queues a change for the committer and waits for its answer.
func (s *Store) submit(ctx context.Context, ch *change) (tokens.Version, error) {
	if n := ch.size(); n > maxBatchBytes || len(ch.writes) >= maxBatchEntries {
		return 0, fmt.Errorf("%w: a change of %d entries and %d bytes is too large", tokens.ErrRefused, 1+len(ch.writes), n)
	}
	if err := s.enqueue(ch); err != nil {
		return 0, err
	}
	select {
	case a := <-ch.done:
		return a.version, a.err
	case <-ctx.Done():
		return s.abandon(ch, context.Cause(ctx))
	}
}

// Close implements tokens.Store. It waits until everything queued is written.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		close(s.stop)
		select {
		case <-s.done:
		case <-time.After(hangLimit):
			// What hangs can not be called off. The files stay open and locked until
			// the process ends, and are then as after a crash.
			err := errors.New("close store: a batch does not end")
			s.breakOff(err)
			s.closeErr = err
			return
		}
		closed := errClosed
		s.broken.CompareAndSwap(nil, &closed)
		s.compacting.Lock()
		defer s.compacting.Unlock()
		s.reading.Lock()
		s.closed = true
		s.reading.Unlock()
		// The lock goes last: until then nobody else may open the files.
		if err := errors.Join(s.db.Close(), s.closeLog(), s.side.close(), s.lock.Close()); err != nil {
			s.closeErr = fmt.Errorf("close store: %w", err)
		}
	})
	return s.closeErr
}

func (s *Store) observe(operation string, since time.Time) {
	s.opt.ObserveOperation(operation, time.Since(since))
}
