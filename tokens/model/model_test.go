//go:build linux

package model

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// parts are the files of the model.
//
//go:embed *.pml
var parts embed.FS

const (
	// envPeers is none on a machine that can not have spin; then nothing here is tested.
	envPeers = "FENCEPROXY_PEERS"
	// runLimit bounds the search of one bound. The largest takes some seconds.
	runLimit = 3 * time.Minute
	// maxDepth bounds the length of a run, in steps; a search that needs more fails.
	maxDepth = "100000"
)

func TestMain(m *testing.M) {
	if os.Getenv(envPeers) == "none" {
		fmt.Printf("the model was not checked: %s is none\n", envPeers)
		return
	}
	os.Exit(m.Run())
}

// bounds are macros of the model. What is left out has the model's default.
type bounds []string

// quiet is without claims, crashes and commits that fail.
func quiet(more ...string) bounds {
	return append(bounds{"CLAIMS=0", "CRASHES=0", "FAULTS=0"}, more...)
}

// checks are the searches that have to find nothing. Each goes through all runs within its bounds.
var checks = []struct {
	name   string
	bounds bounds
	// cycles looks for runs without an end as well.
	cycles bool
}{
	{name: "a claim, a crash and a commit that fails", bounds: bounds{"CLAIMS=1", "CRASHES=1", "FAULTS=1"}},
	{name: "three generations and a crash", bounds: bounds{"N=3", "GENERATIONS=1,2,3", "CLAIMS=0", "CRASHES=1", "FAULTS=0"}},
	{name: "a key, over a crash and a commit that fails", bounds: bounds{"KEYED=1", "CLAIMS=0", "CRASHES=1", "FAULTS=1"}},
	{name: "a key under a claim", bounds: bounds{"KEYED=1", "CLAIMS=1", "CRASHES=0", "FAULTS=0"}},
	{name: "a key that is forwarded when it is unknown", bounds: bounds{"KEYED=1", "FORWARD=1", "GENERATIONS=1,1", "CLAIMS=0", "CRASHES=0", "FAULTS=1"}},
	{name: "no write is left waiting", bounds: quiet("N=3", "GENERATIONS=1,1,2", "PATIENT=1")},
	{name: "no run goes on for ever", bounds: quiet("PATIENT=1"), cycles: true},
}

func TestTheModelHolds(t *testing.T) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			s := search(t, c.bounds, c.cycles)
			if s.fault != "" {
				t.Fatalf("%s\n%s", s.fault, s.trail())
			}
			t.Logf("%s states", s.states)
		})
	}
}

// found is what a search came to.
type found struct {
	// fault is what pan says of the first fault, trail how the run went that leads to it.
	fault  string
	trail  func() string
	states string
}

var (
	faultLine  = regexp.MustCompile(`(?m)^pan:1: (.*) \(at depth \d+\)$`)
	statesLine = regexp.MustCompile(`(?m)^ *(\d+) states, stored`)
)

// search has spin go through all runs within the bounds, up to the first fault.
func search(t *testing.T, b bounds, cycles bool) found {
	t.Helper()
	dir := t.TempDir()
	args := []string{"-n"}
	if cycles {
		args = append(args, "-l")
	}
	out, macros := verify(t, dir, b, cycles, args...)
	var f found
	if m := faultLine.FindStringSubmatch(out); m != nil {
		f.fault = m[1]
		f.trail = func() string { return run(t, dir, "spin", append(append([]string{"-t", "-T"}, macros...), model)...) }
		return f
	}
	m := statesLine.FindStringSubmatch(out)
	if m == nil || !strings.Contains(out, "errors: 0") || strings.Contains(out, "max search depth too small") || strings.Contains(out, "Search not completed") {
		t.Fatalf("the search did not go through:\n%s", out)
	}
	f.states = m[1]
	return f
}

// model is the file that includes the others.
const model = "fence.pml"

// verify makes the verifier in dir, runs it, and returns what it printed and the macros that spin was given.
func verify(t *testing.T, dir string, b bounds, cycles bool, args ...string) (out string, macros []string) {
	t.Helper()
	if err := os.CopyFS(dir, parts); err != nil {
		t.Fatal(err)
	}
	for _, m := range b {
		macros = append(macros, "-D"+m)
	}
	run(t, dir, "spin", append(append([]string{"-a"}, macros...), model)...)
	// Without optimisation: the compiler costs more than it saves. Every step touches what the others see, so a partial
	// order reduction would save nothing.
	flags := []string{"-O0", "-w", "-DNOREDUCE", "-DMEMLIM=1500", "-o", "pan", "pan.c"}
	if cycles {
		flags = append(flags, "-DNP")
	} else {
		flags = append(flags, "-DSAFETY")
	}
	run(t, dir, "gcc", flags...)
	return run(t, dir, "./pan", append([]string{"-m" + maxDepth, "-w20"}, args...)...), macros
}

// run runs a program in dir and returns what it printed.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatalf("%s is missing; run make peers, or set %s=none to do without the model", name, envPeers)
	}
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || name != "./pan") {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}
