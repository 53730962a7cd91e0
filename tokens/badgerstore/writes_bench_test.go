package badgerstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// BenchmarkKeyedWrites commits what a keyed write commits: the start, then the outcome
// with a reply of 1 KiB. A commit here is half a write.
func BenchmarkKeyedWrites(b *testing.B) {
	for _, writers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("%dwriters", writers), func(b *testing.B) {
			s := mustOpen(b, Options{Dir: b.TempDir()})
			versions := make([]tokens.Version, writers)
			reply := settledAs(tokens.WriteApplied, 1<<60, 1<<10)
			run(b, writers, func(w int, g tokens.Generation) (err error) {
				c := tokens.WriteChange{Key: fmt.Sprintf("key-%d", (g-1)/2), Record: inFlight("a")}
				if g%2 == 0 {
					c.Record = reply
				}
				versions[w], err = s.Commit(context.Background(), tokens.Change{
					Job: jobN(w), Expect: versions[w], Record: atFloor(g), Writes: []tokens.WriteChange{c},
				})
				return err
			})
			closeStore(b, s)
		})
	}
}
