package badgerstore

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// diskUse is how many bytes the files of a store take; logs are sparse.
func diskUse(t testing.TB, dir string) (n int64) {
	t.Helper()
	list, err := os.ReadDir(storeDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		fi, err := f.Info()
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n += fi.Sys().(*syscall.Stat_t).Blocks * 512
	}
	return n
}

// soakKeys is how many keys the purge test fills in.
func soakKeys(t *testing.T) int {
	t.Helper()
	text := os.Getenv("FENCEPROXY_SOAK_KEYS")
	if text == "" && underRace {
		return 30_000
	}
	if text == "" {
		return 100_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAPurgeGivesItsSpaceBack(t *testing.T) {
	const perJob, kept = 500, 100
	keys := soakKeys(t)
	dir := t.TempDir()
	s := mustOpenWith(t, Options{Dir: dir}, neverBeats())
	for n := range kept {
		mustPut(t, s, jobN(n), tokens.WriteChange{Key: "kept", Record: settledAs(tokens.WriteApplied, 1<<60, 100)},
			tokens.WriteChange{Key: "open", Record: inFlight("a")})
	}
	start := diskUse(t, dir)
	began := time.Now()
	for n := range keys / perJob {
		writes := make([]tokens.WriteChange, perJob)
		for i := range writes {
			w := settledAs(tokens.WriteApplied, int64(n+1), 0)
			if i%100 == 0 {
				w = settledAs(tokens.WriteApplied, int64(n+1), 32<<10)
			}
			w.Fingerprint.Body = fmt.Sprintf("%064d", i)
			writes[i] = tokens.WriteChange{Key: fmt.Sprintf("key-%08d-%08d", n, i), Record: w}
		}
		mustPut(t, s, jobN(n%kept), writes...)
	}
	full, filled := diskUse(t, dir), time.Since(began)

	began = time.Now()
	a, err := tokens.NewAuthority(t.Context(), s, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	purged, err := a.Sweep(t.Context())
	if err != nil || purged != keys/perJob*perJob {
		t.Fatalf("%d of %d keys were purged (%v)", purged, keys, err)
	}
	swept := time.Since(began)
	began = time.Now()
	if err := s.Compact(); err != nil {
		t.Fatal(err)
	}
	end := diskUse(t, dir)
	t.Logf("%d keys: %d KiB at the start, %d KiB full after %v, swept in %v, %d KiB after a compaction of %v",
		keys, start>>10, full>>10, filled, swept, end>>10, time.Since(began))
	if end > start+2<<20 {
		t.Errorf("the store takes %d bytes after the purge, %d before the keys, %d with them", end, start, full)
	}
	if err := s.Compact(); err != nil || diskUse(t, dir) > end+1<<20 {
		t.Errorf("a compaction with nothing to do: %v", err)
	}
	wantKept := func() {
		t.Helper()
		if n := keysUnder(t, s); n[prefixWrite] != 2*kept || n[prefixReply] != kept || n[prefixOpen] != kept || n[prefixExpiry] != kept {
			t.Errorf("%d writes, %d replies, %d open, %d expire are left", n[prefixWrite], n[prefixReply], n[prefixOpen], n[prefixExpiry])
		}
		for n := range kept {
			if w := writeOf(t, s, jobN(n), "kept"); w.Reply == nil || floorOf(t, s, jobN(n)) != 1 {
				t.Fatalf("write and floor of %s: %+v", jobN(n), w)
			}
		}
	}
	wantKept()
	closeStore(t, s)
	s = mustOpenWith(t, Options{Dir: dir}, neverBeats())
	wantKept()
}

func TestACompactionWaitsUntilItIsWorthIt(t *testing.T) {
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, neverBeats())
	mustPut(t, s, job("j"), tokens.WriteChange{Key: "k", Record: settledAs(tokens.WriteApplied, 1, 100<<10)})
	mustPut(t, s, job("j"), tokens.WriteChange{Key: "k", Purge: true})
	before := s.acknowledged.Load()
	if err := s.Compact(); err != nil || s.acknowledged.Load() != before {
		t.Errorf("it wrote %d batches (%v)", s.acknowledged.Load()-before, err)
	}
	if freed := s.freed.Load(); freed < 100<<10 || freed > 110<<10 {
		t.Errorf("%d bytes count as freed", freed)
	}
}

func TestCommitsAndReadsGoOnDuringACompaction(t *testing.T) {
	dir, image := t.TempDir(), t.TempDir()
	s := mustOpenWith(t, Options{Dir: dir}, neverBeats())
	for n := range 300 {
		mustPut(t, s, jobN(n), tokens.WriteChange{Key: "k", Record: settledAs(tokens.WriteApplied, 1, 100<<10)})
	}
	for n := range 300 {
		mustPut(t, s, jobN(n), tokens.WriteChange{Key: "k", Purge: true})
	}
	compacted := make(chan error, 1)
	go func() { compacted <- s.Compact() }()
	for g := tokens.Generation(2); ; g++ {
		mustRaise(t, s, jobN(int(g)%300), g)
		if got := floorOf(t, s, jobN(int(g)%300)); got != g {
			t.Fatalf("floor %d, want %d", got, g)
		}
		select {
		case err := <-compacted:
			if err != nil {
				t.Fatal(err)
			}
			copyDir(t, dir, image)
			c := mustOpenWith(t, Options{Dir: image}, neverBeats())
			if got := floorOf(t, c, jobN(int(g)%300)); got != g {
				t.Errorf("after a crash: floor %d, want %d", got, g)
			}
			if n := keysUnder(t, c); n[prefixWrite]+n[prefixReply]+n[prefixExpiry] != 0 {
				t.Errorf("after a crash: %v", n)
			}
			return
		default:
		}
	}
}

func TestACompactionNeedsRoomAndAnOpenStore(t *testing.T) {
	sm := neverBeats()
	room := int64(1 << 40)
	sm.free = func(string) (int64, error) { return room, nil }
	s := mustOpenWith(t, Options{Dir: t.TempDir()}, sm)
	s.freed.Store(1 << 40)
	room = DefaultMinFree - 1
	err := s.Compact()
	wantError(t, err, ErrNoSpace)
	room = 1 << 40
	if err := s.Compact(); err != nil {
		t.Error(err)
	}
	closeStore(t, s)
	wantError(t, s.Compact(), errClosed)
}
