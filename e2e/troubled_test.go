package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/overlay"
)

// variant is a program that is built for these tests when it is first wanted.
type variant struct {
	once      sync.Once
	path, dir string
	err       error
}

// troubled is the program with testdata/trouble.go in its store.
var troubled variant

func (v *variant) binary() (string, error) {
	if path := os.Getenv("FENCEPROXY_TEST_TROUBLED"); path != "" {
		return path, nil // ready-made, as daemon.Binary can be
	}
	v.once.Do(func() { v.path, v.dir, v.err = buildTroubled() })
	return v.path, v.err
}

// discard removes what was built, if it was. Nobody may use it afterwards.
func (v *variant) discard() error {
	v.once.Do(func() {})
	if v.dir == "" {
		return nil
	}
	return os.RemoveAll(v.dir)
}

func buildTroubled() (path, dir string, err error) {
	root, err := daemon.ModuleRoot()
	if err != nil {
		return "", "", err
	}
	dir, err = os.MkdirTemp("", "fenceproxy-troubled-")
	if err != nil {
		return "", "", fmt.Errorf("make build directory: %w", err)
	}
	edits, additions := overlay.Troubled(root)
	file, err := overlay.Write(dir, root, edits, additions)
	if err == nil {
		if path, err = daemon.Build(dir, "-overlay="+file); err == nil {
			return path, dir, nil
		}
	}
	_ = os.RemoveAll(dir) // the error above is the one that matters
	return "", "", err
}

// troubles is the directory by which a test makes trouble for its proxy.
type troubles struct {
	*testing.T
	dir string
}

// openTroubled starts a proxy whose store has trouble when the test says so.
func openTroubled(t *testing.T, settings daemon.Settings) (*stage, troubles) {
	t.Helper()
	binary, err := troubled.binary()
	if err != nil {
		t.Fatal(err)
	}
	tr := troubles{T: t, dir: t.TempDir()}
	settings.Binary, settings.Env = binary, []string{"TROUBLE_DIR=" + tr.dir}
	return openWith(t, settings), tr
}

// begin makes a trouble, and changes its text if it is there already.
func (tr troubles) begin(name, text string) {
	tr.Helper()
	// Whole or not at all: the proxy may read it at any moment.
	tmp := filepath.Join(tr.dir, "tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		tr.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(tr.dir, name)); err != nil {
		tr.Fatal(err)
	}
}

// end ends a trouble.
func (tr troubles) end(name string) {
	tr.Helper()
	if err := os.Remove(filepath.Join(tr.dir, name)); err != nil {
		tr.Fatal(err)
	}
}

// step puts the wall clock off by d, from what it is without trouble.
func (tr troubles) step(d time.Duration) { tr.Helper(); tr.begin("wall", d.String()) }
