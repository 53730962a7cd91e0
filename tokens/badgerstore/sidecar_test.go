package badgerstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestASlotSurvivesItsEncoding(t *testing.T) {
	want := slot{id: "abcdefgh23456777", epoch: 3, sequence: 1 << 40}
	b := want.encode()
	if got, ok := decodeSlot(b); !ok || got != want {
		t.Errorf("got %+v (%v), want %+v", got, ok, want)
	}
	for i := range b {
		b[i] ^= 1
		if got, ok := decodeSlot(b); ok {
			t.Errorf("with byte %d flipped it reads %+v", i, got)
		}
		b[i] ^= 1
	}
}

func TestATornSlotLeavesTheOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), sidecarName)
	if err := createSidecar(path, slot{id: "a", sequence: 1}); err != nil {
		t.Fatal(err)
	}
	sc, err := openSidecar(path, slot{id: "a", sequence: 1}, (*os.File).Sync)
	if err != nil {
		t.Fatal(err)
	}
	defer sc.close()
	for n := uint64(2); n < 6; n++ {
		if err := sc.remember(n); err != nil {
			t.Fatal(err)
		}
		if got, err := readSidecar(path); err != nil || got.sequence != n {
			t.Fatalf("it remembers %d (%v), want %d", got.sequence, err, n)
		}
		// The next one is torn: the newest slot must not be the one hit.
		torn := make([]byte, 8)
		if _, err := sc.f.WriteAt(torn, sc.turn*slotSpacing); err != nil {
			t.Fatal(err)
		}
		if got, err := readSidecar(path); err != nil || got.sequence != n {
			t.Fatalf("with the other slot torn it remembers %d (%v), want %d", got.sequence, err, n)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := readSidecar(path); !errors.Is(err, errNoSlot) {
		t.Errorf("an empty sidecar reads as %v", err)
	}
}
