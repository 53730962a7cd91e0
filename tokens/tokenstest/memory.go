package tokenstest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// Memory is the reference store: every commit is atomic and at once as durable as a map
// can be. It survives Crash and Close, not the process. It may be used concurrently.
type Memory struct {
	disk *disk
	info tokens.Info
	// gone is set by Close and Crash; the disk's lock orders it with commits.
	gone atomic.Bool
}

// disk is what survives a process.
type disk struct {
	mu      sync.Mutex
	wall    func() time.Time
	rows    map[tokens.Job]row
	writes  map[writeName]writeRow
	version tokens.Version
	// high is the latest time that the store has told anybody.
	high time.Time
	info tokens.Info
}

// row keeps a record as it is stored, so that nobody shares memory with the store.
type row struct {
	encoded []byte
	version tokens.Version
}

// NewMemory returns an empty, open, exclusive store of epoch 0. now is the wall clock;
// time.Now if nil. Steps back of it do not show.
func NewMemory(now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	d := &disk{wall: now, rows: make(map[tokens.Job]row), writes: make(map[writeName]writeRow)}
	d.info = tokens.Info{Engine: "memory", ID: strings.ToLower(rand.Text()[:8]), Exclusive: true}
	return d.open()
}

func (d *disk) open() *Memory {
	d.mu.Lock()
	defer d.mu.Unlock()
	info := d.info
	if info.Exclusive {
		info.LastKnown = d.high
		info.Opened = d.now()
	}
	return &Memory{disk: d, info: info}
}

// now never runs back. The disk is locked.
func (d *disk) now() time.Time {
	if t := d.wall(); t.After(d.high) {
		d.high = t
	}
	return d.high
}

// Reopen returns a new process's handle on the same data. The old handle counts as
// crashed.
func (m *Memory) Reopen() *Memory {
	m.Crash()
	return m.disk.open()
}

// Open implements Opener.
func (m *Memory) Open(testing.TB) tokens.Store { return m.Reopen() }

// Configure changes what the store says of itself, from the next Reopen on: whether it
// is exclusive, and its epoch, which a restore raises.
func (m *Memory) Configure(exclusive bool, epoch uint32) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.disk.info.Exclusive, m.disk.info.Epoch = exclusive, epoch
}

// Crash ends the handle as kill -9 ends a process. Commits are atomic here, so nothing
// that was acknowledged is lost and nothing is half written.
func (m *Memory) Crash() {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.gone.Store(true)
}

// Info implements tokens.Store.
func (m *Memory) Info() tokens.Info { return m.info }

var errClosed = errors.New("the memory store is closed")

// Load implements tokens.Store.
func (m *Memory) Load(ctx context.Context, job tokens.Job) (tokens.Snapshot, error) {
	if ctx.Err() != nil {
		return tokens.Snapshot{}, context.Cause(ctx)
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if m.gone.Load() {
		return tokens.Snapshot{}, errClosed
	}
	return m.disk.snapshot(job)
}

// snapshot reads one row. The disk is locked.
func (d *disk) snapshot(job tokens.Job) (tokens.Snapshot, error) {
	snap := tokens.Snapshot{Now: d.now()}
	r, ok := d.rows[job]
	if !ok {
		return snap, nil
	}
	var err error
	snap.Version = r.version
	snap.Record, err = tokens.DecodeRecord(r.encoded)
	return snap, err
}

// Commit implements tokens.Store.
func (m *Memory) Commit(ctx context.Context, c tokens.Change) (tokens.Version, error) {
	encoded, err := tokens.EncodeRecord(c.Record)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, err)
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	switch {
	case m.gone.Load():
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, errClosed)
	case ctx.Err() != nil:
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, context.Cause(ctx))
	case m.disk.rows[c.Job].version != c.Expect:
		return 0, fmt.Errorf("commit %q: %w", c.Job, tokens.ErrConflict)
	}
	changes, err := encodeWrites(c)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", tokens.ErrRefused, err)
	}
	m.disk.now()
	m.disk.version++
	for name, r := range changes {
		if r.encoded == nil {
			delete(m.disk.writes, name)
		} else {
			m.disk.writes[name] = r
		}
	}
	m.disk.rows[c.Job] = row{encoded: encoded, version: m.disk.version}
	return m.disk.version, nil
}

// List implements tokens.Store.
func (m *Memory) List(ctx context.Context, q tokens.ListQuery) ([]tokens.Listed, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	if m.gone.Load() {
		return nil, errClosed
	}
	var jobs []tokens.Job
	for j := range m.disk.rows {
		switch {
		case !q.AllNamespaces && (j.Namespace != q.Namespace || j.ID <= q.After.ID):
		case q.AllNamespaces && !before(q.After, j):
		case strings.HasPrefix(j.ID, q.Prefix):
			jobs = append(jobs, j)
		}
	}
	sort.Slice(jobs, func(a, b int) bool { return before(jobs[a], jobs[b]) })
	jobs = jobs[:min(len(jobs), max(0, q.Limit))]
	page := make([]tokens.Listed, 0, len(jobs))
	for _, j := range jobs {
		snap, err := m.disk.snapshot(j)
		if err != nil {
			return nil, err
		}
		page = append(page, tokens.Listed{Job: j, Snapshot: snap})
	}
	return page, nil
}

func before(a, b tokens.Job) bool {
	if a.Namespace != b.Namespace {
		return a.Namespace < b.Namespace
	}
	return a.ID < b.ID
}

// Err implements tokens.Store.
func (m *Memory) Err() error {
	if m.gone.Load() {
		return errClosed
	}
	return nil
}

// Close implements tokens.Store. Commits hold the lock, so it waits for them.
func (m *Memory) Close() error {
	m.Crash()
	return nil
}
