package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// newest is the path of the newest of the store's files that match a pattern and hold anything.
func newest(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "store", pattern))
	if err != nil {
		t.Fatal(err)
	}
	for len(found) > 0 {
		last := found[len(found)-1] // numbered, and listed in their order
		if len(content(t, last)) > 4096 {
			return last
		}
		found = found[:len(found)-1]
	}
	t.Fatalf("the store has no %s with anything in it", pattern)
	return ""
}

// content is a file without the zeros at its end: Badger's logs are longer than what was written.
func content(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimRight(b, "\x00")
}

// flipped flips a byte in the middle of a file.
func flipped(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(len(content(t, path)) / 2)
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}

const damagedJobs = 200

// filled gives many jobs a floor, one after the other: of job n it is n+1.
func (s *stage) filled() {
	s.Helper()
	for n := range damagedJobs {
		id := fmt.Sprintf("job-%03d", n)
		s.wantReply(s.reply(s.control.Fence(s.soon(), id, uint64(n+1), "filling the log")), 200, "")
	}
}

// refusedTwice checks that a damaged store is refused, and the second time as well.
func (s *stage) refusedTwice() {
	s.Helper()
	for range 2 {
		out, code := s.proxy.Refused()
		if code == 0 {
			s.Fatalf("it starts on a damaged store and ends with 0\n%s", out)
		}
		for _, want := range []string{"damaged", "nothing was changed", "put back the data directory", "fenceproxy salvage --data " + s.proxy.Dir()} {
			if !strings.Contains(out, want) {
				s.Errorf("the refusal does not say %q:\n%s", want, out)
			}
		}
	}
}

// salvaged takes the way out that the refusal names: nothing from before is admitted, whether it was readable or lost.
func (s *stage) salvaged(old daemon.Lease) {
	s.Helper()
	out, errs, code := s.proxy.Run(s.soon(), "salvage", "--data", s.proxy.Dir())
	if code != 0 || !strings.Contains(out, "epoch           1:") || errs != "" {
		s.Fatalf("salvage: exit code %d\n%s%s", code, out, errs)
	}
	s.Logf("salvage reports:\n%s", out)
	s.restart()
	s.quiet(func() {
		s.refused(s.send(write(old, "old", "")), 412, "stale-generation")
		for n := 0; n < damagedJobs; n += 20 {
			l := daemon.Lease{Job: fmt.Sprintf("job-%03d", n), Generation: damagedJobs + 1}
			s.refused(s.send(write(l, l.Job, "")), 412, "stale-generation")
		}
	})
	if r := s.reply(s.control.Renew(s.soon(), old, nil)); r.Status != 409 || r.Text("code") != "lease-lost" {
		s.Errorf("a lease from before is renewed: %d %s", r.Status, r.Raw)
	}
	const first = 1<<32 + 1
	for _, job := range []string{"held", "job-000", fmt.Sprintf("job-%03d", damagedJobs-1), "new"} {
		l := s.claim(job, "B", long)
		if l.Generation != first {
			s.Errorf("the next claim of %s got generation %d, want %d", job, l.Generation, uint64(first))
		}
		s.forwarded(s.send(write(l, "after-"+job, "")), 200, "applied")
	}
	// And it is an ordinary store from now on.
	s.proxy.Kill()
	s.restart()
	s.refused(s.send(write(old, "old", "")), 412, "stale-generation")
	if l := s.takeOverRevoked("held", first); l.Generation <= first {
		s.Errorf("the claim after the next got generation %d", l.Generation)
	}
}

// takeOverRevoked claims a job after an operator took it away.
func (s *stage) takeOverRevoked(job string, from uint64) daemon.Lease {
	s.Helper()
	s.wantReply(s.reply(s.control.Revoke(s.soon(), job, from, "test")), 200, "")
	return s.claim(job, "C", long)
}

func TestAFlippedByteInTheLogIsRefusedUntilASalvage(t *testing.T) {
	t.Parallel()
	s := open(t)
	old := s.claim("held", "A", long)
	s.filled()
	s.proxy.Kill() // what was written is in the log
	flipped(t, newest(t, s.proxy.Dir(), "*.mem"))
	s.refusedTwice()
	s.salvaged(old)
}

func TestAFlippedByteInATableIsRefusedUntilASalvage(t *testing.T) {
	t.Parallel()
	s := open(t)
	old := s.claim("held", "A", long)
	s.filled()
	if code := s.proxy.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	flipped(t, newest(t, s.proxy.Dir(), "*.sst")) // an orderly end has moved everything there
	s.refusedTwice()
	s.salvaged(old)
}

func TestALostTailOfTheLogIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.filled()
	s.proxy.Kill()
	log := newest(t, s.proxy.Dir(), "*.mem")
	if err := os.Truncate(log, int64(len(content(t, log))/2)); err != nil {
		t.Fatal(err)
	}
	s.refusedTwice()
}

// What a machine that lost its power may leave behind the last acknowledged change is no damage.
func TestATornEndThatNobodyWasToldOfIsNoDamage(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.filled()
	s.proxy.Kill()
	log := newest(t, s.proxy.Dir(), "*.mem")
	f, err := os.OpenFile(log, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("torn"), int64(len(content(t, log)))); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s.restart()
	for n := range damagedJobs {
		r := s.reply(s.control.Job(s.soon(), fmt.Sprintf("job-%03d", n)))
		if r.Status != 200 || r.Number("floor") != int64(n+1) {
			t.Fatalf("job %d: %d %s", n, r.Status, r.Raw)
		}
	}
}
