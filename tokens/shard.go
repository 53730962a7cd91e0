package tokens

import (
	"hash/maphash"
	"sync"
)

type shard struct {
	mu   sync.Mutex
	jobs map[Job]*job
}

// job is what the process knows of a job. Its shard's lock protects all of it.
type job struct {
	key Job
	// loaded tells that rec is the committed record.
	loaded bool
	rec    Record
	// version is the record's; a publication of the same one is no news.
	version Version
	// before tells that the record is older than this process, so attempts of a
	// dead one may have been in flight.
	before bool

	// queue holds the operations that the next commit carries; busy tells that
	// a goroutine is serving it.
	queue []*operation
	busy  bool
	// unwanted tells that whoever made the job wants it no more; it is dropped if
	// the store does not know it.
	unwanted bool

	// attempts in flight, and watchers: writes whose body is still being
	// received. older counts the attempts below the floor.
	attempts list
	watchers list
	older    int
	// waiting counts writes that wait for older attempts; changed is closed
	// when the last of those is gone or the record has changed. It is nil while
	// nobody has asked for it.
	waiting int
	changed chan struct{}
	// starting counts keyed writes whose attempt is being made durable.
	starting int

	claimants []*claimant
	tally     [2]Tally
}

func (a *Authority) shardOf(key Job) *shard {
	return &a.shards[maphash.Comparable(a.seed, key)%shardCount]
}

// job returns the job, made if need be. The shard is locked.
func (s *shard) job(key Job, most int) *job {
	if j := s.jobs[key]; j != nil {
		j.unwanted = false
		return j
	}
	if len(s.jobs) >= most {
		s.evict()
	}
	j := &job{key: key}
	s.jobs[key] = j
	return j
}

// evict forgets some jobs of which nothing is under way; the store remembers them.
// The shard is locked.
func (s *shard) evict() {
	const atOnce = 16
	dropped := 0
	for key, j := range s.jobs {
		if j.idle() {
			delete(s.jobs, key)
			if dropped++; dropped == atOnce {
				return
			}
		}
	}
}

// drop forgets a job that forget was asked for, once nothing of it is under way. The shard
// is locked.
func (s *shard) drop(j *job) {
	if j.unwanted && j.version == 0 && j.idle() && s.jobs[j.key] == j {
		delete(s.jobs, j.key)
	}
}

func (j *job) idle() bool {
	return !j.busy && len(j.queue) == 0 && j.attempts.n == 0 && j.watchers.n == 0 && j.waiting == 0 && j.starting == 0 && len(j.claimants) == 0
}

// signal returns a channel that is closed at the job's next change. The shard is locked.
func (j *job) signal() <-chan struct{} {
	if j.changed == nil {
		j.changed = make(chan struct{})
	}
	return j.changed
}

// wake lets everybody who waits for a change of the job look again. The shard is
// locked.
func (j *job) wake() {
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}
