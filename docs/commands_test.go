//go:build unix

package docs

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// sessionLimit bounds the commands of one page; they take seconds.
const sessionLimit = 6 * time.Minute

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "curl" {
		os.Exit(standInForCurl(os.Args[1:]))
	}
	code := m.Run()
	if err := daemon.Discard(); err != nil {
		fmt.Fprintf(os.Stderr, "discard the built program: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// TestTheCommandsOfThePagesDoWhatThePagesSay runs every page's commands; CONTRIBUTING.md has the convention.
func TestTheCommandsOfThePagesDoWhatThePagesSay(t *testing.T) {
	for _, page := range []string{"README.md", "CONTRIBUTING.md", "docs/protocol.md", "docs/operations.md", "docs/outside-issuers.md", "docs/access.md"} {
		t.Run(page, func(t *testing.T) { play(t, page, false) })
	}
}

// TestTheCommandsNeedNoCurl runs one page with the stand-in, which takes the place of curl where it is not installed.
func TestTheCommandsNeedNoCurl(t *testing.T) { play(t, "docs/protocol.md", true) }

// step is one block of commands, and what the page shows as their output, if it shows any.
type step struct {
	block
	shown   string
	checked bool
}

func steps(page string) (out []step) {
	all := blocks(page)
	for i, b := range all {
		if b.info != "sh" && b.info != "sh checkout" {
			continue
		}
		s := step{block: b}
		if i+1 < len(all) && all[i+1].info == "text" {
			s.shown, s.checked = all[i+1].text, true
		}
		out = append(out, s)
	}
	return out
}

// play runs the blocks of a page in one shell and compares their output.
func play(t *testing.T, page string, withoutCurl bool) {
	all := steps(readPage(t, page))
	if len(all) == 0 {
		t.Fatalf("%s has no commands", page)
	}
	dir, host := t.TempDir(), loopback()
	upstream(t, net.JoinHostPort(host, "9000"))
	here := strings.NewReplacer("127.0.0.1", host)

	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -eu\n")
	for i, s := range all {
		text := here.Replace(s.text)
		open, end := "{\n", "\n}"
		if s.info == "sh checkout" {
			// A make within a test would run this test again.
			text = strings.ReplaceAll("\n"+text, "\nmake ", "\nmake -n ")
			open, end = fmt.Sprintf("(\ncd '%s'\n", checkout), "\n)"
		}
		fmt.Fprintf(&script, "echo %d >at\n%s%s%s >out.%d\n", i, open, text, end, i)
	}

	bin := binDir(t, withoutCurl)
	ctx, cancel := context.WithTimeout(t.Context(), sessionLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = environ(t, bin, host)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	// Whatever a page leaves in the background ends with its shell.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = endGroup
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	failed := cmd.Wait()
	_ = endGroup() // mostly nobody is left

	reached := read(dir, "at")
	for i, s := range all {
		at, output := fmt.Sprint(i), read(dir, fmt.Sprintf("out.%d", i))
		if failed != nil && at == strings.TrimSpace(reached) {
			logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
			for _, l := range logs {
				t.Logf("%s:\n%s", filepath.Base(l), read(dir, filepath.Base(l)))
			}
			t.Fatalf("%s:%d: %v\n%s\noutput:\n%s\nerrors:\n%s", page, s.line, failed, s.text, output, stderr.String())
		}
		if s.checked && !fits(here.Replace(s.shown), output) {
			t.Errorf("%s:%d: the page shows\n%s\nbut the commands print\n%s", page, s.line, s.shown, output)
		}
	}
}

func read(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return string(b)
}

// loopback is an address that stands for 127.0.0.1 in a session, so that the pages' ports are free whatever else runs.
// Only Linux answers on all of 127.0.0.0/8.
func loopback() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// upstream is the API of which the pages say that it is at 127.0.0.1:9000. Under /broken it fails after the effect.
func upstream(t *testing.T, addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the commands' output shows what went wrong
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintln(w, "charged")
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // ends with Close
	}()
	t.Cleanup(func() {
		_ = srv.Close() // its connections are the session's, which is over
		<-done
	})
}

// binDir is a directory with the program, and with the stand-in if there is no curl.
func binDir(t *testing.T, withoutCurl bool) string {
	t.Helper()
	dir := t.TempDir()
	program, err := daemon.Binary()
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"fenceproxy": program}
	if _, err := exec.LookPath("curl"); err != nil || withoutCurl {
		if links["curl"], err = os.Executable(); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// environ is the environment of a session: a home of its own, Go's caches as they are, and the defaults of the program
// on the session's address.
func environ(t *testing.T, bin, host string) []string {
	t.Helper()
	env := []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GOBIN=" + bin + "/go", "NO_PROXY=*",
		"FENCEPROXY_LISTEN=" + host + ":8080", "FENCEPROXY_CONTROL_LISTEN=" + host + ":8081",
		"FENCEPROXY_CONTROL=http://" + host + ":8081", "FENCEPROXY_PROXY=http://" + host + ":8080",
	}
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOFLAGS", "GOTOOLCHAIN", "GOSUMDB"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		t.Fatalf("go env: %v", err)
	}
	for i, value := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		env = append(env, names[i]+"="+value)
	}
	return env
}
