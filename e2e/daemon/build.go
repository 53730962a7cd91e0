// Package daemon builds the real program, runs it as a child process, and speaks to it over its public surface only: the
// command line, the configuration file, the ready line, HTTP and signals.
package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// The environment of the tests themselves. None of it reaches the child.
const (
	envBinary     = "FENCEPROXY_TEST_BINARY"     // a ready-made program; nothing is built then
	envBuildFlags = "FENCEPROXY_TEST_BUILDFLAGS" // more flags for go build, separated by blanks: -race, -overlay=FILE
)

type built struct {
	path string
	dir  string // to be removed at the end; empty for a ready-made program
}

// program is built at most once per test binary.
var program = sync.OnceValues(build)

// Binary is the path of the program under test. It is built at the first call.
func Binary() (string, error) {
	b, err := program()
	return b.path, err
}

// Discard removes what Binary built. Call it at the end of TestMain.
func Discard() error {
	b, err := program()
	if err != nil || b.dir == "" {
		return nil // nothing was left behind
	}
	return os.RemoveAll(b.dir)
}

func build() (built, error) {
	if path := os.Getenv(envBinary); path != "" {
		return built{path: path}, nil
	}
	dir, err := os.MkdirTemp("", "fenceproxy-e2e-")
	if err != nil {
		return built{}, fmt.Errorf("make build directory: %w", err)
	}
	path, err := Build(dir)
	if err != nil {
		_ = os.RemoveAll(dir) // the build's own error is the one that matters
		return built{}, err
	}
	return built{path: path, dir: dir}, nil
}

// Build builds the program into dir with more flags for go build, for a variant of it, and returns its path.
func Build(dir string, flags ...string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "fenceproxy")
	args := append([]string{"build", "-o", path}, strings.Fields(os.Getenv(envBuildFlags))...)
	cmd := exec.Command("go", append(append(args, flags...), "./cmd/fenceproxy")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build fenceproxy: %w\n%s", err, out)
	}
	return path, nil
}

// ModuleRoot is the nearest directory upwards that holds a go.mod.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find module root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("find module root: no go.mod above the working directory")
		}
		dir = up
	}
}

// environ is the environment of the child: ours, without what would configure the product from outside the test.
func environ() []string {
	var out []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "FENCEPROXY_") && !strings.HasPrefix(kv, "OTEL_") {
			out = append(out, kv)
		}
	}
	return out
}
