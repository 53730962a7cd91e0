package badgerstore

import (
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// acknowledge remembers the sequence numbers of written batches, several at once when
// they come faster than the sidecar syncs, and only then answers.
func (s *Store) acknowledge() {
	defer close(s.done)
	var failed error
	for b := range s.written {
		group := append(s.pending(), b)
		last := b.sequence
		for _, g := range group {
			last = max(last, g.sequence)
		}
		if failed == nil {
			start := time.Now()
			if failed = s.side.remember(last); failed != nil {
				s.breakOff(failed)
			} else {
				s.acknowledged.Store(last)
			}
			s.observe("sequence", start)
		}
		for _, g := range group {
			for _, c := range g.changes {
				if failed != nil {
					c.done <- answer{err: fmt.Errorf("%w: %w", tokens.ErrUnknown, failed)}
				} else {
					c.done <- answer{version: tokens.Version(g.sequence)}
				}
			}
		}
	}
}

// pending returns the batches that are written already.
func (s *Store) pending() (group []batch) {
	for {
		select {
		case b, ok := <-s.written:
			if !ok {
				return group
			}
			group = append(group, b)
		default:
			return group
		}
	}
}
