package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startLimit = 30 * time.Second // for the ready line; generous, the machine may be busy
	stopLimit  = 30 * time.Second // for the end after a signal
)

// Daemon is one proxy: a configuration and a data directory, and the process that serves them now. Its methods are for one
// goroutine, those of Data, Control and Logs excepted.
type Daemon struct {
	tb     testing.TB
	binary string
	config string // path of the file
	data   string // path of the directory
	env    []string

	settings Settings

	mu   sync.Mutex
	proc *process
	old  []*logs // of the processes before
}

// process is one run of the program.
type process struct {
	cmd   *exec.Cmd
	logs  *logs
	ready ready         // under Daemon.mu
	done  chan struct{} // closed when the process has ended; err and code are set then
	code  int
	err   error
}

// Start builds the program if need be, writes the configuration, and returns when the proxy is ready. Whatever still runs at
// the end of the test is killed; the logs are shown if the test failed.
func Start(tb testing.TB, s Settings) *Daemon {
	tb.Helper()
	if s.Binary == "" {
		var err error
		if s.Binary, err = Binary(); err != nil {
			tb.Fatal(err)
		}
	}
	dir := tb.TempDir()
	d := &Daemon{tb: tb, binary: s.Binary, env: s.Env, settings: s,
		config: filepath.Join(dir, "fenceproxy.yaml"), data: filepath.Join(dir, "data")}
	d.WriteConfig(s.yaml(d.data))
	tb.Cleanup(d.cleanup)
	d.Restart()
	return d
}

func (d *Daemon) cleanup() {
	d.mu.Lock()
	p := d.proc
	d.mu.Unlock()
	if p != nil {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		<-p.done
	}
	if d.tb.Failed() {
		out := d.Logs()
		if cut := len(out) - 64<<10; cut > 0 {
			out = fmt.Sprintf("(%d bytes before)%s", cut, out[cut:])
		}
		d.tb.Logf("output of fenceproxy:\n%s", out)
	}
}

// Restart starts the program again, on the same configuration and data. The one before must have ended. The addresses
// change.
func (d *Daemon) Restart() {
	d.tb.Helper()
	p, err := d.start()
	if err != nil {
		d.tb.Fatal(err)
	}
	var line ready
	select {
	case line = <-p.logs.found:
	case <-p.done:
		d.tb.Fatalf("fenceproxy ended before it was ready: exit code %d, %v", p.code, p.err)
	case <-time.After(startLimit):
		d.tb.Fatalf("fenceproxy is not ready after %v", startLimit)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.ready = line
}

func (d *Daemon) start() (*process, error) {
	out := newLogs()
	cmd := exec.Command(d.binary, "serve", "--config", d.config)
	cmd.Env = append(environ(), d.env...)
	cmd.Stdout, cmd.Stderr = out, out // one writer for both: os/exec then uses one pipe
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start fenceproxy: %w", err)
	}
	p := &process{cmd: cmd, logs: out, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
		p.code = cmd.ProcessState.ExitCode()
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.proc != nil {
		d.old = append(d.old, d.proc.logs)
	}
	d.proc = p
	return p, nil
}

func (d *Daemon) now() *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proc
}

// Refused starts the program again and returns what it printed and its exit code when it ends by itself. The one before must
// have ended.
func (d *Daemon) Refused() (output string, code int) {
	d.tb.Helper()
	p, err := d.start()
	if err != nil {
		d.tb.Fatal(err)
	}
	select {
	case <-p.logs.found:
		d.tb.Fatal("fenceproxy started, and should have refused to")
	case <-p.done:
	case <-time.After(startLimit):
		d.tb.Fatalf("fenceproxy neither starts nor ends within %v", startLimit)
	}
	return p.logs.String(), p.code
}

// Dir is the data directory.
func (d *Daemon) Dir() string { return d.data }

// PID is the process that runs now, or ran last.
func (d *Daemon) PID() int { return d.now().cmd.Process.Pid }

// Data is the base URL of the data listener.
func (d *Daemon) Data() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "http://" + d.proc.ready.DataAddr
}

// DataAddr is the host and port of the data listener.
func (d *Daemon) DataAddr() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proc.ready.DataAddr
}

// ControlURL is the base URL of the control listener.
func (d *Daemon) ControlURL() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "http://" + d.proc.ready.ControlAddr
}

// Logs is everything that the program printed so far, in all its runs.
func (d *Daemon) Logs() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all string
	for _, l := range d.old {
		all += l.String()
	}
	if d.proc != nil {
		all += d.proc.logs.String()
	}
	return all
}

// Signal sends a signal and does not wait.
func (d *Daemon) Signal(sig syscall.Signal) {
	d.tb.Helper()
	if err := d.now().cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.tb.Fatalf("send %v to fenceproxy: %v", sig, err)
	}
}

// Wait waits for the end of the process and returns its exit code, -1 if a signal ended it.
func (d *Daemon) Wait() int {
	d.tb.Helper()
	p := d.now()
	select {
	case <-p.done:
		return p.code
	case <-time.After(stopLimit):
		d.tb.Fatalf("fenceproxy still runs %v after it was told to stop", stopLimit)
		return -1
	}
}

// Ended tells whether the process has ended.
func (d *Daemon) Ended() bool {
	select {
	case <-d.now().done:
		return true
	default:
		return false
	}
}

// Stop asks for an orderly end and returns the exit code.
func (d *Daemon) Stop() int {
	d.tb.Helper()
	d.Signal(syscall.SIGTERM)
	return d.Wait()
}

// Kill ends the process as a crash does and waits until it is gone.
func (d *Daemon) Kill() {
	d.tb.Helper()
	d.Signal(syscall.SIGKILL)
	d.Wait()
}

// Pause freezes the process and returns when it stands still, Continue thaws it.
func (d *Daemon) Pause() { d.tb.Helper(); Freeze(d.tb, d.now().cmd.Process) }

// Continue thaws a process that Pause froze.
func (d *Daemon) Continue() { d.tb.Helper(); d.Signal(syscall.SIGCONT) }

// Dump ends a process that seems to be stuck and lets it print the stacks of its goroutines into its log first.
func (d *Daemon) Dump() {
	d.tb.Helper()
	d.Signal(syscall.SIGQUIT)
	d.Wait()
}

// Second runs serve on the same configuration and data beside the process that runs, as Run does.
func (d *Daemon) Second(ctx context.Context) (stdout, stderr string, code int) {
	d.tb.Helper()
	return d.Run(ctx, "serve", "--config", d.config)
}

// Run runs another command of the program against this proxy and returns what it printed and its exit code.
func (d *Daemon) Run(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	d.tb.Helper()
	cmd := exec.CommandContext(ctx, d.binary, args...)
	cmd.Env = environ()
	if args[0] != "serve" { // which takes these for settings of its own
		cmd.Env = append(cmd.Env, "FENCEPROXY_CONTROL="+d.ControlURL(), "FENCEPROXY_PROXY="+d.Data())
	}
	out, errs := newLogs(), newLogs()
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.SysProcAttr = dieWithParent()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.tb.Fatalf("run fenceproxy %v: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
