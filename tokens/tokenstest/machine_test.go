package tokenstest

import "testing"

// clocked is a memory store with a clock that the machine moves.
type clocked struct {
	*Memory
	*Clock
}

func newClocked(exclusive bool, epoch uint32) *clocked {
	c := &Clock{}
	m := NewMemory(c.Now)
	m.Configure(exclusive, epoch)
	return &clocked{m, c}
}

func TestTheAuthorityKeepsItsPromisesThroughRandomHistories(t *testing.T) {
	for name, o := range map[string]Opener{
		"exclusive":       newClocked(true, 0),
		"shared":          newClocked(false, 0),
		"later epoch":     newClocked(true, 2),
		"wall clock only": NewMemory(nil),
	} {
		t.Run(name, func(t *testing.T) { Machine(t, o) })
	}
}
