package badgerstore

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// ListWrites implements tokens.Store. The page is one moment's view of the store, and
// costs what it returns, but for a list of expired writes of one job, which passes over
// those of others. The error wraps ErrDamaged if a write can not be read.
func (s *Store) ListWrites(ctx context.Context, q tokens.WritesQuery) (page []tokens.ListedWrite, err error) {
	defer s.observe("list", time.Now())
	if err := s.read(func() error {
		txn := s.db.NewTransactionAt(s.acknowledged.Load(), false)
		defer txn.Discard()
		page, err = scanWrites(ctx, txn, q)
		return err
	}); err != nil {
		return nil, fmt.Errorf("list writes: %w", err)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("list writes: %w", context.Cause(ctx))
	}
	return page, nil
}

// index is the part of the key space that answers a query.
type index struct {
	// prefix is what its keys begin with, skip how many bytes stand before the
	// place.
	prefix []byte
	skip   int
	// after is the key that the list goes on after; nil for the beginning.
	after []byte
}

func indexFor(q tokens.WritesQuery) index {
	after := placeOf(q.After.Job, q.After.Key)
	if q.ExpiredAt != 0 {
		return index{[]byte{prefixExpiry}, 1 + expirySize, expiryKey(q.After.Record.Expires, after)}.from(q)
	}
	prefix := byte(prefixWrite)
	if q.Open {
		prefix = prefixOpen
	}
	within := []byte{prefix}
	if q.Job != (tokens.Job{}) {
		within = under(prefix, jobPlace(q.Job))
	}
	return index{within, 1, under(prefix, after)}.from(q)
}

func (x index) from(q tokens.WritesQuery) index {
	if q.After.Key == "" {
		x.after = nil
	}
	return x
}

// scanWrites collects up to the limit of writes; it stops early when ctx ends.
func scanWrites(ctx context.Context, txn *badger.Txn, q tokens.WritesQuery) ([]tokens.ListedWrite, error) {
	x := indexFor(q)
	opt := badger.DefaultIteratorOptions
	opt.Prefix = x.prefix
	opt.PrefetchValues = x.prefix[0] == prefixWrite
	opt.PrefetchSize = min(max(q.Limit, 1), opt.PrefetchSize)
	it := txn.NewIterator(opt)
	defer it.Close()
	start := x.prefix
	if bytes.Compare(x.after, start) > 0 {
		start = x.after
	}
	var page []tokens.ListedWrite
	for it.Seek(start); it.Valid() && len(page) < q.Limit && ctx.Err() == nil; it.Next() {
		key := it.Item().Key()
		if q.ExpiredAt != 0 && bytes.Compare(key[:min(len(key), x.skip)], expiryKey(q.ExpiredAt, nil)) > 0 {
			break
		}
		if bytes.Equal(key, x.after) || len(key) < x.skip {
			continue
		}
		l, ok, err := listedWrite(txn, it.Item(), q, x.skip)
		if err != nil {
			return nil, err
		}
		if ok {
			page = append(page, l)
		}
	}
	return page, nil
}

// listedWrite reads the write that an index names, and reports whether it is one that
// is asked for: the record has the last word, not the index.
func listedWrite(txn *badger.Txn, item *badger.Item, q tokens.WritesQuery, skip int) (l tokens.ListedWrite, ok bool, err error) {
	place := item.Key()[skip:]
	if l.Job, l.Key, err = nameAt(place); err != nil {
		return l, false, err
	}
	if q.Job != (tokens.Job{}) && l.Job != q.Job {
		return l, false, nil
	}
	var m mark
	if item.Key()[0] == prefixWrite {
		m, err = readWrite(item, &l.Record)
	} else {
		m, err = getWrite(txn, place, &l.Record)
	}
	if err != nil {
		return l, false, fmt.Errorf("read a write of %s: %w", l.Job, err)
	}
	ok = m.there && (!q.Open || m.open) &&
		(q.ExpiredAt == 0 || bytes.Equal(item.Key(), expiryKey(m.expires, place)))
	return l, ok, nil
}
