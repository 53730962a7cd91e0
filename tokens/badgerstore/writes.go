package badgerstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// LoadWrite implements tokens.Store. The error wraps ErrDamaged if the write or its
// reply can not be read.
func (s *Store) LoadWrite(ctx context.Context, job tokens.Job, key string) (w tokens.WriteRecord, err error) {
	defer s.observe("load", time.Now())
	if ctx.Err() != nil {
		return w, fmt.Errorf("load write: %w", context.Cause(ctx))
	}
	place := placeOf(job, key)
	err = s.read(func() error {
		at := s.acknowledged.Load()
		txn := s.db.NewTransactionAt(at, false)
		defer txn.Discard()
		var m mark
		if w, m, err = loadWrite(txn, place); err == nil {
			s.marks.put(string(place), m, at)
		}
		return err
	})
	if err != nil {
		return tokens.WriteRecord{}, fmt.Errorf("load write: %w", err)
	}
	return w, nil
}

func loadWrite(txn *badger.Txn, place []byte) (w tokens.WriteRecord, m mark, err error) {
	m, err = getWrite(txn, place, &w)
	if err != nil || !m.reply {
		return w, m, err
	}
	item, err := txn.Get(under(prefixReply, place))
	if err != nil {
		return w, m, fmt.Errorf("get reply: %w", err)
	}
	err = item.Value(func(b []byte) (err error) {
		w.Reply, err = tokens.DecodeReply(b)
		return err
	})
	return w, m, err
}

// getWrite reads the write at a place and its mark. There may be none; w is left alone
// then. A nil w asks for the mark alone.
func getWrite(txn *badger.Txn, place []byte, w *tokens.WriteRecord) (mark, error) {
	item, err := txn.Get(under(prefixWrite, place))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, fmt.Errorf("get write: %w", err)
	}
	return readWrite(item, w)
}

func readWrite(item *badger.Item, w *tokens.WriteRecord) (m mark, err error) {
	err = item.Value(func(b []byte) error {
		var record []byte
		if m, record, err = decodeMark(b); err != nil || w == nil {
			return err
		}
		*w, err = tokens.DecodeWrite(record)
		return err
	})
	m.size = item.EstimatedSize()
	return m, err
}

// pendingWrites are the entries of a change's writes.
type pendingWrites struct {
	entries []entry
	marks   []placedMark
	// freed is about how many bytes of older values they make superfluous.
	freed int64
}

func (p *pendingWrites) set(key, value []byte) {
	p.entries = append(p.entries, entry{key: key, value: value})
}
func (p *pendingWrites) remove(key []byte) {
	p.entries = append(p.entries, entry{key: key, removed: true})
}

// drop removes what takes space and counts how much. It may not be there: this very
// change may have set it.
func (p *pendingWrites) drop(l *lookup, key []byte) {
	if item, err := l.transaction().Get(key); err == nil {
		p.freed += item.EstimatedSize()
	}
	p.remove(key)
}

// encodedWrite is a write as it will be stored. The record is nil for a purge.
type encodedWrite struct {
	place, record, body []byte
	mark
}

func encodeWrite(job tokens.Job, w *tokens.WriteChange) (e encodedWrite, err error) {
	if len(w.Key) > maxWriteKey {
		return e, fmt.Errorf("encode write: its key has %d bytes", len(w.Key))
	}
	e.place = placeOf(job, w.Key)
	if w.Purge {
		return e, nil
	}
	e.mark = markOf(w.Record)
	if e.record, err = tokens.EncodeWrite(w.Record); err != nil {
		return e, err
	}
	if e.reply {
		e.body, err = tokens.EncodeReply(w.Record.Reply)
	}
	return e, err
}

// prepare turns the writes of a change into entries. It runs in the caller's goroutine
// and looks up what the writes are now, so that the committer reads nothing of them: who
// decided on version Expect read an acknowledged record, and if a write of the job has
// changed since, so has the job's version, and the change is not committed.
func (s *Store) prepare(c tokens.Change) (p pendingWrites, err error) {
	if len(c.Writes) == 0 {
		return p, nil
	}
	writes := make([]encodedWrite, len(c.Writes))
	for i := range c.Writes {
		if writes[i], err = encodeWrite(c.Job, &c.Writes[i]); err != nil {
			return p, err
		}
	}
	p.entries = make([]entry, 0, 4*len(c.Writes))
	p.marks = make([]placedMark, 0, len(c.Writes))
	err = s.read(func() error {
		l := lookup{store: s, expect: uint64(c.Expect)}
		defer l.discard()
		for i := range writes {
			w := &writes[i]
			old, err := l.mark(w.place, p.marks)
			if err != nil {
				return err
			}
			p.replace(&l, old, w)
			// Its size, as far as the encoding tells it.
			w.size = int64(len(w.place) + len(w.record))
			p.marks = append(p.marks, placedMark{string(w.place), w.mark})
		}
		return nil
	})
	return p, err
}

// lookup finds out what writes are before a change, in Badger only where it must.
type lookup struct {
	store  *Store
	expect uint64
	txn    *badger.Txn
}

// transaction begins with the first that needs one.
func (l *lookup) transaction() *badger.Txn {
	if l.txn == nil {
		l.txn = l.store.db.NewTransactionAt(l.store.acknowledged.Load(), false)
	}
	return l.txn
}

func (l *lookup) discard() {
	if l.txn != nil {
		l.txn.Discard()
	}
}

// mark is that of the write at a place; before are those of the same change.
func (l *lookup) mark(place []byte, before []placedMark) (mark, error) {
	for _, b := range slices.Backward(before) {
		if b.place == string(place) {
			return b.mark, nil
		}
	}
	if m, ok := l.store.marks.get(place, l.expect); ok {
		return m, nil
	}
	return getWrite(l.transaction(), place, nil)
}

// replace puts a write in the place of one whose mark was old, and keeps the indexes.
func (p *pendingWrites) replace(l *lookup, old mark, w *encodedWrite) {
	switch {
	case w.there:
		p.set(under(prefixWrite, w.place), w.mark.encode(w.record))
	case old.there:
		p.freed += old.size
		p.remove(under(prefixWrite, w.place))
	}
	switch {
	case w.reply:
		p.set(under(prefixReply, w.place), w.body)
	case old.reply:
		p.drop(l, under(prefixReply, w.place))
	}
	switch {
	case w.open && !old.open:
		p.set(under(prefixOpen, w.place), nil)
	case old.open && !w.open:
		p.remove(under(prefixOpen, w.place))
	}
	if old.expires == w.expires {
		return
	}
	if old.expires != 0 {
		p.remove(expiryKey(old.expires, w.place))
	}
	if w.expires != 0 {
		p.set(expiryKey(w.expires, w.place), nil)
	}
}
