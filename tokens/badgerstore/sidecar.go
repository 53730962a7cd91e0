package badgerstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

const (
	sidecarName  = "sequence"
	sidecarMagic = "fencseq1"
	// slotSpacing keeps the two slots on different pages, so that no torn
	// write reaches both.
	slotSpacing = 4096
	slotID      = 32
	slotSize    = len(sidecarMagic) + slotID + 4 + 8 + 4
)

// errNoSlot is returned when neither slot of a sidecar is whole.
var errNoSlot = errors.New("neither slot is whole")

// slot is what the sidecar remembers: the highest sequence number that was
// acknowledged, and of which store.
type slot struct {
	id       string
	epoch    uint32
	sequence uint64
}

func (s slot) encode() []byte {
	b := make([]byte, 0, slotSize)
	b = append(b, sidecarMagic...)
	var id [slotID]byte
	copy(id[:], s.id)
	b = append(b, id[:]...)
	b = binary.BigEndian.AppendUint32(b, s.epoch)
	b = binary.BigEndian.AppendUint64(b, s.sequence)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func decodeSlot(b []byte) (slot, bool) {
	sum := len(b) - 4
	if string(b[:len(sidecarMagic)]) != sidecarMagic ||
		binary.BigEndian.Uint32(b[sum:]) != crc32.Checksum(b[:sum], crc32.MakeTable(crc32.Castagnoli)) {
		return slot{}, false
	}
	b = b[len(sidecarMagic):]
	id := b[:slotID]
	for len(id) > 0 && id[len(id)-1] == 0 {
		id = id[:len(id)-1]
	}
	b = b[slotID:]
	return slot{string(id), binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])}, true
}

// readSidecar returns the newest whole slot. The error wraps os.ErrNotExist if
// there is no file, and errNoSlot if there is no whole slot. One slot may be torn:
// it was being written, and so not acknowledged, when the machine stopped.
func readSidecar(path string) (slot, error) {
	f, err := os.Open(path)
	if err != nil {
		return slot{}, fmt.Errorf("open sidecar: %w", err)
	}
	defer f.Close()
	var newest slot
	found := false
	for i := range int64(2) {
		var b [slotSize]byte
		if _, err := f.ReadAt(b[:], i*slotSpacing); err != nil {
			if errors.Is(err, io.EOF) {
				continue
			}
			return slot{}, fmt.Errorf("read sidecar: %w", err)
		}
		if s, ok := decodeSlot(b[:]); ok && (!found || s.sequence > newest.sequence) {
			newest, found = s, true
		}
	}
	if !found {
		return slot{}, fmt.Errorf("read sidecar: %w", errNoSlot)
	}
	return newest, nil
}

// createSidecar writes a new sidecar, durable and whole or not at all.
func createSidecar(path string, s slot) error {
	tmp := path + ".tmp"
	b := make([]byte, 2*slotSpacing)
	copy(b, s.encode())
	copy(b[slotSpacing:], s.encode())
	if err := writeSynced(tmp, b); err != nil {
		return fmt.Errorf("create sidecar: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("create sidecar: %w", err)
	}
	return syncPath(filepath.Dir(path))
}

// sidecar is an open sidecar. It is used by one goroutine at a time.
type sidecar struct {
	f    *os.File
	cur  slot
	turn int64
	sync func(*os.File) error
}

func openSidecar(path string, cur slot, sync func(*os.File) error) (*sidecar, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open sidecar: %w", err)
	}
	sc := &sidecar{f: f, cur: cur, sync: sync}
	// The first write goes to the slot that does not hold the newest number.
	var b [slotSize]byte
	if _, err := f.ReadAt(b[:], 0); err == nil {
		if s, ok := decodeSlot(b[:]); ok && s.sequence == cur.sequence {
			sc.turn = 1
		}
	}
	return sc, nil
}

// remember makes sequence durable as acknowledged. After an error it must not be
// called again: what a failed fsync left is unknown.
func (sc *sidecar) remember(sequence uint64) error {
	sc.cur.sequence = sequence
	if _, err := sc.f.WriteAt(sc.cur.encode(), sc.turn*slotSpacing); err != nil {
		return fmt.Errorf("write sidecar: %w", err)
	}
	if err := sc.sync(sc.f); err != nil {
		return fmt.Errorf("sync sidecar: %w", err)
	}
	sc.turn = 1 - sc.turn
	return nil
}

func (sc *sidecar) close() error { return sc.f.Close() }

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// syncPath makes a directory's names, or a file, durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", filepath.Base(path), err)
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", filepath.Base(path), err)
	}
	return nil
}
