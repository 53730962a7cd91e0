package daemon

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// Freeze stops a child process and returns when none of its threads runs any more: the signal alone takes its time, and
// what a process does in that time would look like the work of a frozen one.
func Freeze(tb testing.TB, p *os.Process) {
	tb.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		tb.Fatalf("freeze process %d: %v", p.Pid, err)
	}
	AwaitFrozen(tb, p)
}

// AwaitFrozen waits for a child process that somebody else froze, or that froze itself.
func AwaitFrozen(tb testing.TB, p *os.Process) {
	tb.Helper()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || !status.Stopped():
			tb.Fatalf("process %d did not freeze: status %#x, %v", p.Pid, status, err)
		default:
			return
		}
	}
}
