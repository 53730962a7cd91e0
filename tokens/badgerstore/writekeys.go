package badgerstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// Keys of keyed writes. Each is a prefix and the write's place: namespace and job id,
// each escaped and ended as in a record's key, then the idempotency key. Places sort as
// (namespace, id, key) do. The index by expiry has the time in front of the place, in
// eight bytes that sort as the time does. Indexes and replies change in the transaction
// that changes the write.
const (
	prefixWrite  = 'w'
	prefixReply  = 'p'
	prefixOpen   = 'o'
	prefixExpiry = 'x'
	// expirySize is how many bytes the time takes.
	expirySize = 8
	// maxWriteKey is far above what the protocol allows; Badger fails a whole
	// transaction, and with it the store, over a key of 65,000 bytes.
	maxWriteKey = 16 << 10
)

var placeEnd = []byte{0, 1}

// jobPlace is where the places of a job's writes begin.
func jobPlace(j tokens.Job) []byte {
	p := make([]byte, 0, len(j.Namespace)+len(j.ID)+4+64)
	for _, part := range []string{j.Namespace, j.ID} {
		p = append(p, strings.ReplaceAll(part, "\x00", "\x00\xff")...)
		p = append(p, placeEnd...)
	}
	return p
}

func placeOf(j tokens.Job, key string) []byte { return append(jobPlace(j), key...) }

// nameAt is the inverse of placeOf.
func nameAt(place []byte) (j tokens.Job, key string, err error) {
	parts := bytes.SplitN(place, placeEnd, 3)
	if len(parts) != 3 {
		return j, "", fmt.Errorf("read key: %q names no write", place)
	}
	text := func(b []byte) string { return strings.ReplaceAll(string(b), "\x00\xff", "\x00") }
	return tokens.Job{Namespace: text(parts[0]), ID: text(parts[1])}, string(parts[2]), nil
}

// under returns the key of what lies under a prefix at a place.
func under(prefix byte, place []byte) []byte {
	return append(append(make([]byte, 0, 1+len(place)), prefix), place...)
}

func expiryKey(expires int64, place []byte) []byte {
	k := append(make([]byte, 0, 1+expirySize+len(place)), prefixExpiry)
	// The sign bit is turned over, so that bytes sort as signed numbers do.
	k = binary.BigEndian.AppendUint64(k, uint64(expires)^1<<63)
	return append(k, place...)
}

// mark stands before a stored write: what the indexes know of it, so that they can be
// kept without decoding it. The zero mark is that of a write that is not there.
type mark struct {
	there, open, reply bool
	expires            int64
	// size is about how many bytes the stored write takes; it is not stored.
	size int64
}

const (
	markOpen  byte = 1 << 0
	markReply byte = 1 << 1
	markSize       = 1 + expirySize
)

var errNoMark = errors.New("decode write: its mark is cut short")

func markOf(w tokens.WriteRecord) mark {
	return mark{there: true, open: w.IsOpen(), reply: w.Reply != nil, expires: w.Expires}
}

// encode returns the value of a stored write.
func (m mark) encode(record []byte) []byte {
	b := make([]byte, 1, markSize+len(record))
	if m.open {
		b[0] |= markOpen
	}
	if m.reply {
		b[0] |= markReply
	}
	b = binary.BigEndian.AppendUint64(b, uint64(m.expires))
	return append(b, record...)
}

// decodeMark splits the value of a stored write.
func decodeMark(b []byte) (m mark, record []byte, err error) {
	if len(b) < markSize {
		return m, nil, errNoMark
	}
	m = mark{
		there: true, open: b[0]&markOpen != 0, reply: b[0]&markReply != 0,
		expires: int64(binary.BigEndian.Uint64(b[1:])),
	}
	return m, b[markSize:], nil
}
