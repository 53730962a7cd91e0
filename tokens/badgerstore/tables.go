package badgerstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/dgraph-io/ristretto/v2/z"
)

// readTable visits every entry of one of Badger's sorted tables, with every checksum
// verified, and returns the highest sequence number in it. After an error the entries
// before the damage have been visited. Nothing is changed. It must run before Badger
// opens the table: Badger ends the process, or panics in a goroutine of its own, on
// some damage.
func readTable(path string, fn visit) (last uint64, err error) {
	if err := checkFooter(path); err != nil {
		return 0, err
	}
	mapped, err := z.OpenMmapFile(path, os.O_RDONLY, 0)
	if err != nil {
		return 0, fmt.Errorf("map table: %w", err)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("read table: it is damaged inside (%.80s)", fmt.Sprint(r))
		}
		err = errors.Join(err, mapped.Close(-1))
	}()
	t, err := table.OpenTable(mapped, table.Options{
		ReadOnly: true, ChkMode: options.OnBlockRead, Compression: options.None,
	})
	if err != nil {
		return 0, fmt.Errorf("read table: %w", err)
	}
	// Neither the iterator nor the table is closed: dropping the last reference
	// of a table deletes its file. The map is closed above.
	it := t.NewIterator(table.NOCACHE)
	seen := uint32(0)
	for it.Rewind(); it.Valid(); it.Next() {
		key, seq := it.Key(), y.ParseTs(it.Key())
		last = max(last, seq)
		v := it.Value()
		fn(y.ParseKey(key), foundValue(v.Meta, v.Value), seq)
		seen++
	}
	if want := t.KeyCount(); seen != want {
		return last, fmt.Errorf("read table: %d of %d entries can be read", seen, want)
	}
	return last, nil
}

// checkFooter verifies the two lengths at the end of a table, which Badger follows
// without a check: ... index, its length, checksum, its length.
func checkFooter(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open table: %w", err)
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("open table: %w", err)
	}
	for range 2 {
		var b [4]byte
		if _, err := f.ReadAt(b[:], max(0, end-4)); err != nil {
			return fmt.Errorf("read table footer: %w", err)
		}
		end -= 4 + int64(binary.BigEndian.Uint32(b[:]))
		if end < 0 {
			return errors.New("read table footer: a length points before the file")
		}
	}
	return nil
}
