package main

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/badgerstore"
)

// runSalvage runs "salvage" with the arguments.
func runSalvage(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newSalvageCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append([]string{}, args...)) // nil would be the arguments of the test
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// openStoreAt opens the embedded store until the test ends, or close is called.
func openStoreAt(t *testing.T, dir string) (a *tokens.Authority, stop func()) {
	t.Helper()
	s, err := badgerstore.Open(badgerstore.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if a, err = tokens.NewAuthority(t.Context(), s, tokens.Options{}); err != nil {
		t.Fatal(err)
	}
	return a, func() {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASalvageSaysWhatItDid(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	a, stop := openStoreAt(t, dir)
	grant(t, a, "j", "w")
	stop()
	out, err := runSalvage(t, "--data", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"data directory  " + dir + "\n", "jobs kept       1\n", "jobs dropped    0 ", "lost changes    none of those that were acknowledged\n",
		"unreadable      nothing\n", "epoch           1: every generation up to 4294967296 is refused, the next claim of a job gets 4294967297 or higher\n",
		"old files       " + filepath.Join(dir, "damaged-1") + " ", "what now        start the proxy; every worker has to claim again\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if a, _ = openStoreAt(t, dir); a.Info().Epoch != 1 {
		t.Errorf("epoch %d", a.Info().Epoch)
	}
	if g := grant(t, a, "j", "w").Lease.Generation; g != tokens.EpochSize+1 {
		t.Errorf("the next claim got generation %d", g)
	}
}

func TestALossIsNamedInTheReport(t *testing.T) {
	for _, tt := range []struct {
		report badgerstore.SalvageReport
		want   []string
	}{
		{badgerstore.SalvageReport{Found: 50, Acknowledged: 90}, []string{"lost changes    those after change 50, up to 90 that was acknowledged last\n"}},
		{badgerstore.SalvageReport{Found: 50, Unreadable: []string{"sequence: gone", "1.sst: torn"}},
			[]string{"unknown: the sequence file could not be read", "unreadable      sequence: gone; 1.sst: torn\n"}},
		{badgerstore.SalvageReport{Found: 50, Acknowledged: 50, Dropped: 2, Unreadable: []string{"1.sst: torn"}},
			[]string{"unknown: not all files could be read to their end", "jobs dropped    2 "}},
	} {
		var out bytes.Buffer
		if err := printSalvage(&out, "/data", tt.report); err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s", want, out.String())
			}
		}
	}
}

func TestASalvageThatCanNotBeDoneSaysWhy(t *testing.T) {
	if _, err := runSalvage(t); err == nil || !strings.Contains(err.Error(), `"data"`) {
		t.Errorf("without a directory: %v", err)
	}
	if _, err := runSalvage(t, "--data", filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	dir := t.TempDir()
	openStoreAt(t, dir)
	if out, err := runSalvage(t, "--data", dir); !errors.Is(err, badgerstore.ErrLocked) || out != "" {
		t.Errorf("a directory in use: %v, %q", err, out)
	}
}
