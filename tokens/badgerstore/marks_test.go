package badgerstore

import (
	"fmt"
	"testing"
)

func TestAMarkCountsOnlyForWhatWasDecidedNotAfterIt(t *testing.T) {
	var m marks
	place := []byte("place")
	absent, open := mark{}, mark{there: true, open: true}
	if _, ok := m.get(place, 0); ok {
		t.Error("an unknown write has a mark")
	}
	m.put(string(place), absent, 5)
	for expect, want := range map[uint64]bool{0: true, 5: true, 6: false} {
		if got, ok := m.get(place, expect); ok != want || got != absent {
			t.Errorf("for a change on version %d: %+v (%v), want %v", expect, got, ok, want)
		}
	}
	// The committer knows more than a reader that began before it.
	m.putAll([]*change{{marks: []placedMark{{string(place), open}}}}, 9)
	m.put(string(place), absent, 7)
	if got, ok := m.get(place, 9); !ok || got != open {
		t.Errorf("an older mark replaced a newer one: %+v (%v)", got, ok)
	}
}

// Also a reader that comes late with what it saw may not be believed.
func TestAnOldMarkThatOutlivesANewOneIsNotBelieved(t *testing.T) {
	var m marks
	m.put("place", mark{there: true, open: true}, 9)
	for n := range 3 * maxMarks { // drops it
		m.put(fmt.Sprint(n), mark{}, 10)
	}
	m.put("place", mark{}, 7)
	if got, ok := m.get([]byte("place"), 9); ok {
		t.Errorf("a change on version 9 is told what was at 7: %+v", got)
	}
	if len(m.young) > maxMarks || len(m.old) > maxMarks {
		t.Errorf("%d and %d marks are kept, at most %d each", len(m.young), len(m.old), maxMarks)
	}
}
