package badgerstore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// formatVersion of what is stored. A directory with a higher one is refused.
const formatVersion = 1

// Keys. The first byte says what a key is. A record's key is the prefix, the
// namespace with every zero byte escaped as 00 FF, 00 01, and the job id: keys then
// sort as (namespace, id) do, and no namespace is a prefix of another.
const (
	prefixRecord = 'r'
	keyMeta      = "m"
	keyClock     = "c"
)

// entry is one key and its value, or the removal of the key.
type entry struct {
	key, value []byte
	removed    bool
}

func (e entry) size() int { return len(e.key) + len(e.value) }

func recordKey(j tokens.Job) []byte {
	namespace := strings.ReplaceAll(j.Namespace, "\x00", "\x00\xff")
	k := append(make([]byte, 0, len(namespace)+len(j.ID)+3), prefixRecord)
	k = append(append(k, namespace...), 0, 1)
	return append(k, j.ID...)
}

// jobOf is the inverse of recordKey.
func jobOf(key []byte) (tokens.Job, error) {
	end := bytes.Index(key, []byte{0, 1})
	if end < 1 || key[0] != prefixRecord {
		return tokens.Job{}, fmt.Errorf("read key: %q names no job", key)
	}
	return tokens.Job{
		Namespace: strings.ReplaceAll(string(key[1:end]), "\x00\xff", "\x00"),
		ID:        string(key[end+2:]),
	}, nil
}

// meta is what is fixed while the store is open.
type meta struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	Epoch  uint32 `json:"epoch"`
}

func (m meta) entry() (entry, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return entry{}, fmt.Errorf("encode meta record: %w", err)
	}
	return entry{key: []byte(keyMeta), value: b}, nil
}

func decodeMeta(b []byte) (meta, error) {
	var m meta
	if err := json.Unmarshal(b, &m); err != nil {
		return meta{}, fmt.Errorf("decode meta record: %w", err)
	}
	if m.Format < 1 || m.ID == "" {
		return meta{}, fmt.Errorf("decode meta record: format %d and id %q make no sense", m.Format, m.ID)
	}
	return m, nil
}

func clockEntry(t time.Time) entry {
	return entry{key: []byte(keyClock), value: binary.BigEndian.AppendUint64(nil, uint64(t.UnixNano()))}
}

func decodeClock(b []byte) (time.Time, error) {
	if len(b) != 8 {
		return time.Time{}, fmt.Errorf("decode clock: it has %d bytes, not 8", len(b))
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(b))), nil
}
