package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/overlay"
)

// workerBuild is e2e/worker with a wall clock that can be wrong. It is built when it is first wanted.
var workerBuild struct {
	once sync.Once
	path string
	err  error
}

func workerProgram() (string, error) {
	workerBuild.once.Do(func() { workerBuild.path, workerBuild.err = buildWorker() })
	return workerBuild.path, workerBuild.err
}

func buildWorker() (string, error) {
	root, err := daemon.ModuleRoot()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "fenceproxy-worker-")
	if err != nil {
		return "", fmt.Errorf("make build directory: %w", err)
	}
	file, err := overlay.Write(dir, root, []overlay.Edit{
		{File: "leaseclient/clock.go", Old: "wall: now.Round(0)}", New: "wall: wrongWall(now)}"},
	}, []overlay.Addition{{File: "leaseclient/wrongwall.go", Source: filepath.Join("testdata", "wrongwall.go")}})
	path := filepath.Join(dir, "worker")
	if err == nil {
		cmd := exec.Command("go", "build", "-overlay="+file, "-o", path, "./e2e/worker")
		cmd.Dir = root
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("build worker: %w\n%s", err, out)
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir) // the error above is the one that matters
		return "", err
	}
	return path, nil
}

// discardWorker removes what was built, if it was. Nobody may use it afterwards.
func discardWorker() error {
	workerBuild.once.Do(func() {})
	if workerBuild.path == "" {
		return nil
	}
	return os.RemoveAll(filepath.Dir(workerBuild.path))
}

// worked is a line that a worker wrote.
type worked struct {
	Did, ID       string
	Generation    uint64
	State         string
	Status        int
	Reason, Error string
	Lost          bool
	Why           string
	LeftMS        int64

	at time.Time // when it was read
}

// workerProcess is a worker as a process of its own.
type workerProcess struct {
	*stage
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	says chan worked // but its losses
	lost chan worked
	done chan struct{}
}

// hire starts a worker. control is the URL that it is to use, the proxy's own if it is empty.
func (s *stage) hire(name, control string, ttl time.Duration, env ...string) *workerProcess {
	s.Helper()
	path, err := workerProgram()
	if err != nil {
		s.Fatal(err)
	}
	if control == "" {
		control = s.proxy.ControlURL()
	}
	w := &workerProcess{stage: s, name: name, cmd: exec.Command(path), says: make(chan worked, 64), lost: make(chan worked, 64), done: make(chan struct{})}
	w.cmd.Env = append(append(os.Environ(), "WORKER_CONTROL="+control, "WORKER_PROXY="+s.proxy.Data(), "WORKER_OWNER="+name,
		"WORKER_TTL="+ttl.String()), env...)
	w.cmd.Stderr = os.Stderr
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		s.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	go w.listen(out)
	s.Cleanup(w.fire)
	return w
}

func (w *workerProcess) listen(out io.Reader) {
	defer close(w.done)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a worked
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			a = worked{Did: "nonsense", Error: lines.Text()}
		}
		a.at = time.Now()
		if a.Did == "lost" {
			w.lost <- a
		} else {
			w.says <- a
		}
	}
}

// fire ends the process as a crash does. It may be called again.
func (w *workerProcess) fire() {
	_ = w.cmd.Process.Kill() // it may have ended
	<-w.done
	_ = w.cmd.Wait() // how it ended is known
}

func (w *workerProcess) signal(sig syscall.Signal) {
	w.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil {
		w.Fatalf("send %v to worker %s: %v", sig, w.name, err)
	}
}

// order gives a command and does not wait.
func (w *workerProcess) order(format string, args ...any) {
	w.Helper()
	if _, err := fmt.Fprintf(w.in, format+"\n", args...); err != nil {
		w.Fatalf("speak to worker %s: %v", w.name, err)
	}
}

// hear waits for the next answer.
func (w *workerProcess) hear() worked {
	w.Helper()
	return w.next(w.says, "answer")
}

func (w *workerProcess) next(from chan worked, what string) worked {
	w.Helper()
	select {
	case a := <-from:
		return a
	case <-time.After(patience):
		w.Fatalf("worker %s gave no %s within %v", w.name, what, patience)
		return worked{}
	}
}

// loses waits until the worker says that its lease is lost.
func (w *workerProcess) loses() worked { w.Helper(); return w.next(w.lost, "sign of a loss") }

// does gives a command and waits for the answer, which must not be an error.
func (w *workerProcess) does(format string, args ...any) worked {
	w.Helper()
	w.order(format, args...)
	a := w.hear()
	if a.Error != "" {
		w.Fatalf("worker %s, told to %s: %s", w.name, fmt.Sprintf(format, args...), a.Error)
	}
	return a
}

// claims insists on a lease.
func (w *workerProcess) claims(job string) worked {
	w.Helper()
	return w.does("claim %s %s", job, patience)
}

// writes insists on a write that is applied.
func (w *workerProcess) writes(id string) {
	w.Helper()
	if a := w.does("write %s", id); a.Status != 200 || a.Reason != "" {
		w.Fatalf("write %s of worker %s: %d %s", id, w.name, a.Status, a.Reason)
	}
	w.executed(id, 1)
}
