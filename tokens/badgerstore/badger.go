package badgerstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

const (
	// memTableSize bounds memory, and with it how long a start replays.
	memTableSize = 8 << 20
	// maxBatchBytes, maxBatchChanges and maxBatchEntries stay below what Badger
	// takes in one transaction: 15 % of memTableSize, of which it counts twelve
	// bytes more for each entry, and 13,000 entries.
	maxBatchBytes   = 1 << 20
	maxBatchChanges = 2048
	maxBatchEntries = 8192
)

// BadgerOptions is the small profile that the store opens Badger with: floors are few
// bytes, and most are asked for again soon. It is exported for who compares with plain
// Badger.
func BadgerOptions(dir string, log *slog.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithLogger(badgerLog{log}).
		// Off by default in Badger v4. Without it an acknowledged floor can
		// vanish with the power. Where the store syncs the log itself it turns
		// this off again.
		WithSyncWrites(true).
		// The committer is the only writer and compares by itself.
		WithDetectConflicts(false).
		WithNumVersionsToKeep(1).
		WithMetricsEnabled(false).
		WithCompression(options.None).
		WithMemTableSize(memTableSize).
		WithNumMemtables(2).
		WithNumCompactors(2).
		// Level 0 is compacted from its second table on: with Badger's five, what
		// was purged from a small store would stay there.
		WithNumLevelZeroTables(1).
		WithNumLevelZeroTablesStall(10).
		WithBlockCacheSize(8 << 20).
		WithValueLogFileSize(16 << 20).
		// Whole tables are verified before Badger opens them; this catches
		// what goes bad later.
		WithChecksumVerificationMode(options.OnBlockRead).
		WithVerifyValueChecksum(true)
}

// openBadger opens Badger in managed mode: the committer numbers the versions, and a
// reader never waits for a commit under way, as it does in Badger's own mode. A
// panic is an error: Badger trusts lengths that it reads from disk.
func openBadger(dir string, log *slog.Logger) (db *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("open badger: %v", r)
		}
	}()
	if db, err = badger.OpenManaged(BadgerOptions(dir, log).WithSyncWrites(!syncsLog)); err != nil {
		return nil, fmt.Errorf("open badger: %w", err)
	}
	return db, nil
}

// commitAt commits entries at a sequence number, all or none. They are in the newest log
// then, whole: Badger turns the log over between transactions only (ensureRoomForWrite in
// its db.go). Where syncsLog is set they are not durable before that log is synced.
func commitAt(db *badger.DB, sequence uint64, entries []entry) error {
	txn := db.NewTransactionAt(sequence, true)
	defer txn.Discard()
	for _, e := range entries {
		var err error
		switch {
		case e.removed:
			err = txn.Delete(e.key)
		case int64(len(e.value)) >= db.Opts().ValueThreshold:
			// It would go to the value log, which nobody reads at a start and
			// nobody syncs.
			err = fmt.Errorf("a value of %d bytes is too large", len(e.value))
		default:
			err = txn.Set(e.key, e.value)
		}
		if err != nil {
			return fmt.Errorf("fill transaction: %w", err)
		}
	}
	if err := txn.CommitAt(sequence, nil); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	return nil
}

// get returns the newest value of key at or below a sequence number, and the number
// at which it was written; zero if there is none.
func get(db *badger.DB, at uint64, key []byte) (value []byte, written uint64, err error) {
	txn := db.NewTransactionAt(at, false)
	defer txn.Discard()
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, 0, nil
	}
	if err == nil {
		value, err = item.ValueCopy(nil)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("get key: %w", err)
	}
	return value, item.Version(), nil
}

// badgerLog passes Badger's own log on: what it calls an error or a warning as a
// warning, the rest as debug.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) Errorf(format string, args ...any)   { l.pass(slog.LevelWarn, format, args) }
func (l badgerLog) Warningf(format string, args ...any) { l.pass(slog.LevelWarn, format, args) }
func (l badgerLog) Infof(format string, args ...any)    { l.pass(slog.LevelDebug, format, args) }
func (l badgerLog) Debugf(format string, args ...any)   { l.pass(slog.LevelDebug, format, args) }

func (l badgerLog) pass(level slog.Level, format string, args []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "badger", "text", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
