package badgerstore

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// List implements tokens.Store. The page is one moment's view of the store. The error
// wraps ErrDamaged if a record can not be read.
func (s *Store) List(ctx context.Context, q tokens.ListQuery) (page []tokens.Listed, err error) {
	defer s.observe("list", time.Now())
	if err := s.read(func() error {
		page, err = s.scan(ctx, q)
		return err
	}); err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list records: %w", context.Cause(ctx))
	}
	now := s.clock.now()
	for i := range page {
		page[i].Now = now
	}
	return page, nil
}

// scan collects up to the limit of records; it stops early when ctx ends.
func (s *Store) scan(ctx context.Context, q tokens.ListQuery) ([]tokens.Listed, error) {
	within, after := []byte{prefixRecord}, recordKey(q.After)
	if !q.AllNamespaces {
		within = recordKey(tokens.Job{Namespace: q.Namespace, ID: q.Prefix})
		after = recordKey(tokens.Job{Namespace: q.Namespace, ID: q.After.ID})
	}
	txn := s.db.NewTransactionAt(s.acknowledged.Load(), false)
	defer txn.Discard()
	opt := badger.DefaultIteratorOptions
	opt.Prefix = within
	opt.PrefetchSize = min(max(q.Limit, 1), opt.PrefetchSize)
	it := txn.NewIterator(opt)
	defer it.Close()
	start := within
	if bytes.Compare(after, within) > 0 {
		start = after
	}
	var page []tokens.Listed
	for it.Seek(start); it.Valid() && len(page) < q.Limit && ctx.Err() == nil; it.Next() {
		item := it.Item()
		if bytes.Equal(item.Key(), after) {
			continue
		}
		l, err := listed(item)
		if err != nil {
			return nil, err
		}
		page = append(page, l)
	}
	return page, nil
}

func listed(item *badger.Item) (l tokens.Listed, err error) {
	if l.Job, err = jobOf(item.Key()); err != nil {
		return l, err
	}
	l.Version = tokens.Version(item.Version())
	err = item.Value(func(b []byte) (err error) {
		l.Record, err = tokens.DecodeRecord(b)
		return err
	})
	if err != nil {
		return l, fmt.Errorf("read record of %s: %w", l.Job, err)
	}
	return l, nil
}
