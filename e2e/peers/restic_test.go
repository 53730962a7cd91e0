//go:build linux

package peers_test

import (
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// run starts a shell with restic as the holder of a job. fenceproxy run gives it the forwarder, and restic takes that for
// its HTTP proxy: so it signs for the store's own name, and knows nothing of the fence.
func (s *s3Stage) run(script string, flags ...string) *process {
	s.Helper()
	return s.start(resticEnv(), "fenceproxy",
		append(append([]string{"run", "--job", "backup"}, flags...), "--", "sh", "-ec", `export http_proxy="$FENCE_PROXY_URL"; `+script)...)
}

func resticEnv() []string {
	return []string{"AWS_ACCESS_KEY_ID=worker", "AWS_SECRET_ACCESS_KEY=only for tests", "RESTIC_REPOSITORY=s3:http://" + s3Host + "/reports",
		"RESTIC_PASSWORD=only for tests", "RESTIC_CACHE_DIR=/nonexistent"}
}

// The worker's machine stands still in the middle of an upload, longer than its lease lasts.
func TestABackupUnderRunIsTakenOverWhileItsMachineStandsStill(t *testing.T) {
	s := openS3(t)
	if err := os.WriteFile(filepath.Join(s.home, "data"), noise(24<<20, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("restic --no-cache init", "--ttl", "1m").succeeds()
	if n := s.valve.count("X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD"); n == 0 {
		t.Errorf("restic does not sign chunk by chunk:\n%s", s.valve.lines())
	}
	s.reopen("backup")

	h := s.valve.holdRequest("PUT /reports/data/", 1<<20)
	older := s.run("restic --no-cache backup data", "--ttl", "6s")
	h.wait(t)
	daemon.Freeze(t, older.cmd.Process)
	newer := s.run("restic --no-cache backup data; restic --no-cache unlock --remove-all; restic --no-cache check --read-data", "--wait", "30s")
	newer.succeeds()
	if err := older.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := older.exit(); code != 79 {
		t.Errorf("run ended with %d, want 79 for a lost lease: %s", code, older.said())
	}
	open := s.valve.connections()
	h.open()
	s.until("what was on its way has arrived, and the reset behind it", func() bool { return s.valve.connections() < open })

	// An object's name is the digest of its content.
	packs := 0
	err := filepath.WalkDir(s.object("data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		packs++
		if got := sum(t, path); hex.EncodeToString([]byte(got)) != d.Name() {
			t.Errorf("%s is not whole", path)
		}
		return nil
	})
	if err != nil || packs < 2 {
		t.Errorf("%d packs: %v", packs, err)
	}
	// Reading needs no lease; the proxy is the HTTP proxy itself here.
	s.start(append(resticEnv(), "http_proxy="+s.proxy.Data()), "restic", "--no-cache", "--no-lock", "check", "--read-data").succeeds()
}

// reopen lets a job be claimed again that run has completed.
func (s *stage) reopen(job string) {
	s.Helper()
	if r, err := s.control.Reopen(s.soon(), job, "the next part of the test"); err != nil || r.Status != 200 {
		s.Fatalf("reopen: %d %s, %v", r.Status, r.Raw, err)
	}
}
