package badgerstore

import (
	"slices"
	"sync"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// maxRecent bounds the records that each half of recent holds, maxRecentSize the bytes
// of one.
const (
	maxRecent     = 8192
	maxRecentSize = 1 << 10
)

// recent holds the newest version of the records that were committed last, so that
// neither the next decision on them nor the comparison of its commit has to ask Badger.
// Only the committer puts, and what it puts is durable: a reader that put what it found
// could put an old version over a newer one.
type recent struct {
	mu sync.RWMutex
	// old is dropped when young is full; what is in both counts as young.
	young, old map[string]acked
}

// acked is a record as it was acknowledged, shared with nobody.
type acked struct {
	version uint64
	record  tokens.Record
}

func (r *recent) get(key []byte) (acked, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a, ok := r.young[string(key)]
	if !ok {
		a, ok = r.old[string(key)]
	}
	return a, ok
}

// unshared returns a copy of a record without a result that shares nothing with it: a
// record is the caller's before its commit and after its load.
func unshared(r tokens.Record) tokens.Record {
	if r.Lease != nil {
		lease := *r.Lease
		r.Lease = &lease
	}
	r.Past = slices.Clone(r.Past)
	return r
}

// put notes changes that are durable at a sequence number.
func (r *recent) put(changes []*change, version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		// A result may have another form in memory than in the store.
		if c.removed || len(c.value) > maxRecentSize || c.record.Result != nil {
			delete(r.young, string(c.key))
			delete(r.old, string(c.key))
			continue
		}
		if len(r.young) >= maxRecent || r.young == nil {
			r.old, r.young = r.young, make(map[string]acked)
		}
		r.young[string(c.key)] = acked{version, unshared(c.record)}
	}
}
