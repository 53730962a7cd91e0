package proxy

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// conversation is what a client may write: the preface, settings, and a request with
// CONTINUATION frames, a body and control frames between.
func conversation() []byte {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&b, nil)
	fr.AllowIllegalWrites = true
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	_ = fr.WriteWindowUpdate(0, 5)
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("head")})
	_ = fr.WriteContinuation(1, true, []byte("more"))
	_ = fr.WriteData(1, false, []byte("data"))
	_ = fr.WriteSettingsAck()
	_ = fr.WriteData(1, false, nil)
	_ = fr.WriteData(1, true, []byte("end"))
	_ = fr.WritePing(false, [8]byte{})
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte("head"), EndStream: true})
	_ = fr.WriteContinuation(3, false, []byte("mor"))
	_ = fr.WriteContinuation(3, true, []byte("e"))
	_ = fr.WriteRSTStream(3, http2.ErrCodeNo)
	_ = fr.WriteGoAway(0, http2.ErrCodeNo, nil)
	return b.Bytes()
}

// runsOf splits b into writes at the given places and says which bytes belong to which
// request, and where each ends.
func runsOf(b []byte, cuts ...int) string {
	var o outgoing
	var held []byte
	var out strings.Builder
	var stream uint32
	write := func(p []byte) {
		p = append(held, p...)
		held = nil
		for len(p) > 0 {
			r := o.next(p)
			if r.n == 0 {
				held = bytes.Clone(p)
				return
			}
			stream = r.stream
			for range r.n {
				if r.request {
					fmt.Fprint(&out, stream)
				} else {
					out.WriteByte('.')
				}
			}
			if r.last {
				out.WriteByte('!')
			}
			p = p[r.n:]
		}
	}
	from := 0
	for _, c := range cuts {
		write(b[from:c])
		from = c
	}
	write(b[from:])
	return out.String()
}

func TestTheBytesOfARequestAreToldFromThoseOfItsConnection(t *testing.T) {
	b := conversation()
	want := strings.Repeat(".", prefaceSize+9+6+9+4) + // preface, SETTINGS, WINDOW_UPDATE
		strings.Repeat("1", 9+4+9+4+9+4) + strings.Repeat(".", 9) + strings.Repeat("1", 9+9+3) + "!" +
		strings.Repeat(".", 9+8) + strings.Repeat("3", 9+4+9+3+9+1) + "!" + strings.Repeat(".", 9+4+9+8)
	if got := runsOf(b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// Wherever the client's writes end.
	for i := range b {
		if got := runsOf(b, i); got != want {
			t.Fatalf("cut at %d: %s", i, got)
		}
	}
	var all []int
	for i := range b {
		all = append(all, i)
	}
	if got := runsOf(b, all...); got != want {
		t.Errorf("byte by byte: %s", got)
	}
}

// heardOf is a listener that writes down what it hears.
type heardOf struct{ strings.Builder }

func (h *heardOf) heard(stream uint32)       { fmt.Fprintf(h, "heard %d;", stream) }
func (h *heardOf) ended(stream uint32)       { fmt.Fprintf(h, "ended %d;", stream) }
func (h *heardOf) reset(stream, code uint32) { fmt.Fprintf(h, "reset %d %d;", stream, code) }
func (h *heardOf) goAway(last uint32)        { fmt.Fprintf(h, "goaway %d;", last) }

func TestWhatAnUpstreamSaysIsHeardWhereverItsFramesAreCut(t *testing.T) {
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	_ = fr.WriteSettings()
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("head"), EndHeaders: true})
	_ = fr.WriteData(1, false, bytes.Repeat([]byte{0xff}, 100))
	_ = fr.WriteData(1, true, nil)
	_ = fr.WriteRSTStream(3, http2.ErrCodeRefusedStream)
	_ = fr.WriteGoAway(1<<31-1, http2.ErrCodeNo, []byte("bye"))
	_ = fr.WriteGoAway(1, http2.ErrCodeNo, nil)
	const want = "heard 1;heard 1;heard 1;ended 1;reset 3 7;goaway 2147483647;goaway 1;"
	for i := range b.Len() {
		for _, step := range []int{1, i + 1} {
			var in incoming
			var h heardOf
			for r := bytes.NewReader(b.Bytes()); r.Len() > 0; {
				p := make([]byte, step)
				n, _ := io.ReadFull(r, p)
				in.read(p[:n], &h)
			}
			if h.String() != want {
				t.Fatalf("in pieces of %d: %s", step, h.String())
			}
		}
	}
}

// FuzzFrames: whatever is written and however it is cut, each byte is judged once and the
// same way; whatever is read, nothing panics, and pieces do not matter.
func FuzzFrames(f *testing.F) {
	f.Add(conversation(), 7)
	f.Add([]byte(http2.ClientPreface), 1)
	f.Add(append([]byte(http2.ClientPreface), 0, 0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 1), 3)
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), 5)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		if step < 1 || step > 1<<16 {
			return
		}
		var cuts []int
		for i := step; i < len(b); i += step {
			cuts = append(cuts, i)
		}
		if whole, cut := runsOf(b), runsOf(b, cuts...); whole != cut {
			t.Errorf("whole %s\ncut   %s", whole, cut)
		}
		var one, many incoming
		var a, z heardOf
		one.read(b, &a)
		for i := 0; i < len(b); i += step {
			many.read(b[i:min(len(b), i+step)], &z)
		}
		if a.String() != z.String() {
			t.Errorf("whole %s\ncut   %s", a.String(), z.String())
		}
	})
}
