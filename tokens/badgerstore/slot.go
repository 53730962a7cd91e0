package badgerstore

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	sidecarMagic = "fencseq3"
	slotID       = 32
	slotHeader   = len(sidecarMagic) + slotID + 4 + 8 + 4
	// slotRoom is what an entry takes besides its bytes, at most.
	slotRoom = 1 + 2*binary.MaxVarintLen32
	// slotSpacing holds any batch. It is whole pages, so that no torn write
	// reaches both slots.
	slotSpacing = int64(slotHeader+maxBatchBytes+(maxBatchEntries+2)*slotRoom+crc32.Size+4095) &^ 4095
)

// slot is what the sidecar remembers: the highest sequence number that may have been
// acknowledged, of which store, and what was committed at it. Redo is empty where a
// number is remembered that was found and not written.
type slot struct {
	id       string
	epoch    uint32
	sequence uint64
	redo     []entry
}

// append appends the slot's bytes to b: the length of the redo comes before it, one
// checksum over all at the end.
func (s slot) append(b []byte) []byte {
	start := len(b)
	b = append(b, sidecarMagic...)
	var id [slotID]byte
	copy(id[:], s.id)
	b = append(b, id[:]...)
	b = binary.BigEndian.AppendUint32(b, s.epoch)
	b = binary.BigEndian.AppendUint64(b, s.sequence)
	b = append(b, 0, 0, 0, 0)
	redo := len(b)
	for _, e := range s.redo {
		kind := byte(0)
		if e.removed {
			kind = 1
		}
		b = appendBytes(appendBytes(append(b, kind), e.key), e.value)
	}
	binary.BigEndian.PutUint32(b[redo-4:], uint32(len(b)-redo))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], crc32.MakeTable(crc32.Castagnoli)))
}

// decodeSlot reads the slot at the beginning of b. The redo is a part of b. False means
// that the slot is not whole.
func decodeSlot(b []byte) (slot, bool) {
	if len(b) < slotHeader+crc32.Size || string(b[:len(sidecarMagic)]) != sidecarMagic {
		return slot{}, false
	}
	n := uint64(binary.BigEndian.Uint32(b[slotHeader-4:]))
	if n > uint64(len(b)-slotHeader-crc32.Size) {
		return slot{}, false
	}
	end := slotHeader + int(n)
	if binary.BigEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], crc32.MakeTable(crc32.Castagnoli)) {
		return slot{}, false
	}
	id := b[len(sidecarMagic):][:slotID]
	for len(id) > 0 && id[len(id)-1] == 0 {
		id = id[:len(id)-1]
	}
	at := len(sidecarMagic) + slotID
	s := slot{id: string(id), epoch: binary.BigEndian.Uint32(b[at:]), sequence: binary.BigEndian.Uint64(b[at+4:])}
	for rest := b[slotHeader:end]; len(rest) > 0; {
		e := entry{removed: rest[0] == 1}
		rest = rest[1:]
		var ok bool
		if e.key, rest, ok = cutBytes(rest); !ok {
			return slot{}, false
		}
		if e.value, rest, ok = cutBytes(rest); !ok {
			return slot{}, false
		}
		s.redo = append(s.redo, e)
	}
	return s, true
}

func appendBytes(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

func cutBytes(b []byte) (data, rest []byte, ok bool) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > uint64(len(b)-used) {
		return nil, nil, false
	}
	return b[used:][:n], b[used+int(n):], true
}
