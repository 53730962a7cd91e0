package e2e_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// runProcess is fenceproxy run as a process of its own.
type runProcess struct {
	*stage
	cmd   *exec.Cmd
	lines chan said // of the standard output
	done  chan struct{}
	ended time.Time // once done is closed

	mu     sync.Mutex
	errors strings.Builder
}

// said is a line, and when it was read.
type said struct {
	text string
	at   time.Time
}

// Write takes the standard error. It implements io.Writer.
func (r *runProcess) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errors.Write(p)
}

// complaints is the standard error so far.
func (r *runProcess) complaints() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errors.String()
}

// runs starts fenceproxy run with these arguments. control is the URL that it is to use, the proxy's own if it is empty.
func (s *stage) runs(control string, args ...string) *runProcess {
	s.Helper()
	path, err := daemon.Binary()
	if err != nil {
		s.Fatal(err)
	}
	if control == "" {
		control = s.proxy.ControlURL()
	}
	r := &runProcess{stage: s, cmd: exec.Command(path, append([]string{"run"}, args...)...), lines: make(chan said, 1024), done: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), "FENCEPROXY_CONTROL="+control, "FENCEPROXY_PROXY="+s.proxy.Data())
	r.cmd.Stderr = r
	r.cmd.WaitDelay = patience
	out, in, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	r.cmd.Stdout = in // a file, so that what the program leaves running does not keep Wait from returning
	if err := r.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	_ = in.Close() // the process has its own
	go func() {
		defer out.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.lines <- said{lines.Text(), time.Now()}
		}
	}()
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // ProcessState says how it ended
		r.ended = time.Now()
	}()
	s.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it may have ended
		<-r.done
	})
	return r
}

// reads waits for a line of the output that begins so, and returns what follows.
func (r *runProcess) reads(prefix string) (rest string, at time.Time) {
	r.Helper()
	limit := time.After(patience)
	for {
		select {
		case l := <-r.lines:
			if rest, ok := strings.CutPrefix(l.text, prefix); ok {
				return strings.TrimSpace(rest), l.at
			}
		case <-limit:
			r.Fatalf("run printed no line that begins with %q; it complained: %s", prefix, r.complaints())
		}
	}
}

// exits waits for the end and checks the exit code.
func (r *runProcess) exits(code int) {
	r.Helper()
	select {
	case <-r.done:
	case <-time.After(2 * patience):
		r.Fatalf("run still runs after %v", 2*patience)
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.Errorf("exit code %d, want %d; it complained: %s", got, code, r.complaints())
	}
}

func (r *runProcess) signal(sig syscall.Signal) {
	r.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.Fatalf("send %v to run: %v", sig, err)
	}
}

// dies watches a process group and sends when it was found to be gone.
func dies(t *testing.T, group int) <-chan time.Time {
	t.Helper()
	gone := make(chan time.Time, 1)
	tick := time.NewTicker(2 * time.Millisecond)
	t.Cleanup(func() {
		tick.Stop()
		_ = syscall.Kill(-group, syscall.SIGKILL) // what a failed test left
	})
	ctx := t.Context()
	go func() {
		for {
			if err := syscall.Kill(-group, 0); err != nil {
				gone <- time.Now()
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return gone
}
