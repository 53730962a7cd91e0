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

// gitStage is git before the proxy, and nginx with git's CGI program behind it.
type gitStage struct {
	*stage
	nginx *nginx
	bare  string // the repository on the server
}

func openGit(t *testing.T) *gitStage {
	t.Helper()
	n := startNginx(t)
	s := &gitStage{stage: open(t, openValve(t, "unix", n.socket)), nginx: n, bare: n.repos + "/repo.git"}
	s.init()
	return s
}

// init makes the repository on the server.
func (s *gitStage) init() {
	s.Helper()
	s.git("", "init", "-q", "--bare", "-b", "main", s.bare)
	// How often the branch moved is what the reflog says.
	s.git(s.bare, "config", "core.logAllRefUpdates", "true")
	s.git(s.bare, "config", "http.receivepack", "true")
}

// git runs git in a directory and insists on its success.
func (s *gitStage) git(dir string, args ...string) string {
	s.Helper()
	return strings.TrimSpace(s.startGit(dir, args...).succeeds())
}

func (s *gitStage) startGit(dir string, args ...string) *process {
	s.Helper()
	if dir != "" {
		args = append([]string{"-C", dir}, args...)
	}
	return s.start([]string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=worker", "GIT_AUTHOR_EMAIL=worker@test", "GIT_COMMITTER_NAME=worker",
		"GIT_COMMITTER_EMAIL=worker@test", "NO_PROXY=*",
	}, "git", args...)
}

// fenced runs git with the fence of a lease.
func (s *gitStage) fenced(l daemon.Lease, dir string, args ...string) *process {
	s.Helper()
	return s.startGit(dir, append([]string{
		"-c", "http.extraHeader=Fence-Job-Id: " + l.Job, "-c", fmt.Sprintf("http.extraHeader=Fence-Generation: %d", l.Generation),
		"-c", "http.postBuffer=131072", // what is larger is sent chunked
	}, args...)...)
}

func (s *gitStage) url() string { return s.proxy.Data() + "/git/repo.git" }

// work makes a clone with one commit of a size that nothing can make smaller, and returns its directory and the commit.
func (s *gitStage) work(name string, size int, seed uint64) (dir, commit string) {
	s.Helper()
	dir = filepath.Join(s.TempDir(), name)
	s.git("", "init", "-q", "-b", "main", dir)
	s.git(dir, "remote", "add", "origin", s.url())
	if err := os.WriteFile(filepath.Join(dir, name), noise(size, seed), 0o600); err != nil {
		s.Fatal(err)
	}
	s.git(dir, "add", ".")
	s.git(dir, "commit", "-q", "-m", name)
	return dir, s.git(dir, "rev-parse", "HEAD")
}

// branch is where the server's branch stands, and how often it was moved.
func (s *gitStage) branch() (commit string, moved int) {
	s.Helper()
	p := s.startGit(s.bare, "rev-parse", "-q", "--verify", "refs/heads/main")
	p.exit() // it fails while there is no branch
	log, err := os.ReadFile(filepath.Join(s.bare, "logs/refs/heads/main"))
	if err != nil && !os.IsNotExist(err) {
		s.Fatal(err)
	}
	return strings.TrimSpace(p.printed()), strings.Count(string(log), "\n")
}

func (s *gitStage) wantBranch(commit string, moved int) {
	s.Helper()
	if c, m := s.branch(); c != commit || m != moved {
		s.Errorf("the branch is at %q and was moved %d times, want %q and %d", c, m, commit, moved)
	}
	s.git(s.bare, "fsck", "--strict", "--no-dangling")
}

const pushLine = "POST /git/repo.git/git-receive-pack"

func TestGitPushesAndClonesThroughTheFenceUntilTheTakeover(t *testing.T) {
	s := openGit(t)
	older := s.claim("mirror", "a")
	dir, first := s.work("first", 3<<20, 1)
	s.fenced(older, dir, "push", "-q", "origin", "main").succeeds()
	s.wantBranch(first, 1)
	s.until("nginx notes a chunked push", func() bool { return strings.Contains(read(t, s.nginx.log), "git-receive-pack 200 expect=- te=chunked") })

	// A clone reads, and asks with a POST.
	clone := filepath.Join(t.TempDir(), "clone")
	s.fenced(older, "", "clone", "-q", s.url(), clone).succeeds()
	wantFile(t, clone+"/first", dir+"/first")
	// With many branches the question is so long that git compresses it.
	tree := s.git(s.bare, "rev-parse", "main^{tree}")
	for i := range 40 {
		name := fmt.Sprintf("topic-%d", i)
		s.git(s.bare, "branch", name, s.git(s.bare, "commit-tree", "-m", name, tree))
	}
	s.fenced(older, clone, "fetch", "-q").succeeds()
	s.until("nginx notes a compressed fetch", func() bool {
		return strings.Contains(read(t, s.nginx.log), "git-upload-pack 200 expect=- te=- coding=gzip")
	})
	if got := s.git(clone, "branch", "-r", "--list", "origin/topic-*"); strings.Count(got, "topic-") != 40 {
		t.Errorf("fetched %s", got)
	}

	newer := s.takeOver("mirror", "b")
	if err := os.WriteFile(dir+"/more", noise(300<<10, 3), 0o600); err != nil {
		t.Fatal(err)
	}
	s.git(dir, "add", ".")
	s.git(dir, "commit", "-q", "-m", "more")
	posts := s.valve.count("POST ")
	if out := s.fenced(older, dir, "push", "-q", "origin", "main").fails(); !strings.Contains(out, "412") {
		t.Errorf("git does not say why: %s", out)
	}
	if now := s.valve.count("POST "); now != posts {
		t.Errorf("%d writes of the older generation reached the server", now-posts)
	}
	s.wantBranch(first, 1)
	s.fenced(newer, dir, "push", "-q", "origin", "main").succeeds()
	s.wantBranch(s.git(dir, "rev-parse", "HEAD"), 2)
}

func TestATakeoverCutsAPush(t *testing.T) {
	s := openGit(t)
	older := s.claim("mirror", "a")
	dirA, _ := s.work("first", 12<<20, 1) // more than sockets take in
	dirB, second := s.work("second", 3<<20, 2)
	// git asks with an empty push first whether a chunked one is welcome.
	probe := s.valve.holdRequest(pushLine, 0)
	push := s.fenced(older, dirA, "push", "-q", "origin", "main")
	probe.wait(t)
	h := s.valve.holdRequest(pushLine, 1<<20)
	probe.open()
	h.wait(t)

	newer := s.takeOver("mirror", "b")
	if out := push.fails(); !strings.Contains(out, "412") {
		t.Errorf("git does not say why: %s", out)
	}
	s.wantBranch("", 0)
	s.fenced(newer, dirB, "push", "-q", "origin", "main").succeeds()
	s.wantBranch(second, 1)
	h.open()
	s.until("nginx has given the cut push up", func() bool { return strings.Contains(read(t, s.nginx.log), "git-receive-pack 4") })
	s.wantBranch(second, 1)
}

func TestATakeoverWaitsForAPushThatGitIsWorkingOn(t *testing.T) {
	s := openGit(t)
	older := s.claim("mirror", "a")
	dirA, first := s.work("first", 3<<20, 1)
	dirB, second := s.work("second", 3<<20, 2)
	// The hook stands still until the test opens the pipe.
	pipe := filepath.Join(s.bare, "pipe")
	hook := fmt.Sprintf("#!/bin/sh\nread -r line <%s\n", pipe)
	if err := os.WriteFile(filepath.Join(s.bare, "hooks/pre-receive"), []byte(hook), 0o700); err != nil {
		t.Fatal(err)
	}
	mkfifo(t, pipe)
	push := s.fenced(older, dirA, "push", "-q", "origin", "main")
	goOn := openPipe(t, pipe) // returns when the hook reads

	newer := s.takeOver("mirror", "b")
	next := s.fenced(newer, dirB, "push", "-q", "--force", "origin", "main")
	s.until("the newer push waits", func() bool { return s.valve.count("GET /git/repo.git/info/refs") == 2 })
	s.staysAway(pushLine, 2) // the older one and its probe
	s.wantBranch("", 0)
	goOn()
	push.succeeds()
	// B's push says which commit it found, none, and A's is there by now: git itself refuses it.
	openPipe(t, pipe)()
	next.fails()
	s.wantBranch(first, 1)

	again := s.fenced(newer, dirB, "push", "-q", "--force", "origin", "main")
	openPipe(t, pipe)()
	again.succeeds()
	s.wantBranch(second, 2)
}
