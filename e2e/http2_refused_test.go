package e2e_test

import (
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// piece reads on behind the head of an answer up to a frame that has to do with a stream's end: a piece of its body, a reset,
// or the answer to a ping.
func (r *raw2) piece(t *testing.T, stream uint32) (bytes int, ended, reset bool) {
	t.Helper()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			if f.StreamID == stream {
				return len(f.Data()), f.StreamEnded(), false
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return 0, false, true
			}
		case *http2.PingFrame:
			if f.IsAck() {
				return 0, false, false
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = r.WriteSettingsAck() // the next read fails if this does
			}
		}
	}
}

// A caller takes up the frames that have come, and then goes on sending. curl up to 8 takes an answer whose stream was reset
// by then for a broken one.
func TestARefusedCallerOfHTTP2HasItsAnswerBeforeItsStreamIsReset(t *testing.T) {
	s := open(t)
	s.claim("order", "a", brief)
	newer := s.takeOver("order", "b", long)
	stale := post("/charge").with("fence-job-id", "order", "fence-generation", "1")
	for _, c := range []struct {
		name string
		head fields
		body int // that is sent before the answer is read
	}{
		{"large", stale.with("content-length", "5000000"), 10_000},
		{"of unknown length", stale, 10_000},
		{"waiting for 100", stale.with("content-length", "300", "expect", "100-continue"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.speak2()
			stream, err := r.open(c.head, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.WriteData(stream, false, make([]byte, c.body)); err != nil {
				t.Fatal(err)
			}
			if status, err := r.answer(stream); status != 412 || err != nil {
				t.Fatalf("answered %d, %v", status, err)
			}
			// The server's reset would come right behind the end.
			if bytes, ended, reset := r.piece(t, stream); bytes == 0 || ended || reset {
				t.Errorf("%d bytes came, ended %v, reset %v; want the answer without an end", bytes, ended, reset)
			}
			// Whoever hangs up is not kept waiting, and the connection serves on.
			if err := r.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
				t.Fatal(err)
			}
			next, err := r.open(post("/charge").with("fence-job-id", newer.Job, "fence-generation", "2", "content-length", "0"), true)
			if err != nil {
				t.Fatal(err)
			}
			if status, err := r.answer(next); status != 200 || err != nil {
				t.Errorf("the newer write on the same connection: %d, %v", status, err)
			}
		})
	}
	t.Run("small", func(t *testing.T) {
		r := s.speak2()
		stream, err := r.open(stale.with("content-length", "300"), false)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.WriteData(stream, true, []byte(strings.Repeat("x", 300))); err != nil {
			t.Fatal(err)
		}
		if status, err := r.answer(stream); status != 412 || err != nil {
			t.Fatalf("answered %d, %v", status, err)
		}
		for ended := false; !ended; {
			var reset bool
			if _, ended, reset = r.piece(t, stream); reset {
				t.Fatal("the stream was reset before its end")
			}
		}
		if err := r.WritePing(false, [8]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, _, reset := r.piece(t, stream); reset {
			t.Error("a stream was reset whose request had come whole")
		}
	})
}
