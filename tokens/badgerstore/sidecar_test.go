package badgerstore

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestASlotSurvivesItsEncoding(t *testing.T) {
	for _, redo := range [][]entry{nil, {{key: []byte("c"), value: []byte("12345678")}, {key: []byte("r\x00\x01job"), value: []byte(`{"floor":7}`)}, {key: []byte("w"), value: []byte{}, removed: true}}} {
		want := slot{id: "abcdefgh23456777", epoch: 3, sequence: 1 << 40, redo: redo}
		b := want.append(nil)
		if got, ok := decodeSlot(append(b, "left over"...)); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v (%v), want %+v", got, ok, want)
		}
		for i := range b {
			b[i] ^= 1
			if got, ok := decodeSlot(b); ok {
				t.Errorf("with byte %d flipped it reads %+v", i, got)
			}
			if got, ok := decodeSlot(b[:i]); ok {
				t.Errorf("cut to %d bytes it reads %+v", i, got)
			}
			b[i] ^= 1
		}
	}
}

func TestASlotHoldsTheLargestBatch(t *testing.T) {
	redo := []entry{clockEntry(time.Now())}
	for n, size := 0, 0; n < maxBatchChanges && size+maxBatchBytes/maxBatchChanges <= maxBatchBytes; n++ {
		e := entry{key: recordKey(jobN(n))}
		e.value = make([]byte, maxBatchBytes/maxBatchChanges-len(e.key))
		size += len(e.key) + len(e.value)
		redo = append(redo, e)
	}
	if got := int64(len(slot{redo: redo}.append(nil))); len(redo) != maxBatchChanges+1 || got > slotSpacing {
		t.Errorf("a batch of %d entries takes %d bytes, a slot has %d", len(redo), got, slotSpacing)
	}
}

func TestATornSlotLeavesTheOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), sidecarName)
	if err := createSidecar(path, slot{id: "a", sequence: 1}); err != nil {
		t.Fatal(err)
	}
	for n := uint64(2); n < 6; n++ {
		// Opened anew each time: which slot is the newest is read from the file.
		_, place, err := readSidecar(path)
		if err != nil {
			t.Fatal(err)
		}
		sc, err := openSidecar(path, slot{id: "a", sequence: n - 1}, place, (*os.File).Sync)
		if err != nil {
			t.Fatal(err)
		}
		for _, tear := range []bool{true, false} {
			if tear {
				// A torn write must not hit the newest slot.
				_, err = sc.f.WriteAt(make([]byte, 8), sc.turn*slotSpacing)
			} else {
				err = sc.remember(n, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := n
			if tear {
				want = n - 1
			}
			if got, _, err := readSidecar(path); err != nil || got.sequence != want {
				t.Fatalf("it remembers %d (%v), want %d (torn: %v)", got.sequence, err, want, tear)
			}
		}
		if err := sc.close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readSidecar(path); !errors.Is(err, errNoSlot) {
		t.Errorf("an empty sidecar reads as %v", err)
	}
}
