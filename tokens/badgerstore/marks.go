package badgerstore

import "sync"

// maxMarks bounds each half of marks.
const maxMarks = 4096

// marks remembers what the writes that were touched last looked like, so that neither the
// start nor the settlement of a write asks Badger twice. What it says of a write holds at a
// sequence number. Every change of a write gives its job a new version, and a version is
// the sequence number that it was committed at; so it also holds for a change that expects
// a version not above that number, or that change is not committed.
type marks struct {
	mu sync.Mutex
	// old is dropped when young is full; what is in both counts as young.
	young, old map[string]markAt
}

type markAt struct {
	mark
	sequence uint64
}

// get returns what is known of the write at a place for a change that expects a version.
func (m *marks) get(place []byte, expect uint64) (mark, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.young[string(place)]
	if !ok {
		a, ok = m.old[string(place)]
	}
	return a.mark, ok && expect <= a.sequence
}

// put notes what a write looks like at a sequence number, unless something newer is known.
func (m *marks) put(place string, now mark, sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putLocked(place, now, sequence)
}

// putAll notes the writes of changes that are durable at a sequence number.
func (m *marks) putAll(changes []*change, sequence uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		for _, w := range c.marks {
			m.putLocked(w.place, w.mark, sequence)
		}
	}
}

func (m *marks) putLocked(place string, now mark, sequence uint64) {
	if a, ok := m.young[place]; ok && a.sequence > sequence {
		return
	}
	if len(m.young) >= maxMarks || m.young == nil {
		m.old, m.young = m.young, make(map[string]markAt, maxMarks)
	}
	m.young[place] = markAt{now, sequence}
}

// placedMark is what a change makes of the write at a place.
type placedMark struct {
	place string
	mark
}
