package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/telemetry"
)

// rig is a daemon in this process, before an upstream that says which base path a request
// came by, and its configuration file.
type rig struct {
	*testing.T
	dir  string
	file string
	logs lockedBuffer
	up   *httptest.Server
	slow string // URL of an upstream whose answers are held
	d    *daemon
	stop func() bool
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newRig starts a daemon. A line of top is YAML of the top level; DIR stands for a
// directory of the test's. The one route is named a, and its base path is /a.
func newRig(t *testing.T, top ...string) *rig {
	t.Helper()
	r := &rig{T: t, dir: t.TempDir()}
	r.file = filepath.Join(r.dir, "fenceproxy.yaml")
	r.up = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // it is short
		fmt.Fprint(w, req.URL.Path)
	}))
	t.Cleanup(r.up.Close)
	r.configure(r.route("a"), top...)
	return r
}

// start runs the daemon with the file as it is.
func (r *rig) start() *rig {
	r.Helper()
	cfg, err := r.load()
	if err != nil {
		r.Fatal(err)
	}
	level := new(slog.LevelVar)
	level.Set(logLevel(cfg))
	log, err := telemetry.NewLogger(&r.logs, level, cfg.Log.Format)
	if err != nil {
		r.Fatal(err)
	}
	if r.d, err = newDaemon(r.Context(), cfg, log, level); err != nil {
		r.Fatal(err)
	}
	r.d.start()
	r.stop = sync.OnceValue(r.d.stop)
	r.Cleanup(func() {
		r.stop()
		if r.Failed() {
			r.Log(r.logs.String())
		}
	})
	return r
}

func (r *rig) load() (*config.Config, error) { return config.Load(r.file, nil) }

// route is one route to the upstream, under the base path of its name.
func (r *rig) route(name string, more ...string) string {
	s := fmt.Sprintf("  - name: %s\n    upstream: %s/%s\n", name, r.up.URL, name)
	for _, line := range more {
		s += "    " + line + "\n"
	}
	return s
}

// configure writes the file.
func (r *rig) configure(routes string, top ...string) {
	r.Helper()
	text := "listen: 127.0.0.1:0\nstore: {badger: {dir: DIR/data}}\n"
	if !strings.Contains(strings.Join(top, "\n"), "control:") {
		top = append([]string{"control: {listen: 127.0.0.1:0}"}, top...)
	}
	text = strings.ReplaceAll(text+strings.Join(top, "\n")+"\nroutes:\n"+routes, "DIR", r.dir)
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// reload insists that the file is taken over.
func (r *rig) reload() {
	r.Helper()
	if err := r.d.reload(r.load); err != nil {
		r.Fatalf("reload: %v", err)
	}
}

// refused insists that it is not, and that the log says each of these.
func (r *rig) refused(says ...string) {
	r.Helper()
	if err := r.d.reload(r.load); err == nil {
		r.Fatal("the reload was accepted")
	}
	lines := strings.Split(strings.TrimSpace(r.logs.String()), "\n")
	last := lines[len(lines)-1]
	for _, say := range append(says, `"msg":"reload refused"`, `"level":"ERROR"`) {
		if !strings.Contains(last, say) {
			r.Errorf("the log does not say %s: %s", say, last)
		}
	}
}

// answer is what a caller got.
type answer struct {
	*http.Response
	body string
}

// post sends a fenced write and insists on an answer.
func (r *rig) post(client *http.Client, url, job string) answer {
	r.Helper()
	req, err := http.NewRequest(http.MethodPost, url+"/x", strings.NewReader("amount=1"))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Fence-Job-Id", job)
	req.Header.Set("Fence-Generation", "1")
	return r.do(client, req)
}

func (r *rig) do(client *http.Client, req *http.Request) answer {
	r.Helper()
	res, err := client.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer{res, string(b)}
}

// call posts JSON to the control listener.
func (r *rig) call(path, body string) answer {
	r.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+r.d.controlAddr()+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	return r.do(http.DefaultClient, req)
}

func (r *rig) dataURL() string { return "http://" + r.d.dataAddr() }

// metric is the line of one series.
func (r *rig) metric(series string) string {
	w := httptest.NewRecorder()
	r.d.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
