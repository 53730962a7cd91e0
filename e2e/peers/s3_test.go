//go:build linux

package peers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// s3Host is the name under which programs know the store. Nobody resolves it: it is what they sign.
const s3Host = "s3.test"

// startS3 starts an S3 server that checks signatures, and returns its socket and the directory in which each bucket is a
// directory and each object a file.
func startS3(t *testing.T) (socket, buckets string) {
	t.Helper()
	dir := short(t)
	socket, buckets = filepath.Join(dir, "s3.sock"), filepath.Join(dir, "buckets")
	meta := filepath.Join(dir, "meta")
	for _, sub := range []string{meta, filepath.Join(buckets, "reports")} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"ROOT_ACCESS_KEY=worker", "ROOT_SECRET_KEY=only for tests"}
	answers(t, launch(t, dir, env, "versitygw", "--port", socket, "--keep-alive", "posix", "--sidecar", meta, buckets), socket)
	return socket, buckets
}

// s3Stage is rclone or restic before the proxy and an S3 server behind it.
type s3Stage struct {
	*stage
	buckets string
}

func openS3(t *testing.T) *s3Stage {
	t.Helper()
	socket, buckets := startS3(t)
	// The signature covers the host.
	return &s3Stage{stage: open(t, openValve(t, "unix", socket), "preserve_host: true"), buckets: buckets}
}

// rclone copies with the fence of a lease. It sends what is larger than 5 MiB in parts of that size, one after the other,
// and does nothing a second time.
func (s *s3Stage) rclone(l daemon.Lease, args ...string) *process {
	s.Helper()
	f := fence(l)
	return s.start([]string{
		"RCLONE_CONFIG_S3_TYPE=s3", "RCLONE_CONFIG_S3_PROVIDER=Other", "RCLONE_CONFIG_S3_ACCESS_KEY_ID=worker",
		"RCLONE_CONFIG_S3_SECRET_ACCESS_KEY=only for tests", "RCLONE_CONFIG_S3_ENDPOINT=" + s.proxy.Data(), "RCLONE_CONFIG=" + s.home + "/none",
	}, "rclone", append([]string{
		"--header", strings.Replace(f[0], "FENCE_JOB_ID=", "Fence-Job-Id: ", 1), "--header", strings.Replace(f[1], "FENCE_GENERATION=", "Fence-Generation: ", 1),
		"--s3-chunk-size", "5Mi", "--s3-upload-cutoff", "5Mi", "--s3-upload-concurrency", "1", "--s3-no-check-bucket", "--retries", "1", "--low-level-retries", "1",
	}, args...)...)
}

func (s *s3Stage) object(name string) string { return filepath.Join(s.buckets, "reports", name) }

func TestASignedMultipartUploadGoesThroughTheFenceUntilTheTakeover(t *testing.T) {
	s := openS3(t)
	older := s.claim("reports", "a")
	large, small := file(t, "large", 20<<20, 1), file(t, "small", 3000, 2)
	s.rclone(older, "copyto", large, "s3:reports/large").succeeds()
	wantFile(t, s.object("large"), large)
	s.rclone(older, "copyto", small, "s3:reports/deep/small").succeeds()
	wantFile(t, s.object("deep/small"), small)
	if n := s.valve.count("partNumber="); n != 4 {
		t.Errorf("the upload had %d parts, want 4:\n%s", n, s.valve.lines())
	}
	back := filepath.Join(t.TempDir(), "back")
	s.rclone(older, "copyto", "s3:reports/large", back).succeeds()
	wantFile(t, back, large)
	s.rclone(older, "moveto", "s3:reports/deep/small", "s3:reports/moved").succeeds()
	wantFile(t, s.object("moved"), small)
	wantAbsent(t, s.object("deep/small"))

	newer := s.takeOver("reports", "b")
	before := s.writes()
	for _, args := range [][]string{{"copyto", small, "s3:reports/large"}, {"deletefile", "s3:reports/moved"}, {"copyto", large, "s3:reports/new"}, {"moveto", "s3:reports/moved", "s3:reports/again"}} {
		if out := s.rclone(older, args...).fails(); !strings.Contains(out, "412") {
			t.Errorf("rclone does not say why: %s", out)
		}
	}
	if now := s.writes(); now != before {
		t.Errorf("the server got older writes:\n%s", s.valve.lines())
	}
	wantFile(t, s.object("large"), large)
	wantFile(t, s.object("moved"), small)
	wantAbsent(t, s.object("new"))
	s.rclone(newer, "copyto", small, "s3:reports/large").succeeds()
	wantFile(t, s.object("large"), small)
}

// writes is how many requests reached the server that change something.
func (s *s3Stage) writes() int {
	return s.valve.count("PUT ") + s.valve.count("POST ") + s.valve.count("DELETE ")
}

// upload starts a multipart upload of three parts and returns when the server has seen a certain request of it.
func (s *s3Stage) upload(l daemon.Lease, file string, h *hold) *process {
	s.Helper()
	p := s.rclone(l, "copyto", file, "s3:reports/object")
	h.wait(s.T)
	return p
}

const (
	secondPart = "partNumber=2&uploadId="
	lastPart   = "partNumber=3&uploadId="
	complete   = "POST /reports/object?uploadId="
	threeParts = 14 << 20
)

func TestATakeoverCutsAPartOfAMultipartUpload(t *testing.T) {
	s := openS3(t)
	first, second := file(t, "first", threeParts, 1), file(t, "second", 6<<20, 2)
	older := s.claim("reports", "a")
	h := s.valve.holdRequest(secondPart, 64<<10)
	upload := s.upload(older, first, h)

	newer := s.takeOver("reports", "b")
	if out := upload.fails(); !strings.Contains(out, "412") {
		t.Errorf("rclone does not say why: %s", out)
	}
	wantAbsent(t, s.object("object"))
	s.rclone(newer, "copyto", second, "s3:reports/object").succeeds()
	wantFile(t, s.object("object"), second)
	open := s.valve.connections()
	h.open()
	s.until("what was on its way has arrived, and the reset behind it", func() bool { return s.valve.connections() < open })
	wantFile(t, s.object("object"), second)
	if n := s.valve.count(lastPart) + s.valve.count("DELETE "); n != 0 {
		t.Errorf("the older upload went on behind the takeover:\n%s", s.valve.lines())
	}
}

func TestATakeoverBetweenTheLastPartAndTheCompletionLeavesNoObject(t *testing.T) {
	s := openS3(t)
	first, second := file(t, "first", threeParts, 1), file(t, "second", 6<<20, 2)
	older := s.claim("reports", "a")
	h := s.valve.holdReply(lastPart)
	upload := s.upload(older, first, h)

	newer := s.takeOver("reports", "b")
	next := s.rclone(newer, "copyto", second, "s3:reports/object")
	s.until("the newer upload has asked what is there", func() bool { return s.valve.count("HEAD /reports/object") == 2 })
	s.staysAway("?uploads=", 1) // it waits for the part
	h.open()
	if out := upload.fails(); !strings.Contains(out, "412") {
		t.Errorf("rclone does not say why: %s", out)
	}
	next.succeeds()
	wantFile(t, s.object("object"), second)
	if n := s.valve.count(complete); n != 1 {
		t.Errorf("%d uploads were completed, want the newer one:\n%s", n, s.valve.lines())
	}
	if s.refusedStale() < 1 {
		t.Error("the completion of the older generation was not refused")
	}
}

func TestATakeoverWaitsForACompletion(t *testing.T) {
	s := openS3(t)
	first, second := file(t, "first", threeParts, 1), file(t, "second", 3000, 2)
	older := s.claim("reports", "a")
	h := s.valve.holdReply(complete)
	upload := s.upload(older, first, h)

	newer := s.takeOver("reports", "b")
	wantFile(t, s.object("object"), first)
	// Under another name, for rclone looks at its own afterwards: a read, which waits for nobody.
	next := s.rclone(newer, "copyto", second, "s3:reports/other")
	s.until("the newer upload has asked what is there", func() bool { return s.valve.count("HEAD /reports/other") == 1 })
	s.staysAway("PUT /reports/other", 0)
	h.open()
	upload.succeeds()
	next.succeeds()
	wantFile(t, s.object("object"), first)
	wantFile(t, s.object("other"), second)
}
