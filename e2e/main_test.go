// Package e2e_test drives the built program from outside: real sockets, real signals, a real disk.
package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := errors.Join(daemon.Discard(), troubled.discard(), discardWorker()); err != nil {
		fmt.Fprintf(os.Stderr, "discard the built program: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
