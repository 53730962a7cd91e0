//go:build linux

package peers_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// built is where `make peers` puts the programs that it builds.
func built(t *testing.T) string {
	t.Helper()
	root, err := daemon.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, ".peers")
}

// path is PATH for the peers: the program under test, what was built, what was installed.
func path(t *testing.T) string {
	t.Helper()
	binary, err := daemon.Binary()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join([]string{filepath.Dir(binary), built(t), "/usr/bin", "/usr/sbin", "/usr/lib/git-core", os.Getenv("PATH")}, ":")
}

// program finds a peer, or ends the test.
func program(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range filepath.SplitList(path(t)) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	t.Fatalf("%s is not on this machine. `make peers` installs and builds what these tests need; with %s=none they do without", name, envPeers)
	return ""
}

// process is a peer that runs.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu       sync.Mutex
	out, err bytes.Buffer
}

// stream is one of its outputs.
type stream struct {
	p   *process
	buf *bytes.Buffer
}

// Write implements io.Writer.
func (s stream) Write(b []byte) (int, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.buf.Write(b)
}

// launch starts a program in a group of its own, which is killed at the end of the test.
func launch(t *testing.T, dir string, env []string, name string, args ...string) *process {
	t.Helper()
	return launchReading(t, dir, env, nil, name, args...)
}

// launchReading is launch for a program that reads a file, or nothing if it is nil.
func launchReading(t *testing.T, dir string, env []string, input *os.File, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program(t, name), args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = dir, append([]string{"PATH=" + path(t), "HOME=" + dir, "LANG=C", "TMPDIR=" + os.TempDir()}, env...)
	if input != nil {
		p.cmd.Stdin = input // and not a nil in an interface
	}
	p.cmd.Stdout, p.cmd.Stderr = stream{p, &p.out}, stream{p, &p.err}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = 10 * time.Second // what it left behind may hold its outputs
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // ProcessState says how it ended
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %s\n%s", name, strings.Join(args, " "), p.said())
		}
	})
	return p
}

// kill ends the whole group.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // mostly nobody is left
	<-p.done
}

// said is all that it printed.
func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String() + p.err.String()
}

// printed is its standard output so far.
func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// over tells whether it has ended.
func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exit waits for the end and returns the exit code.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(2 * patience):
		p.t.Fatalf("%s still runs after %v; it said: %s", p.cmd.Path, 2*patience, p.said())
		return -1
	}
}

// succeeds waits for an exit with 0 and returns the standard output.
func (p *process) succeeds() string {
	p.t.Helper()
	if code := p.exit(); code != 0 {
		p.t.Fatalf("%s ended with %d: %s", strings.Join(p.cmd.Args, " "), code, p.said())
	}
	return p.printed()
}

// fails waits for an exit with anything else and returns all that was printed.
func (p *process) fails() string {
	p.t.Helper()
	if code := p.exit(); code == 0 {
		p.t.Fatalf("%s succeeded, and should not: %s", strings.Join(p.cmd.Args, " "), p.said())
	}
	return p.said()
}

// start runs a program before the proxy.
func (s *stage) start(env []string, name string, args ...string) *process {
	s.Helper()
	env = append([]string{"FENCEPROXY_CONTROL=" + s.proxy.ControlURL(), "FENCEPROXY_PROXY=" + s.proxy.Data()}, env...)
	return launch(s.T, s.home, env, name, args...)
}

// serve starts a server that listens on a port of the kernel's choice, and returns its address.
func serve(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	p := launch(t, dir, nil, name, args...)
	var addr string
	until(t, name+" listens", func() bool {
		if p.over() {
			t.Fatalf("%s ended: %s", name, p.said())
		}
		addr = listens(t, p.cmd.Process.Pid)
		return addr != ""
	})
	return addr
}

// listens reads from /proc on which TCP port a process listens, for servers that do not tell.
func listens(t *testing.T, pid int) string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d", pid)
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return "" // it is starting or has ended
	}
	inodes := map[string]bool{}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if inode, ok := strings.CutPrefix(to, "socket:["); ok && err == nil {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(dir, "net", table))
		if err != nil {
			continue
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			const listening = "0A"
			cells := strings.Fields(lines.Text())
			var host string
			var port int
			if len(cells) < 10 || cells[3] != listening || !inodes[cells[9]] {
				continue
			}
			if _, err := fmt.Sscanf(strings.ReplaceAll(cells[1], ":", " "), "%s %x", &host, &port); err == nil {
				return fmt.Sprintf("127.0.0.1:%d", port)
			}
		}
	}
	return ""
}

// answers waits until somebody accepts on a socket.
func answers(t *testing.T, p *process, socket string) {
	t.Helper()
	until(t, socket+" answers", func() bool {
		if p.over() {
			t.Fatalf("%s ended: %s", p.cmd.Path, p.said())
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

// short makes a directory whose path leaves room for the name of a socket, which the kernel bounds to 108 bytes.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a process that was just killed may still have it
	return dir
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatalf("make pipe %s: %v", path, err)
	}
}

// openPipe returns when another process reads from a pipe; the result lets it read a line.
func openPipe(t *testing.T, path string) (goOn func()) {
	t.Helper()
	var f *os.File
	until(t, "somebody reads from "+path, func() bool {
		var err error
		f, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0) // fails while there is no reader
		return err == nil
	})
	t.Cleanup(func() { _ = f.Close() })
	return func() {
		if _, err := f.WriteString("go on\n"); err != nil {
			t.Errorf("write to %s: %v", path, err)
		}
		_ = f.Close()
	}
}
