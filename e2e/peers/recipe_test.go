//go:build linux

package peers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// recipe is the commands that docs/recipes.md gives for a program.
func recipe(t *testing.T, name string) string {
	t.Helper()
	root, err := daemon.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(read(t, filepath.Join(root, "docs/recipes.md")), "\n```sh "+name+"\n")
	commands, _, whole := strings.Cut(block, "\n```")
	if !found || !whole {
		t.Fatalf("docs/recipes.md has no commands for %s", name)
	}
	return commands
}

// follow runs the recipe for a program in a directory, as the page says it, on this proxy.
func (s *stage) follow(l daemon.Lease, dir, name string, env ...string) *process {
	s.Helper()
	// A busy machine gets more time for the answer to what wsdump has read to its end.
	commands := strings.NewReplacer("127.0.0.1:8080", s.proxy.DataAddr(), "--eof-wait 2", "--eof-wait 5").Replace(recipe(s.T, name))
	env = append(append([]string{"FENCEPROXY_CONTROL=" + s.proxy.ControlURL(), "FENCEPROXY_PROXY=" + s.proxy.Data(), "GIT_CONFIG_NOSYSTEM=1"}, fence(l)...), env...)
	return launch(s.T, dir, env, "sh", "-ec", commands)
}

// report puts the file of which the recipes speak into a directory.
func report(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "report.pdf")
	if err := os.WriteFile(path, noise(100<<10, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheRecipeForCurl(t *testing.T) {
	s := openDAV(t, protocols()[0])
	file := report(t, s.home)
	l := s.claim("reports", "a")
	s.follow(l, s.home, "curl").succeeds()
	wantFile(t, s.nginx.dav+"/report.pdf", file)
	s.takeOver("reports", "b")
	s.follow(l, s.home, "curl").fails()
}

func TestTheRecipeForGitWithItsRouteForFetches(t *testing.T) {
	n := startNginx(t)
	v := openValve(t, "unix", n.socket)
	s := &gitStage{nginx: n, bare: n.repos + "/repo.git", stage: openWith(t, v, daemon.Settings{
		Routes: []string{fmt.Sprintf("{name: fetches, path: /git/repo.git/git-upload-pack, upstream: %q, fencing: off}", v.URL())},
	})}
	s.init()
	l := s.claim("mirror", "a")
	dir, commit := s.work("first", 100<<10, 1)
	s.follow(l, dir, "git").succeeds()
	s.wantBranch(commit, 1)

	s.takeOver("mirror", "b")
	s.git(dir, "commit", "-q", "--allow-empty", "-m", "more")
	s.follow(l, dir, "git").fails()
	s.wantBranch(commit, 1)
	clone := filepath.Join(t.TempDir(), "clone") // without a fence
	s.git("", "clone", "-q", s.url(), clone)
	wantFile(t, clone+"/first", dir+"/first")
}

func TestTheRecipeForRclone(t *testing.T) {
	s := openS3(t)
	file := report(t, s.home)
	env := []string{
		"RCLONE_CONFIG=" + s.home + "/none", "RCLONE_CONFIG_STORE_TYPE=s3", "RCLONE_CONFIG_STORE_PROVIDER=Other", "RCLONE_CONFIG_STORE_ACCESS_KEY_ID=worker",
		"RCLONE_CONFIG_STORE_SECRET_ACCESS_KEY=only for tests", "RCLONE_CONFIG_STORE_ENDPOINT=" + s.proxy.Data(), "RCLONE_CONFIG_STORE_NO_CHECK_BUCKET=true",
		"RCLONE_RETRIES=1", "RCLONE_LOW_LEVEL_RETRIES=1",
	}
	l := s.claim("reports", "a")
	s.follow(l, s.home, "rclone", env...).succeeds()
	wantFile(t, s.object("report.pdf"), file)
	s.takeOver("reports", "b")
	if err := os.WriteFile(file, noise(1000, 2), 0o600); err != nil {
		t.Fatal(err)
	}
	s.follow(l, s.home, "rclone", env...).fails()
}

func TestTheRecipeForRestic(t *testing.T) {
	s := openS3(t)
	report(t, s.home)
	s.run("restic --no-cache init").succeeds()
	l := daemon.Lease{Job: "backup-of-today"}
	s.follow(l, s.home, "restic", resticEnv()...).succeeds()
	s.start(append(resticEnv(), "http_proxy="+s.proxy.Data()), "restic", "--no-cache", "--no-lock", "check", "--read-data").succeeds()
}

func TestTheRecipeForWsdump(t *testing.T) {
	s := openSockets(t, "websocket: true")
	if out := s.follow(s.claim("chat", "a"), s.home, "wsdump").succeeds(); !strings.Contains(out, "hello") {
		t.Errorf("nothing came back: %s", out)
	}
}

func TestTheForwarderTakesNoSignedRequestForItself(t *testing.T) {
	s := openS3(t)
	p := s.start(resticEnv(), "fenceproxy", "run", "--job", "backup", "--", "sh", "-c", `restic --no-cache -r "s3:$FENCE_PROXY_URL/reports" init`)
	if out := p.fails(); !strings.Contains(out, "signature") {
		t.Errorf("the page says that the signature does not fit: %s", out)
	}
}
