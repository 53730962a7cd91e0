package badgerstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/dgraph-io/badger/v4/y"
)

// The write-ahead log of Badger 4.9 (memtable.go there): a header of 20 bytes, of
// which the first 8 name an encryption key and are zero here; then records of meta,
// user meta, key length, value length and expiry (varints), key, value, CRC-32C.
// A transaction ends with a record that carries its version in decimal. Badger
// replays up to the first record that is not whole and drops the rest silently, so
// we read the log first and judge what the replay would leave.
const (
	walHeader       = 20
	walRemoved byte = 1 << 0
	walInTxn   byte = 1 << 6
	walEndsTxn byte = 1 << 7
)

// visit is called for each entry found on disk, with the sequence number that it was
// committed at. The value of a removal is nil, that of an empty entry is not.
type visit func(key, value []byte, sequence uint64)

// span is what a file holds: the lowest and highest sequence number, zero if none.
type span struct{ first, last uint64 }

// walRecord is one record; key still carries the version.
type walRecord struct {
	meta       byte
	key, value []byte
	size       int
}

// readRecord returns the record at the beginning of b, or false if there is no whole
// one.
func readRecord(b []byte) (walRecord, bool) {
	if len(b) < 2 {
		return walRecord{}, false
	}
	var n [3]uint64
	at := 2
	for i := range n {
		v, used := binary.Uvarint(b[at:])
		if used <= 0 {
			return walRecord{}, false
		}
		n[i], at = v, at+used
	}
	klen, vlen := n[0], n[1]
	if klen == 0 || klen > 1<<16 || vlen > uint64(len(b)) || at+int(klen)+int(vlen)+crc32.Size > len(b) {
		return walRecord{}, false
	}
	end := at + int(klen) + int(vlen)
	if crc32.Checksum(b[:end], y.CastagnoliCrcTable) != binary.BigEndian.Uint32(b[end:]) {
		return walRecord{}, false
	}
	return walRecord{b[0], b[at : at+int(klen)], b[at+int(klen) : end], end + crc32.Size}, true
}

// readLog visits the entries of every whole transaction of a log, as Badger's replay
// would, and returns the span of their sequence numbers. It is an error if these do
// not follow each other one by one; then all of it has been visited as well.
func readLog(b []byte, fn visit) (s span, err error) {
	if len(b) < walHeader {
		return s, nil
	}
	if key := binary.BigEndian.Uint64(b); key != 0 {
		return s, fmt.Errorf("its header names encryption key %d", key)
	}
	var txn []walRecord
	for b = b[walHeader:]; ; {
		r, ok := readRecord(b)
		if !ok {
			return s, err
		}
		b = b[r.size:]
		switch {
		case r.meta&walInTxn != 0 && len(r.key) > 8:
			if len(txn) > 0 && y.ParseTs(txn[0].key) != y.ParseTs(r.key) {
				return s, err
			}
			txn = append(txn, r)
		case r.meta&walEndsTxn != 0 && len(txn) > 0:
			seq := y.ParseTs(txn[0].key)
			if string(r.value) != strconv.FormatUint(seq, 10) {
				return s, err
			}
			if s.last != 0 && seq != s.last+1 {
				err = errors.Join(err, fmt.Errorf("change %d follows change %d", seq, s.last))
			}
			if s.first == 0 {
				s.first = seq
			}
			s.last = seq
			for _, e := range txn {
				fn(y.ParseKey(e.key), foundValue(e.meta, e.value), seq)
			}
			txn = txn[:0]
		default:
			return s, err
		}
	}
}

// foundValue is the value that a visit is told.
func foundValue(meta byte, value []byte) []byte {
	switch {
	case meta&walRemoved != 0:
		return nil
	case value == nil:
		return []byte{}
	}
	return value
}
