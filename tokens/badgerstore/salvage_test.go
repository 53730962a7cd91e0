package badgerstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

func TestASalvageKeepsWhatIsReadableInANewEpoch(t *testing.T) {
	dir := crashed(t)
	logs, err := filepath.Glob(filepath.Join(dir, "store", "*.mem"))
	if err != nil {
		t.Fatal(err)
	}
	log := logs[len(logs)-1]
	flip(t, log, used(t, log)/2)
	if wantIntactOrRefused(t, dir, "half a log") == nil {
		t.Fatal("the damaged store opens")
	}

	report, err := Salvage(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if report.Epoch != 1 || report.Acknowledged != damagedJobs+2 || report.Jobs < 400 || report.Jobs > 600 ||
		report.Found != uint64(report.Jobs)+1 || report.Dropped != 0 {
		t.Errorf("report %+v", report)
	}
	if _, err := os.Stat(filepath.Join(report.Kept, "store", filepath.Base(log))); err != nil {
		t.Errorf("the old log is not kept: %v", err)
	}
	s := mustOpen(t, Options{Dir: dir})
	if got := s.Info().Epoch; got != 1 {
		t.Errorf("epoch %d, want 1", got)
	}
	if s.sequence <= damagedJobs+2 {
		t.Errorf("sequence number %d is not above the acknowledged one", s.sequence)
	}
	// The last job is in the sequence file.
	for n := range damagedJobs {
		if n >= report.Jobs-1 && n < damagedJobs-1 {
			continue
		}
		if got := floorOf(t, s, jobN(n)); got != tokens.Generation(n+1) {
			t.Errorf("the floor of %s is %d, want %d", jobN(n), got, n+1)
		}
	}
	wantOldGenerationsRefused(t, s)
	closeStore(t, s)

	// And once more, on an intact store.
	report, err = Salvage(Options{Dir: dir})
	if err != nil || report.Epoch != 2 || filepath.Base(report.Kept) != "damaged-2" {
		t.Errorf("report %+v (%v)", report, err)
	}
	if got := mustOpen(t, Options{Dir: dir}).Info().Epoch; got != 2 {
		t.Errorf("epoch %d, want 2", got)
	}
}

// wantOldGenerationsRefused asks the rules: no generation from before the salvage is
// admitted, of a job that was kept or of one that was lost.
func wantOldGenerationsRefused(t *testing.T, s *Store) {
	t.Helper()
	a, err := tokens.NewAuthority(t.Context(), s, tokens.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		job        tokens.Job
		generation tokens.Generation
		want       error
	}{
		{jobN(0), 1, tokens.ErrStaleGeneration},
		{jobN(damagedJobs - 1), damagedJobs, tokens.ErrStaleGeneration},
		{jobN(damagedJobs - 1), tokens.EpochSize - 1, tokens.ErrStaleGeneration},
		{jobN(damagedJobs - 1), tokens.EpochSize + 1, nil},
	} {
		at := &tokens.Attempt{Write: tokens.Write{Job: c.job, Generation: c.generation}, Cutter: noCutter{}, TakeoverWait: time.Second}
		err := a.Admit(t.Context(), at)
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("a write of %s with generation %d: %v, want %v", c.job, c.generation, err, c.want)
		}
	}
}

type noCutter struct{}

func (noCutter) Cut() {}

func TestASalvageNeedsNoManifestAndNoSequenceFile(t *testing.T) {
	dir := stopped(t)
	id := slotOf(t, dir).id
	for _, path := range []string{filepath.Join(storeDir(dir), "MANIFEST"), sidecarPath(dir)} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	report, err := Salvage(Options{Dir: dir})
	if err != nil || report.Jobs != damagedJobs || report.Epoch != 1 || len(report.Unreadable) != 1 {
		t.Fatalf("report %+v (%v)", report, err)
	}
	s := mustOpen(t, Options{Dir: dir})
	if s.Info().ID != id {
		t.Errorf("the store's id changed from %s to %s", id, s.Info().ID)
	}
	if got := floorOf(t, s, jobN(damagedJobs-1)); got != damagedJobs {
		t.Errorf("floor %d, want %d", got, damagedJobs)
	}
}

func slotOf(t *testing.T, dir string) slot {
	t.Helper()
	s, _, err := readSidecar(sidecarPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestASalvageThatKnowsNoEpochDoesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(sidecarPath(dir), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if report, err := Salvage(Options{Dir: dir}); err == nil {
		t.Errorf("report %+v", report)
	}
	if _, err := Salvage(Options{Dir: filepath.Join(dir, "absent")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for a directory that is not there", err)
	}
}

// At each step of the swap the directory is refused or whole, and a second salvage
// brings it through.
func TestAnInterruptedSalvageCanBeRepeated(t *testing.T) {
	for name, interrupt := range map[string]func(dir string) error{
		"old store moved away": func(dir string) error {
			return os.Rename(storeDir(dir), filepath.Join(dir, "elsewhere"))
		},
		"old store and sequence file gone": func(dir string) error {
			return errors.Join(os.Rename(storeDir(dir), filepath.Join(dir, "elsewhere")), os.Remove(sidecarPath(dir)))
		},
		"new store in its place, sequence file not": func(dir string) error {
			return errors.Join(os.Rename(storeDir(dir), filepath.Join(dir, "elsewhere")), os.Rename(salvagedDir(dir), storeDir(dir)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stopped(t)
			w := wreck{newest: make(map[string]version)}
			if err := w.collect(dir); err != nil {
				t.Fatal(err)
			}
			m, entries, err := w.rebuild(Options{Dir: dir}.withDefaults(), &SalvageReport{})
			if err != nil {
				t.Fatal(err)
			}
			if err := build(Options{Dir: dir}.withDefaults(), m, w.last, entries); err != nil {
				t.Fatal(err)
			}
			if err := interrupt(dir); err != nil {
				t.Fatal(err)
			}
			if s, err := Open(Options{Dir: dir}); err == nil {
				if got := floorOf(t, s, jobN(9)); got != 10 || s.Info().Epoch != 1 {
					t.Errorf("it opens with floor %d in epoch %d", got, s.Info().Epoch)
				}
				closeStore(t, s)
			} else {
				wantError(t, err, ErrDamaged)
			}
			if _, err := Salvage(Options{Dir: dir}); err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, Options{Dir: dir})
			if got := floorOf(t, s, jobN(9)); got != 10 || s.Info().Epoch < 1 {
				t.Errorf("floor %d in epoch %d", got, s.Info().Epoch)
			}
			if err := raise(context.Background(), s, jobN(9), 11); err != nil {
				t.Error(err)
			}
		})
	}
}
