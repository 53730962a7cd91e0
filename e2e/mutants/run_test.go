package mutants_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/overlay"
)

// mutant is one broken promise and who has to notice.
type mutant struct {
	name  string
	core  bool // it is tried in every run of the tests
	edits []overlay.Edit
	pkg   string // whose tests are run
	test  string // the test that must fail
	whole bool   // the test drives the built program, and it is the program that is broken
	// troubled: the test drives the variant whose store has trouble, and it is that one that is broken.
	troubled bool
}

const (
	// unitLimit and wholeLimit bound the tests of one mutant. One that makes its test hang is caught by them.
	unitLimit  = "10s"
	wholeLimit = "20s"
	// runLimit bounds the build as well.
	runLimit = 6 * time.Minute
)

// TestTheSuiteCatchesEveryMutant builds a package's tests once per mutant, and for those of the whole program the program
// as well, which takes minutes: all of them want FENCEPROXY_MUTANTS=1. Without, the core is tried, and the others are only
// held against the tree, which they have to fit.
func TestTheSuiteCatchesEveryMutant(t *testing.T) { catch(t, mutants()) }

func TestTheSuiteCatchesEveryMutantOfTheWholeProgram(t *testing.T) { catch(t, wholeMutants()) }

func catch(t *testing.T, all []mutant) {
	every := os.Getenv("FENCEPROXY_MUTANTS") != ""
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			file, err := m.overlay(t)
			switch {
			case err != nil:
				t.Fatal(err)
			case !every && !m.core:
				return
			}
			out := m.run(t, file)
			switch {
			case strings.Contains(out, "[build failed]"):
				t.Errorf("the mutant does not build:\n%s", out)
			case strings.Contains(out, "no tests to run"):
				t.Errorf("%s has no test %s", m.pkg, m.test)
			case strings.Contains(out, "before it was ready"):
				t.Errorf("the mutant does not even start:\n%s", out)
			case !failed(out, m.test):
				t.Errorf("%s did not notice:\n%s", m.test, out)
			default:
				t.Logf("noticed:\n%s", out)
			}
		})
	}
}

// overlay writes the overlay of the mutant and returns its path.
func (m mutant) overlay(t *testing.T) (string, error) {
	t.Helper()
	edits := m.edits
	var additions []overlay.Addition
	if m.troubled {
		var more []overlay.Edit
		more, additions = overlay.Troubled(root(t))
		edits = append(more, edits...)
	}
	return overlay.Write(t.TempDir(), root(t), edits, additions)
}

// run runs the test against the mutant and returns what it printed.
func (m mutant) run(t *testing.T, file string) string {
	t.Helper()
	args := []string{"test", "-vet=off", "-count=1", "-run=^" + m.test + "$"}
	var env []string
	if m.whole || m.troubled {
		binary := filepath.Join(t.TempDir(), "fenceproxy")
		if out, err := command(t, nil, "build", "-overlay="+file, "-o", binary, "./cmd/fenceproxy"); err != nil {
			t.Fatalf("the mutant does not build:\n%s", out)
		}
		name := "FENCEPROXY_TEST_BINARY="
		if m.troubled {
			name = "FENCEPROXY_TEST_TROUBLED="
		}
		env = append(env, name+binary)
		args = append(args, "-timeout="+wholeLimit)
	} else {
		args = append(args, "-overlay="+file, "-timeout="+unitLimit)
	}
	out, err := command(t, env, append(args, "./"+m.pkg)...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run go test: %v", err)
	}
	return out
}

// command runs go at the module's root.
func command(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = root(t), append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// failed tells whether a test failed by its own word, or hung.
func failed(out, test string) bool {
	name := regexp.QuoteMeta(test)
	return regexp.MustCompile(`(?m)^--- FAIL: `+name+` \(`).MatchString(out) ||
		strings.Contains(out, "panic: test timed out") && regexp.MustCompile(`(?m)^\s+`+name+`(/\S*)? \(`).MatchString(out)
}

// root is the module's root: tests run in their package's directory.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
