package framing

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"
)

// FuzzWhatPassesIsReadTheSameWay holds the judge against net/http. Every request that both let
// through must end at the same byte for both, with the same body; and what the judge finds must not
// depend on the pieces in which it comes.
func FuzzWhatPassesIsReadTheSameWay(f *testing.F) {
	f.Add([]byte(preface+"\x00\x00\x00\x04"), byte(3))
	f.Add([]byte(preface[:len("PRI * HTTP/2.0\r\n\r\n")]), byte(1))
	f.Add(headOfTen, byte(100))
	for _, c := range faulty {
		if len(c.stream) < 10_000 {
			f.Add([]byte(c.stream+"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"), byte(len(c.stream)))
			f.Add([]byte("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok"+c.stream), byte(1))
			f.Add([]byte(chunked+"2\r\nok\r\n0\r\n\r\n"+c.stream), byte(2))
		}
	}
	f.Add([]byte("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), byte(9))
	f.Fuzz(func(t *testing.T, stream []byte, size byte) {
		want := requests(string(stream), &judge{maxHead: DefaultMaxHead})
		got := follow(string(stream), int(size), 1, 2*int(size))
		if got.fault != want.fault || got.delivered != want.delivered || got.state != want.state {
			t.Fatalf("byte by byte: fault %d in state %d after %d; in pieces: %d, %d, %d",
				want.fault, want.state, want.delivered, got.fault, got.state, got.delivered)
		}
		compare(t, stream[:want.delivered], want)
	})
}

// compare has net/http read what the judge delivered.
func compare(t *testing.T, delivered []byte, judged reading) {
	under := bytes.NewReader(delivered)
	br := bufio.NewReader(under)
	consumed := func() int { return len(delivered) - under.Len() - br.Buffered() }
	for k := 0; ; k++ {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if k >= len(judged.heads) {
			// Verdict refuses it. That is for what the judge knows to be none of his, or half
			// a preface.
			switch judged.state {
			case stateOver, stateHeld, statePass, statePreface:
				return
			}
			t.Fatalf("request %d was never judged", k)
		}
		if consumed() != judged.heads[k] {
			t.Fatalf("head %d ends at %d for net/http, at %d for the judge", k, consumed(), judged.heads[k])
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // broken off by either; then nothing follows
		}
		if k >= len(judged.ends) {
			t.Fatalf("body %d is whole for net/http: %q, and not for the judge", k, body)
		}
		if consumed() != judged.ends[k] || string(body) != judged.bodies[k] {
			t.Fatalf("request %d ends at %d with %q for net/http, at %d with %q for the judge",
				k, consumed(), body, judged.ends[k], judged.bodies[k])
		}
	}
}
