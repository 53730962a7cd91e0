package tokens

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// shardCount bounds how many jobs wait for one lock. No I/O happens under
	// a shard's lock.
	shardCount = 256
	// maxConflicts is how often one batch is decided again on a shared store
	// before its operations are refused.
	maxConflicts = 16
)

// Options of an Authority. The zero value of each field has a documented default.
type Options struct {
	// CommitTimeout bounds one load or commit; 5 s if zero. A commit that takes
	// longer has an unknown outcome.
	CommitTimeout time.Duration
	// RestartGrace: a lease that ran out while the process was down goes to
	// others only this long after the store was opened.
	RestartGrace time.Duration
	// RestartLinger: attempts of a dead process count as cut when this one
	// starts, so the first writes of jobs from before wait this long.
	RestartLinger time.Duration
	// MaxPerJob bounds the writes of one job that are in flight or waiting;
	// 256 if zero.
	MaxPerJob int
	// MaxCached bounds the jobs kept in memory though nothing of them is under
	// way; 1,000,000 if zero.
	MaxCached int
	// Rand is the source of lease ids; crypto/rand if nil.
	Rand io.Reader
}

// Authority judges writes and lease operations, and keeps track of every admitted
// write until its outcome is known. It is the only loop that reads, decides and
// commits.
//
// Per job it combines: while a commit is under way further operations queue, and the
// next commit carries all of them. A write that changes nothing durable is answered
// from memory. All methods may be called concurrently.
type Authority struct {
	store  Store
	info   Info
	base   Generation
	opt    Options
	seed   maphash.Seed
	shards [shardCount]shard
	// quietUntil is when the attempts of a dead process count as settled.
	quietUntil time.Time
	// failed is set once, by the first commit with an unknown outcome on an
	// exclusive store. From then on memory may be behind the disk, so nothing
	// is admitted until a restart has read the disk again.
	failed atomic.Pointer[error]

	jobs, held atomic.Int64
	// mostPerJob is Options.MaxPerJob as it is now.
	mostPerJob atomic.Int64

	// boot and attempts name the attempts of keyed writes; live holds those that
	// this process has not lost track of.
	boot     string
	attempts atomic.Uint64
	live     sync.Map
}

// NewAuthority returns the authority over a store. It reads the whole store once, to
// count jobs and leases.
func NewAuthority(ctx context.Context, s Store, opt Options) (*Authority, error) {
	if opt.CommitTimeout == 0 {
		opt.CommitTimeout = 5 * time.Second
	}
	if opt.MaxPerJob == 0 {
		opt.MaxPerJob = 256
	}
	if opt.MaxCached == 0 {
		opt.MaxCached = 1_000_000
	}
	if opt.Rand == nil {
		opt.Rand = rand.Reader
	}
	info := s.Info()
	boot, err := draw(opt.Rand)
	if err != nil {
		return nil, err
	}
	a := &Authority{
		store: s, info: info, opt: opt, boot: boot,
		base:       Generation(info.Epoch) * EpochSize,
		seed:       maphash.MakeSeed(),
		quietUntil: time.Now().Add(opt.RestartLinger),
	}
	a.mostPerJob.Store(int64(opt.MaxPerJob))
	for i := range a.shards {
		a.shards[i].jobs = make(map[Job]*job)
	}
	if err := a.census(ctx); err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	return a, nil
}

// Err returns nil while writes can be admitted, else why not.
func (a *Authority) Err() error {
	if p := a.failed.Load(); p != nil {
		return *p
	}
	if err := a.store.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStoreUnavailable, err)
	}
	return nil
}

// SetMaxPerJob changes Options.MaxPerJob; n is at least 1. Writes that were admitted stay.
func (a *Authority) SetMaxPerJob(n int) { a.mostPerJob.Store(int64(n)) }

// Info describes the store.
func (a *Authority) Info() Info { return a.info }

// fail closes the authority for everything that needs the store. Only a restart
// opens it again.
func (a *Authority) fail(err error) {
	err = fmt.Errorf("%w: %w; restart the process to read the store again", ErrStoreUnavailable, err)
	a.failed.CompareAndSwap(nil, &err)
}

// operation is one request to read and perhaps change a record.
type operation struct {
	// keys are the writes that apply looks at.
	keys []string
	// apply decides; it is called once per try, never concurrently, and must
	// forget what it decided in an earlier one.
	apply func(d *draft)
	// published is called under the shard's lock once what apply decided is
	// durable, before the new floor overtakes anybody; nil for nothing to do.
	published func(s *shard, j *job)
	// size is about how many bytes the operation adds to a commit.
	size int
	// here tells that whoever asked waits for the end in any case, and so may
	// serve the queue itself: that saves a goroutine and two switches.
	here bool
	// ended is set where whoever asked serves, and cannot set gone itself.
	ended func() error
	// gone is set when nobody waits for the answer any more; skipped tells that
	// the operation was left out for that.
	gone    atomic.Bool
	skipped bool
	done    chan struct{}
	err     error
}

// do runs apply on the committed record and returns when what it decided is
// durable. It combines with whatever else is queued for the job. The error wraps
// ErrStoreUnavailable or is the cause of ctx; then nothing that apply decided may be
// acted upon.
func (a *Authority) do(ctx context.Context, key Job, apply func(*draft)) error {
	return a.run(ctx, key, &operation{apply: apply})
}

// ask is do for a call that anybody can make up a job for.
func (a *Authority) ask(ctx context.Context, key Job, apply func(*draft)) error {
	defer a.forget(key)
	return a.do(ctx, key, apply)
}

// run is do for a whole operation.
func (a *Authority) run(ctx context.Context, key Job, op *operation) error {
	if err := a.Err(); err != nil {
		return err
	}
	op.done = make(chan struct{})
	if op.here && ctx.Err() != nil {
		op.skipped = true
		close(op.done)
		return fmt.Errorf("wait for the store: %w", context.Cause(ctx))
	}
	s := a.shardOf(key)
	s.mu.Lock()
	j := s.job(key, max(1, a.opt.MaxCached/shardCount))
	j.queue = append(j.queue, op)
	mine := op.here && !j.busy
	if mine {
		op.ended = ctx.Err
	} else if !j.busy {
		go a.serve(s, j)
	}
	j.busy = true
	s.mu.Unlock()
	if mine {
		a.serveMine(s, j)
		if op.err == nil && op.skipped {
			return fmt.Errorf("wait for the store: %w", context.Cause(ctx))
		}
		return op.err
	}
	select {
	case <-op.done:
		return op.err
	case <-ctx.Done():
		// What has been decided goes on; whoever asked does not learn it.
		op.gone.Store(true)
		return fmt.Errorf("wait for the store: %w", context.Cause(ctx))
	}
}

// serve runs the job's queue until it is empty.
func (a *Authority) serve(s *shard, j *job) {
	for a.serveBatch(s, j) {
	}
}

// serveMine runs what is queued now, and leaves what queues meanwhile to a goroutine.
func (a *Authority) serveMine(s *shard, j *job) {
	ended := false
	defer func() {
		if !ended {
			// A panic: whoever recovers from it does not know that memory may be
			// behind the disk now.
			a.fail(errors.New("a decision broke off"))
		}
	}()
	a.serveBatch(s, j)
	ended = true
	s.mu.Lock()
	if len(j.queue) > 0 {
		go a.serve(s, j)
	} else {
		j.busy = false
		s.drop(j)
	}
	s.mu.Unlock()
}

// serveBatch runs what is queued now. False means that nothing was, and that the job is
// not busy any more.
func (a *Authority) serveBatch(s *shard, j *job) bool {
	s.mu.Lock()
	batch := j.batch()
	if len(batch) == 0 {
		j.busy = false
		s.drop(j)
		s.mu.Unlock()
		return false
	}
	s.mu.Unlock()
	err := a.decide(s, j, batch)
	if len(batch) > 1 && errors.Is(err, ErrRefused) {
		// Nothing was written. What one of them can not have, the others may.
		for i := range batch {
			batch[i].finish(a.decide(s, j, batch[i:i+1]))
		}
		return true
	}
	for _, op := range batch {
		op.finish(err)
	}
	return true
}

const (
	// maxBatch bounds what one commit of a job carries, in bytes, and an
	// operation without replies counts as opSize: an engine refuses what is much
	// larger, and one large reply must not take the rest with it.
	maxBatch = 512 << 10
	opSize   = 1 << 10
)

// batch takes from the queue what one commit carries. The shard is locked.
func (j *job) batch() []*operation {
	n, size := 0, 0
	for n < len(j.queue) {
		if size += j.queue[n].size + opSize; n > 0 && size > maxBatch {
			break
		}
		n++
	}
	batch := j.queue[:n:n]
	if j.queue = j.queue[n:]; len(j.queue) == 0 {
		j.queue = nil
	}
	return batch
}

func (op *operation) finish(err error) {
	op.err = err
	close(op.done)
}

// decide loads, applies the batch in order, commits once and publishes. After an
// error nothing that was decided counts.
func (a *Authority) decide(s *shard, j *job, batch []*operation) error {
	for range maxConflicts {
		// What queued behind a commit of unknown outcome may not be decided on
		// a record that is perhaps not on the disk.
		if p := a.failed.Load(); p != nil {
			return *p
		}
		err := a.try(s, j, batch)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrConflict):
			continue
		case errors.Is(err, ErrUnknown):
			// The change may be on disk while memory does not know it. On an
			// exclusive store nobody else can tell, so nothing is served
			// until a restart has read the disk.
			s.mu.Lock()
			j.loaded = false
			s.mu.Unlock()
			if a.info.Exclusive {
				a.fail(err)
			}
		}
		return fmt.Errorf("%w: %w", ErrStoreUnavailable, err)
	}
	return fmt.Errorf("%w: the record of the job changes too often", ErrStoreUnavailable)
}

func (a *Authority) try(s *shard, j *job, batch []*operation) error {
	ctx, cancel := context.WithTimeout(context.Background(), a.opt.CommitTimeout)
	defer cancel()
	d, err := a.load(ctx, j.key, batch)
	if err != nil {
		return err
	}
	if err := a.checkFloor(s, j, d.Snapshot); err != nil {
		return err
	}
	old := d.Snapshot
	for _, op := range batch {
		// Nobody may get a lease, or an attempt, that he does not know of.
		op.skipped = op.gone.Load() || op.ended != nil && op.ended() != nil
		if !op.skipped {
			op.apply(d)
		}
	}
	if d.changed {
		// Nothing below this line happens before the record is durable: not
		// the answers, not the new floor in memory.
		d.Version, err = a.store.Commit(ctx, d.change(j.key))
		if err != nil {
			if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnknown) {
				// An engine that breaks its contract: assume the worst.
				err = fmt.Errorf("%w: %w", ErrUnknown, err)
			}
			return fmt.Errorf("commit record: %w", err)
		}
		a.count(old, d.Snapshot)
	}
	a.publish(s, j, old.Version, d, batch)
	return nil
}

// checkFloor refuses a record whose floor is below one that was durable: the store was
// rolled back under a running process, and judging by it would admit stale writes.
func (a *Authority) checkFloor(s *shard, j *job, snap Snapshot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if snap.Record.Floor < j.rec.Floor {
		return fmt.Errorf("the store answers floor %d, and floor %d was durable: it was rolled back", snap.Record.Floor, j.rec.Floor)
	}
	return nil
}

// load reads the record and the writes that a batch looks at.
func (a *Authority) load(ctx context.Context, key Job, batch []*operation) (*draft, error) {
	snap, err := a.store.Load(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("load record: %w", err)
	}
	d := &draft{Snapshot: snap}
	for _, op := range batch {
		if len(op.keys) > 0 && d.writes == nil {
			d.writes = make(map[string]WriteRecord, len(op.keys))
		}
		for _, k := range op.keys {
			if _, ok := d.writes[k]; ok {
				continue
			}
			if d.writes[k], err = a.store.LoadWrite(ctx, key, k); err != nil {
				return nil, fmt.Errorf("load write: %w", err)
			}
		}
	}
	return d, nil
}

// publish makes a committed record the one that memory judges by, and overtakes the
// attempts that it leaves below the floor.
func (a *Authority) publish(s *shard, j *job, loaded Version, d *draft, batch []*operation) {
	s.mu.Lock()
	// Who waits is woken by a change only: each looks by reading the record, and
	// would wake itself and the others without end.
	news := !j.loaded || j.version != d.Version
	if !j.loaded {
		j.before = loaded != 0
	}
	// Attempts that begin with this commit come first: a floor that rose in the same
	// commit, after they were judged, overtakes them like any other.
	for _, op := range batch {
		if op.published != nil && !op.skipped {
			op.published(s, j)
		}
	}
	j.loaded, j.rec, j.version = true, d.Record, d.Version
	cut := j.overtake(d.Record.floorFrom(a.base))
	if news {
		j.wake()
		j.wakeClaimant()
	}
	s.mu.Unlock()
	for _, c := range cut {
		c.Cut()
	}
}
