//go:build linux

package peers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// davStage is curl before the proxy and nginx with WebDAV behind it.
func davStage(t *testing.T) (*stage, *nginx) {
	t.Helper()
	n := startNginx(t)
	// COPY and MOVE name their target with the host that the caller knows, and nginx compares it with the request's.
	return open(t, openValve(t, "unix", n.socket), "preserve_host: true"), n
}

// curl runs curl with the fence of a lease and prints the status, decision, outcome and reason behind the body.
func (s *stage) curl(l daemon.Lease, args ...string) *process {
	s.Helper()
	base := []string{"-sS", "-o", "/dev/null", "-w", "%{http_code} %header{fence-decision} %header{fence-outcome} %header{fence-reason}"}
	if l.Job != "" {
		for _, v := range fence(l) {
			v = strings.Replace(strings.TrimPrefix(v, "FENCE_"), "=", ": ", 1)
			base = append(base, "-H", "Fence-"+strings.ReplaceAll(v, "_", "-"))
		}
	}
	return s.start(nil, "curl", append(base, args...)...)
}

// says checks what curl printed at its end, whatever its exit code.
func (p *process) says(want string) {
	p.t.Helper()
	code := p.exit()
	if got := strings.TrimSpace(p.printed()); got != want {
		p.t.Errorf("%s printed %q, want %q (exit code %d)", strings.Join(p.cmd.Args, " "), got, want, code)
	}
}

const staleAnswer = "412 refused  stale-generation"

func TestWebDAVWorksThroughTheFenceUntilTheTakeover(t *testing.T) {
	s, n := davStage(t)
	url := s.proxy.Data() + "/dav"
	payload, large := file(t, "payload", 3000, 1), file(t, "large", 3<<20, 2)
	steps := []struct {
		name string
		args []string
		want string
		then func(t *testing.T)
	}{
		{"MKCOL", []string{"-X", "MKCOL", url + "/reports/"}, "201", func(t *testing.T) {
			if info, err := os.Stat(n.dav + "/reports"); err != nil || !info.IsDir() {
				t.Errorf("there is no collection: %v", err)
			}
		}},
		{"PUT", []string{"-T", payload, url + "/reports/a"}, "201", func(t *testing.T) { wantFile(t, n.dav+"/reports/a", payload) }},
		{"PUT again", []string{"-T", large, url + "/reports/a"}, "204", func(t *testing.T) { wantFile(t, n.dav+"/reports/a", large) }},
		{"chunked PUT", []string{"-T", payload, "-H", "Transfer-Encoding: chunked", url + "/reports/b"}, "201", func(t *testing.T) { wantFile(t, n.dav+"/reports/b", payload) }},
		{"large chunked PUT", []string{"-T", large, "-H", "Transfer-Encoding: chunked", url + "/reports/c"}, "201", func(t *testing.T) { wantFile(t, n.dav+"/reports/c", large) }},
		{"PUT with Expect", []string{"-T", large, "-H", "Expect: 100-continue", url + "/reports/d"}, "201", func(t *testing.T) { wantFile(t, n.dav+"/reports/d", large) }},
		{"small PUT with Expect", []string{"-T", payload, "-H", "Expect: 100-continue", url + "/reports/e"}, "201", func(t *testing.T) { wantFile(t, n.dav+"/reports/e", payload) }},
		{"COPY", []string{"-X", "COPY", "-H", "Destination: " + url + "/reports/copy", url + "/reports/a"}, "204", func(t *testing.T) { wantFile(t, n.dav+"/reports/copy", large) }},
		{"MOVE", []string{"-X", "MOVE", "-H", "Destination: " + url + "/reports/moved", url + "/reports/c"}, "204", func(t *testing.T) {
			wantFile(t, n.dav+"/reports/moved", large)
			wantAbsent(t, n.dav+"/reports/c")
		}},
		{"PROPFIND", []string{"-X", "PROPFIND", "-H", "Depth: 1", url + "/reports/"}, "207", nil},
		{"DELETE", []string{"-X", "DELETE", url + "/reports/moved"}, "204", func(t *testing.T) { wantAbsent(t, n.dav+"/reports/moved") }},
	}
	older := s.claim("reports", "a")
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			at := *s
			at.T = t
			at.curl(older, step.args...).says(step.want + " forwarded applied")
			if step.then != nil {
				step.then(t)
			}
		})
	}

	newer := s.takeOver("reports", "b")
	before, seen := s.valve.lines(), tree(t, n.dav)
	for _, step := range steps {
		s.curl(older, step.args...).says(staleAnswer)
	}
	if after := s.valve.lines(); after != before {
		t.Errorf("nginx got older writes:\n%s", strings.TrimPrefix(after, before))
	}
	if now := tree(t, n.dav); now != seen {
		t.Errorf("the files changed from\n%s\nto\n%s", seen, now)
	}
	s.curl(newer, "-T", payload, url+"/reports/a").says("204 forwarded applied")
	wantFile(t, n.dav+"/reports/a", payload)
	// Nobody needs a lease to read.
	s.curl(daemon.Lease{}, url+"/reports/a").says("200 forwarded")
}

// tree is every file below a directory, with its digest.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			b.WriteString(path + " " + sum(t, path) + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestATakeoverCutsAnUploadToWebDAV(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"with a length", nil},
		{"chunked", []string{"-H", "Transfer-Encoding: chunked"}},
		{"with Expect", []string{"-H", "Expect: 100-continue"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, n := davStage(t)
			url := s.proxy.Data() + "/dav/report"
			first, second := file(t, "first", 24<<20, 1), file(t, "second", 2<<20, 2)
			older := s.claim("reports", "a")
			h := s.valve.holdRequest("PUT /dav/report", 1<<20)
			put := s.curl(older, append(c.args, "-T", first, url)...)
			h.wait(t)

			newer := s.takeOver("reports", "b")
			put.says("412 refused unknown stale-generation")
			s.curl(newer, "-T", second, url).says("201 forwarded applied")
			wantFile(t, n.dav+"/report", second)
			h.open() // what was still on its way now arrives, and the reset behind it
			s.until("nginx has given the cut upload up", func() bool { return strings.Contains(read(t, n.log), "PUT /dav/report 4") })
			wantFile(t, n.dav+"/report", second)
			s.curl(older, "-T", first, url).says(staleAnswer)
			wantFile(t, n.dav+"/report", second)
		})
	}
}

func TestATakeoverWaitsForAnUploadThatWasSentWhole(t *testing.T) {
	s, n := davStage(t)
	url := s.proxy.Data() + "/dav/report"
	first, second := file(t, "first", 2<<20, 1), file(t, "second", 2<<20, 2)
	older := s.claim("reports", "a")
	h := s.valve.holdReply("PUT /dav/report")
	put := s.curl(older, "-T", first, "-H", "Expect:", url)
	h.wait(t) // nginx has the file

	newer := s.takeOver("reports", "b")
	next := s.curl(newer, "-T", second, url)
	s.staysAway("PUT /dav/report", 1)
	wantFile(t, n.dav+"/report", first)
	h.open()
	put.says("201 forwarded applied")
	next.says("204 forwarded applied")
	wantFile(t, n.dav+"/report", second)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
