package tokenstest

import (
	"os"
	"os/exec"
	"testing"
)

// TestOneMutant runs the suite on the mutant that the environment names. It is the
// child of TestTheSuiteRejectsEveryMutant; alone it does nothing.
func TestOneMutant(t *testing.T) {
	name := os.Getenv(mutantVariable)
	for _, m := range mutants() {
		if m.name == name {
			Run(t, func(testing.TB) Opener { return m.make() })
		}
	}
}

// TestTheSuiteRejectsEveryMutant proves that the suite bites: each mutant fails in the
// very case that guards its promise, in a process of its own.
func TestTheSuiteRejectsEveryMutant(t *testing.T) {
	known := make(map[string]bool)
	for _, c := range cases() {
		known[c.name] = true
	}
	guarded := make(map[string]bool)
	for _, m := range mutants() {
		if !known[m.by] {
			t.Errorf("mutant %q names the case %q, which does not exist", m.name, m.by)
		}
		guarded[m.by] = true
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			child := exec.Command(os.Args[0], "-test.run=^TestOneMutant$/^"+m.by+"$", "-test.timeout=60s")
			child.Env = append(os.Environ(), mutantVariable+"="+m.name)
			out, err := child.CombinedOutput()
			if err == nil || !reported(out, m.by) {
				t.Errorf("the case %s does not reject a store that %s:\n%s", m.by, m.name, out)
			}
		})
	}
	for name := range known {
		if !guarded[name] {
			t.Errorf("no mutant proves that the case %s bites", name)
		}
	}
}
