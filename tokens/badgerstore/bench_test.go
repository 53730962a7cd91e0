package badgerstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// BenchmarkFloorRaises compares this store with plain Badger under the same options,
// where each raise is a transaction and a sync of its own. Every writer raises the
// floors of its own job; each raise is durable when it returns.
func BenchmarkFloorRaises(b *testing.B) {
	for _, writers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("%dwriters/store", writers), func(b *testing.B) {
			s := mustOpen(b, Options{Dir: b.TempDir()})
			versions := make([]tokens.Version, writers)
			run(b, writers, func(w int, g tokens.Generation) (err error) {
				versions[w], err = s.Commit(context.Background(), tokens.Change{Job: jobN(w), Expect: versions[w], Record: atFloor(g)})
				return err
			})
			closeStore(b, s)
		})
		b.Run(fmt.Sprintf("%dwriters/plain-badger", writers), func(b *testing.B) {
			db, err := badger.Open(BadgerOptions(b.TempDir(), Options{}.withDefaults().Logger))
			if err != nil {
				b.Fatal(err)
			}
			run(b, writers, func(w int, g tokens.Generation) error {
				value, err := tokens.EncodeRecord(atFloor(g))
				if err != nil {
					return err
				}
				return db.Update(func(txn *badger.Txn) error { return txn.Set(recordKey(jobN(w)), value) })
			})
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// run spreads b.N raises over the writers.
func run(b *testing.B, writers int, raise func(w int, g tokens.Generation) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	failed := make(chan error, writers)
	b.ResetTimer()
	for w := range writers {
		go func() {
			for g := tokens.Generation(1); left.Add(-1) >= 0; g++ {
				if err := raise(w, g); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range writers {
		if err := <-failed; err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	b.ReportMetric(0, "ns/op")
}
