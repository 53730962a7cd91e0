package badgerstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const sidecarName = "sequence"

// errNoSlot is returned when neither slot of a sidecar is whole.
var errNoSlot = errors.New("neither slot is whole")

// readSidecar returns the newest whole slot and which of the two it is. The error wraps
// os.ErrNotExist if there is no file, and errNoSlot if there is no whole slot. One slot
// may be torn: it was being written, and so not acknowledged, when the machine stopped.
func readSidecar(path string) (newest slot, place int64, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return slot{}, 0, fmt.Errorf("read sidecar: %w", err)
	}
	found := false
	for i := range int64(2) {
		part := b[min(i*slotSpacing, int64(len(b))):min((i+1)*slotSpacing, int64(len(b)))]
		if s, ok := decodeSlot(part); ok && (!found || s.sequence > newest.sequence) {
			newest, place, found = s, i, true
		}
	}
	if !found {
		return slot{}, 0, fmt.Errorf("read sidecar: %w", errNoSlot)
	}
	return newest, place, nil
}

// createSidecar writes a new sidecar, durable and whole or not at all. All of it is
// written, so that a later sync finds its blocks in place and has no metadata to write.
func createSidecar(path string, s slot) error {
	tmp := path + ".tmp"
	b := make([]byte, 2*slotSpacing)
	copy(b, s.append(nil))
	copy(b[slotSpacing:], s.append(nil))
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
	buf  []byte
	sync func(*os.File) error
}

// openSidecar opens a sidecar whose newest slot is at place: that one is not the first
// to be overwritten. The slots are made durable first; whoever wrote them may have died
// before.
func openSidecar(path string, cur slot, place int64, sync func(*os.File) error) (*sidecar, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open sidecar: %w", err)
	}
	if err := f.Sync(); err != nil {
		return nil, errors.Join(fmt.Errorf("sync sidecar: %w", err), f.Close())
	}
	return &sidecar{f: f, cur: slot{id: cur.id, epoch: cur.epoch}, turn: 1 - place, sync: sync}, nil
}

// remember makes a sequence number durable, and what is committed at it. After an error
// it must not be called again: what a failed fsync left is unknown.
func (sc *sidecar) remember(sequence uint64, redo []entry) error {
	s := sc.cur
	s.sequence, s.redo = sequence, redo
	sc.buf = s.append(sc.buf[:0])
	if _, err := sc.f.WriteAt(sc.buf, sc.turn*slotSpacing); err != nil {
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
