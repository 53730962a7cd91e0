package badgerstore

import (
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

const (
	// openFree is what Badger may write while it opens: logs that it replays go
	// to tables, and new logs are begun.
	openFree = 16 << 20
	// idBytes of a store's id: no two stores that ever meet are alike.
	idBytes = 10
)

// Open opens the store in opt.Dir, and makes it if there is none. The error wraps
// ErrLocked if another process has it open, ErrDamaged if it does not hold everything
// that was acknowledged, ErrFormat if a newer program wrote it, ErrNoSpace if the disk
// is full. A damaged directory stays as it is, so that it is refused every time.
func Open(opt Options) (*Store, error) { return open(opt, productionSeams()) }

func open(opt Options, sm seams) (_ *Store, err error) {
	opt = opt.withDefaults()
	if err := makeDir(opt.Dir); err != nil {
		return nil, err
	}
	lock, err := hold(opt.Dir, opt.Clock.Wall())
	if err != nil {
		return nil, err
	}
	s := &Store{
		opt: opt, seams: sm, lock: lock, born: time.Now(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	// The look comes first, while nothing can have been changed.
	found, err := inspect(opt.Dir)
	if err != nil {
		return nil, err
	}
	if n, err := sm.free(opt.Dir); err != nil {
		return nil, err
	} else if need := min(openFree, opt.MinFree); n < need {
		return nil, fmt.Errorf("%w: %d bytes on the file system of %s, %d are needed to open the store", ErrNoSpace, n, opt.Dir, need)
	}
	if err := s.openFiles(found); err != nil {
		return nil, err
	}
	if err := s.settle(found); err != nil {
		return nil, err
	}
	opt.Logger.Info("store opened", "engine", s.info.Engine, "dir", opt.Dir, "store_id", s.info.ID, "epoch", s.info.Epoch,
		"sequence", s.sequence)
	go s.run()
	return s, nil
}

// release lets go of whatever a failed open had taken.
func (s *Store) release() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	errs = append(errs, s.closeLog())
	if s.side != nil {
		errs = append(errs, s.side.close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// openFiles opens Badger and makes sure that it holds what inspect found.
func (s *Store) openFiles(found finding) error {
	dir := storeDir(s.opt.Dir)
	if err := makeDir(dir); err != nil {
		return err
	}
	if err := removeEmpty(s.opt.Dir); err != nil {
		return err
	}
	db, err := openBadger(dir, s.opt.Logger)
	if err != nil && strings.Contains(err.Error(), "directory lock") {
		return fmt.Errorf("%w: a program other than fenceproxy has %s open: %w", ErrLocked, dir, err)
	}
	if err != nil {
		return fmt.Errorf("open store: %w; what it holds was found intact, so look at permissions, limits and the disk first", err)
	}
	s.db = db
	s.sequence = db.MaxVersion()
	if s.sequence != found.last {
		return fmt.Errorf("%w: badger opened at change %d, but its files end at change %d: it may have changed them; %s",
			ErrDamaged, s.sequence, found.last, wayOut(s.opt.Dir))
	}
	return nil
}

// settle reads what the store says of itself, or writes it into a new one, and makes
// everything durable that the promises rest on.
func (s *Store) settle(found finding) error {
	m, known, err := s.readMeta()
	if err != nil {
		return err
	}
	switch {
	case m.Format > formatVersion:
		return fmt.Errorf("%w: %s has format %d, this program knows up to %d; use the program that wrote it",
			ErrFormat, s.opt.Dir, m.Format, formatVersion)
	case m.ID == "" && !found.missing:
		return fmt.Errorf("%w: the store has no meta record; %s", ErrDamaged, wayOut(s.opt.Dir))
	case m.ID != "" && !found.missing && m.ID != found.remembered.id:
		return fmt.Errorf("%w: the sequence file belongs to store %s, not to %s; %s", ErrDamaged, found.remembered.id, m.ID, wayOut(s.opt.Dir))
	case found.behind() && m.Epoch != found.remembered.epoch:
		return fmt.Errorf("%w: the sequence file is of epoch %d, not of %d; %s", ErrDamaged, found.remembered.epoch, m.Epoch, wayOut(s.opt.Dir))
	}
	if err := s.syncFiles(); err != nil {
		return err
	}
	if found.behind() {
		if known, err = s.redo(found.remembered); err != nil {
			return err
		}
	}
	s.clock = newStoreClock(s.opt.Clock, known)
	s.beaten = known
	opened := s.clock.now()
	if known.IsZero() {
		known = opened
	}
	if m.ID == "" {
		if m, err = s.create(); err != nil {
			return err
		}
	}
	s.info = tokens.Info{
		Engine: "badger", ID: m.ID, Epoch: m.Epoch, Exclusive: true,
		LastKnown: known, Opened: opened,
	}
	now := slot{id: m.ID, epoch: m.Epoch, sequence: s.sequence}
	path := sidecarPath(s.opt.Dir)
	if found.missing || m.Epoch != found.remembered.epoch {
		if err := createSidecar(path, now); err != nil {
			return err
		}
	}
	if s.side, err = openSidecar(path, now, found.place, s.seams.sync); err != nil {
		return err
	}
	return s.firstBeat()
}

// redo commits the change that only the sidecar holds. Whoever asked for it was told
// that its outcome is unknown, or that it is durable. It returns the store's time in it.
func (s *Store) redo(last slot) (known time.Time, err error) {
	if err := s.commitDurably(last.sequence, last.redo); err != nil {
		return known, fmt.Errorf("redo last change: %w", err)
	}
	s.sequence = last.sequence
	s.opt.Logger.Info("store redid its last change from the sequence file", "sequence", s.sequence)
	_, known, err = s.readMeta()
	return known, err
}

// firstBeat writes once, so that the time of opening counts even if the process dies
// at once, and so that a directory that can not be written is found out now. What was
// written but not acknowledged before a crash is acknowledged here.
func (s *Store) firstBeat() error {
	if s.watchSpace() == nil {
		if err := s.commit(nil); err != nil {
			return fmt.Errorf("write to opened store: %w", err)
		}
	} else if err := s.side.remember(s.sequence, nil); err != nil {
		return err
	}
	s.acknowledged.Store(s.sequence)
	s.db.SetDiscardTs(s.sequence)
	return nil
}

// readMeta returns the meta record, zero if there is none, and the newest durable
// time of the store's clock.
func (s *Store) readMeta() (m meta, known time.Time, err error) {
	b, version, err := s.newest([]byte(keyMeta))
	if err == nil && version > 0 {
		m, err = decodeMeta(b)
	}
	if err != nil {
		return m, known, fmt.Errorf("%w; %s", err, wayOut(s.opt.Dir))
	}
	b, version, err = s.newest([]byte(keyClock))
	if err == nil && version > 0 {
		known, err = decodeClock(b)
	}
	if err != nil {
		return m, known, fmt.Errorf("%w; %s", err, wayOut(s.opt.Dir))
	}
	return m, known, nil
}

// create writes the meta record of a new store.
func (s *Store) create() (meta, error) {
	id, err := newID(s.opt.Rand)
	if err != nil {
		return meta{}, err
	}
	m := meta{Format: formatVersion, ID: id}
	e, err := m.entry()
	if err != nil {
		return meta{}, err
	}
	if err := s.commitDurably(s.sequence+1, []entry{e, clockEntry(s.clock.now())}); err != nil {
		return meta{}, fmt.Errorf("create store: %w", err)
	}
	s.sequence++
	return m, nil
}

func newID(rand io.Reader) (string, error) {
	var b [idBytes]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return "", fmt.Errorf("draw store id: %w", err)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:])), nil
}

// syncFiles makes durable what Badger leaves to the file system when it opens: what
// it cut off, and the names of what it made.
func (s *Store) syncFiles() error {
	dir := storeDir(s.opt.Dir)
	files, err := listFiles(dir)
	if err != nil {
		return err
	}
	for _, path := range files.logs {
		s.log = max(s.log, logNumber(path))
		// A log that was just written to a table is gone by now.
		if err := syncPath(path); err != nil && exists(path) {
			return err
		}
	}
	if err := syncPath(dir); err != nil {
		return err
	}
	return syncPath(s.opt.Dir)
}

// makeDir makes a directory that survives a power cut, if there is none.
func makeDir(dir string) error {
	if exists(dir) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	return syncPath(filepath.Dir(dir))
}
