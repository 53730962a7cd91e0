package e2e_test

import (
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
	"github.com/fenceproxy/fenceproxy/e2e/upstream"
)

func TestTheNewerWriteWaitsForTheOlderOnesAnswer(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", brief)
	older := s.start(write(a, "a", "hang"))
	s.arrives("a")
	b := s.takeOver("job", "B", long)
	newer := s.start(write(b, "b", ""))
	s.staysAway("b")
	if older.over() || newer.over() {
		t.Fatal("a write was answered while the older one was at work")
	}
	s.up.Release("a")

	got := older.answer()
	s.forwarded(got, 200, "applied")
	if got.Floor() != b.Generation {
		t.Errorf("A is told floor %d, want %d: it must see that it was superseded", got.Floor(), b.Generation)
	}
	s.forwarded(newer.answer(), 200, "applied")
	first, second := s.ends("a"), s.ends("b")
	if second.Begin < first.End {
		t.Errorf("B's write began (%d) before A's had ended (%d)", second.Begin, first.End)
	}
	if first.Cancelled {
		t.Error("A's write was cut although it had been sent whole")
	}
}

func TestAClaimCanWaitForAFinalReport(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.claim("job", "A", brief)
	older := s.start(write(a, "a", "hang"))
	s.arrives("a")
	s.outlive(brief)
	done := make(chan daemon.Reply, 1)
	go func() {
		r, err := s.control.Claim(s.soon(), "job", "B", long, daemon.Fields{"settle_ms": patience.Milliseconds()})
		if err != nil {
			t.Errorf("claim: %v", err)
		}
		done <- r
	}()
	// The floor rises before the claim is answered.
	s.until("the floor has risen", func() bool { return s.send(write(a, "late", "")).Status == 412 })
	s.up.Release("a")
	s.forwarded(older.answer(), 200, "applied")
	r := <-done
	s.wantReply(r, 201, "")
	before, _ := r.Body["predecessor"].(daemon.Fields)
	was := daemon.Reply{Body: before}
	writes, _ := before["writes"].(daemon.Fields)
	if was.Number("generation") != 1 || was.Text("owner") != "A" || was.Number("in_flight") != 0 ||
		(daemon.Reply{Body: writes}).Number("applied") < 1 {
		t.Errorf("the report on the predecessor: %s", r.Raw)
	}
}

func TestTheNewerWriteDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	s := open(t, "takeover: {wait: 1s}")
	a := s.claim("job", "A", brief)
	older := s.start(write(a, "a", "hang"))
	s.arrives("a")
	b := s.takeOver("job", "B", long)
	begin := time.Now()
	got := s.send(write(b, "b1", ""))
	s.refused(got, 503, "takeover-pending")
	if waited := time.Since(begin); waited < 900*time.Millisecond || waited > 10*time.Second {
		t.Errorf("waited %v, want about 1s", waited)
	}
	if n, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After: %q", got.Header.Get("Retry-After"))
	}
	s.unseen("b1")
	s.up.Release("a")
	s.forwarded(older.answer(), 200, "applied")
	s.forwarded(s.send(write(b, "b2", "")), 200, "applied")
}

func TestASlowUploadIsCutByTheClaim(t *testing.T) {
	t.Parallel()
	s := open(t, "body: {buffer: 4KiB}")
	a := s.claim("job", "A", brief)
	read, feed := io.Pipe()
	defer feed.Close()
	w := write(a, "a", "")
	w.Stream = read
	older := s.start(w)
	if _, err := feed.Write(make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.up.WaitBody(s.soon(), "a", 1); err != nil {
		t.Fatal(err)
	}
	b := s.takeOver("job", "B", long)
	begin := time.Now()
	got := older.answer()
	s.stale(got, "superseded")
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the upload was cut %v after the claim", took)
	}
	if got.Outcome() != "unknown" {
		t.Errorf("bytes were sent, yet the outcome is %q", got.Outcome())
	}
	s.forwarded(s.send(write(b, "b", "")), 200, "applied")
	if seen := s.ends("a"); seen.Complete || seen.Executed {
		t.Errorf("the upstream saw the end of a cut upload: %+v", seen)
	}
}

func TestAWriteHeldInTheDialIsVetoed(t *testing.T) {
	t.Parallel()
	deaf, err := upstream.NewDeaf()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(deaf.Close)
	s := onStage(t, deaf.Server, daemon.Settings{Upstream: deaf.URL()})
	a := s.claim("job", "A", brief)
	older := s.start(write(a, "a", ""))
	s.until("the proxy dials", func() bool { return dialling(t, deaf.Addr()) })
	b := s.takeOver("job", "B", long)
	newer := s.start(write(b, "b", ""))
	deaf.Release()

	got := older.answer()
	s.stale(got, "superseded")
	if got.Outcome() != "not-sent" {
		t.Errorf("no byte was sent, yet the outcome is %q", got.Outcome())
	}
	s.forwarded(newer.answer(), 200, "applied")
	s.unseen("a")
	with := s.arrives("b").Conn
	for _, c := range deaf.Conns() {
		if c.ID != with && c.Bytes != 0 {
			t.Errorf("connection %d got %d bytes of a write that was vetoed", c.ID, c.Bytes)
		}
	}
}

func TestAWriteHeldInTheTLSHandshakeIsVetoed(t *testing.T) {
	t.Parallel()
	mute, err := upstream.NewMute()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mute.Close)
	s := onStage(t, nil, daemon.Settings{Upstream: mute.URL()})
	a := s.claim("job", "A", brief)
	older := s.start(write(a, "a", ""))
	select {
	case <-mute.Arrivals():
	case <-s.soon().Done():
		t.Fatal("the proxy does not begin a handshake")
	}
	hello := mute.Received()
	s.takeOver("job", "B", long)
	got := older.answer()
	s.stale(got, "superseded")
	if got.Outcome() != "not-sent" {
		t.Errorf("no byte of the write was sent, yet the outcome is %q", got.Outcome())
	}
	// An alert at the end of the handshake is no byte of the write.
	if more := mute.Received() - hello; more > 64 {
		t.Errorf("%d bytes followed the client's hello", more)
	}
}

// dialling tells whether a SYN to addr has been sent that nobody answered, from the kernel's own table.
func dialling(t *testing.T, addr string) bool {
	t.Helper()
	_, port, _ := strings.Cut(addr, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatalf("read the kernel's connections: %v", err)
	}
	const synSent = "02"
	remote := strings.ToUpper(strconv.FormatUint(1<<16|n, 16)[1:])
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == synSent && strings.HasSuffix(f[2], ":"+remote) {
			return true
		}
	}
	return false
}
