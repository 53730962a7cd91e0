package tokens

import (
	"context"
	"time"
)

// Store is the whole contract of an engine. It keeps one record per job and one per
// keyed write, and has no opinion on what they mean, but for two indexes: of the writes
// that are open, and of those that expire.
//
// Consistency: Load returns the newest committed record of a job, also across
// processes where the engine is shared. Commit is a compare-and-set on one job.
// There is no promise between jobs.
//
// Durability: when Commit returns nil the record is on stable storage and survives
// kill -9 and power loss. A record never disappears; a write does when it is purged.
//
// Time: a snapshot carries the store's time, which never runs backwards, not even
// across a restart, and does not follow steps of the wall clock while it runs.
//
// Errors: see Commit. Nobody but the Authority retries.
//
// All methods may be called concurrently and return when their context ends.
type Store interface {
	// Info describes the store. It does not change while the store is open.
	Info() Info
	// Load returns the job's record, or a snapshot with Version zero if there
	// is none.
	Load(ctx context.Context, job Job) (Snapshot, error)
	// Commit makes one changed record durable, if the version that it was
	// decided on is still the current one, and returns the new version. The
	// error is one of ErrConflict (the version is not current: nothing was
	// written), ErrRefused (nothing was written), ErrUnknown (it may have been
	// written; the caller must not act before it has read again or the process
	// was restarted). An engine that can no longer tell what it holds refuses
	// every later commit.
	Commit(ctx context.Context, c Change) (Version, error)
	// LoadWrite returns the record of a keyed write with its reply, or a zero
	// record if there is none. Read together with Load, a Commit that expects
	// that version proves that neither has changed.
	LoadWrite(ctx context.Context, job Job, key string) (WriteRecord, error)
	// ListWrites returns keyed writes without their replies.
	ListWrites(ctx context.Context, q WritesQuery) ([]ListedWrite, error)
	// List returns known jobs in byte order of namespace and id.
	List(ctx context.Context, q ListQuery) ([]Listed, error)
	// Err returns nil while the store takes durable writes, else why not. It
	// costs nanoseconds.
	Err() error
	// Close waits for commits under way and closes the store.
	Close() error
}

// Info describes a store.
type Info struct {
	// Engine is the engine's name in metrics and logs.
	Engine string
	// ID names the store. It was drawn at random when the store was made, and
	// begins every lease id, so that a write that arrives at a proxy on another
	// store is noticed.
	ID string
	// Epoch is raised by a restore; generations below Epoch*EpochSize are dead.
	Epoch uint32
	// Exclusive stores have one process only; what that process remembers is
	// the truth.
	Exclusive bool
	// LastKnown and Opened are the store's times when the previous process was
	// last known to run, and when this one opened it. Zero for shared stores.
	LastKnown time.Time
	Opened    time.Time
}

// Version is opaque to callers; zero means that there is no record.
type Version uint64

// Snapshot is a record as it was loaded.
type Snapshot struct {
	Record  Record
	Version Version
	// Now is the store's time at the moment of loading.
	Now time.Time
}

// Change is one record to be committed.
type Change struct {
	Job Job
	// Expect is the version that Record was decided on.
	Expect Version
	Record Record
	// Writes change with the record, all or nothing.
	Writes []WriteChange
}

// WriteChange is one keyed write to be committed.
type WriteChange struct {
	Key    string
	Record WriteRecord
	// Purge removes the write and its reply instead.
	Purge bool
}

// WritesQuery selects keyed writes, at most Limit of them: those of Job, or of all jobs
// if Job is zero, that come after After in the order of the list. Open selects those in
// flight or unknown. ExpiredAt, if not zero, selects those whose Expires is not zero and
// not above it, in the order of their expiry; else the order is that of job and key.
type WritesQuery struct {
	Job       Job
	Open      bool
	ExpiredAt int64
	After     ListedWrite
	Limit     int
}

// ListedWrite is one keyed write of a list.
type ListedWrite struct {
	Job    Job
	Key    string
	Record WriteRecord
}

// ListQuery selects jobs: those of Namespace whose id begins with Prefix and is
// above After, at most Limit.
type ListQuery struct {
	Namespace string
	// AllNamespaces ignores Namespace; Prefix must then be empty and After is
	// compared by namespace and id.
	AllNamespaces bool
	Prefix        string
	After         Job
	Limit         int
}

// Listed is one job of a list, with the store's time at the moment of listing.
type Listed struct {
	Job Job
	Snapshot
}
