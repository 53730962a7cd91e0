package framing

import (
	"slices"
	"strings"
	"testing"
)

// read is one way to read a stream: its requests, and what became of it.
type reading struct {
	heads  []int    // where the good heads end
	bodies []string // the data of the bodies
	ends   []int    // where the requests end that are whole
	fault  Fault
	state  state
	// delivered is how much of the stream was let through.
	delivered int
}

// follow has a stream judged in pieces of the given sizes, in turn.
func follow(stream string, sizes ...int) reading {
	var r reading
	j := judge{maxHead: DefaultMaxHead}
	if len(sizes) == 0 {
		sizes = []int{len(stream) + 1}
	}
	for k := 0; r.delivered < len(stream); k++ {
		n := min(max(sizes[k%len(sizes)], 1), len(stream)-r.delivered)
		got := j.scan([]byte(stream[r.delivered : r.delivered+n]))
		r.delivered += got
		if got < n {
			break
		}
	}
	r.fault, r.state = Fault(j.fault.Load()), j.state
	return r
}

// requests follows a stream byte by byte and notes what the judge takes for its requests.
func requests(stream string, j *judge) reading {
	var r reading
	whole := true
	for i := range len(stream) {
		was := j.state
		if was == stateStart && whole {
			whole = false
		}
		heads := j.heads.Load()
		if j.scan([]byte{stream[i]}) == 0 {
			break
		}
		r.delivered++
		if was == stateBody || was == stateData {
			r.bodies[len(r.bodies)-1] += stream[i : i+1]
		}
		if j.heads.Load() > heads {
			r.heads, r.bodies = append(r.heads, i+1), append(r.bodies, "")
		}
		if len(r.ends) < len(r.heads) && (j.state == stateStart || j.state == stateHeld) {
			r.ends = append(r.ends, i+1)
		}
	}
	r.fault, r.state = Fault(j.fault.Load()), j.state
	return r
}

func TestWhatHasOneReadingPasses(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		bodies []string
	}{
		"a read":                          {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", []string{""}},
		"no host in 1.0":                  {"GET / HTTP/1.0\r\n\r\n", []string{""}},
		"a length":                        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", []string{"hello"}},
		"a length of nothing":             {"POST / HTTP/1.1\r\nHost: h\r\ncontent-length:\t0 \t\r\n\r\n", []string{""}},
		"chunks":                          {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n00a\r\n0123456789\r\n0\r\n\r\n", []string{"hello0123456789"}},
		"trailers":                        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n0\r\nX-Sum: 1\r\n\r\n", []string{""}},
		"one after the other":             {"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nokGET /b HTTP/1.1\r\nHost: h\r\n\r\n", []string{"ok", ""}},
		"chunks, then another":            {"PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n", []string{"ok", ""}},
		"any method, any text":            {"PRO-PFIND /\xc3\xa4?%zz HTTP/1.1\r\nHost: h\r\nX-Empty:\r\nX-Text: \xc3\xa4 \t;\"\\\r\n\r\n", []string{""}},
		"names that only look alike":      {"GET / HTTP/1.1\r\nHost: h\r\nContent-Lengths: x\r\nTransfer: y\r\nUpgrade-Insecure-Requests: 1\r\nHosts: z\r\n\r\n", []string{""}},
		"a request that begins as HTTP/2": {"PRI * HTTP/1.1\r\nHost: h\r\n\r\n", []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			j := &judge{maxHead: DefaultMaxHead}
			got := requests(c.stream, j)
			if got.fault != noFault || !slices.Equal(got.bodies, c.bodies) || len(got.ends) != len(c.bodies) {
				t.Errorf("got fault %v, bodies %q, whole %d, want %q", got.fault, got.bodies, len(got.ends), c.bodies)
			}
		})
	}
}

// faulty are streams with a fault in the head of the first request or in its body.
var faulty = map[string]struct {
	stream string
	fault  Fault
	head   bool // in the head
}{
	"bare LF after the request line":  {"GET / HTTP/1.1\nHost: h\r\n\r\n", FaultLineEnd, true},
	"bare LF after a header":          {"GET / HTTP/1.1\r\nHost: h\n\r\n", FaultLineEnd, true},
	"bare LF at the end of the head":  {"GET / HTTP/1.1\r\nHost: h\r\n\n", FaultLineEnd, true},
	"bare LFs only":                   {"GET / HTTP/1.1\nHost: h\n\n", FaultLineEnd, true},
	"bare LF after a length":          {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\n\r\nhello", FaultLineEnd, true},
	"bare CR in a value":              {"GET / HTTP/1.1\r\nHost: h\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n", FaultLineEnd, true},
	"bare CR at the end of the head":  {"GET / HTTP/1.1\r\nHost: h\r\n\rX: y\r\n\r\n", FaultLineEnd, true},
	"bare CR in the request line":     {"GET / HTTP/1.1\rHost: h\r\n\r\n", FaultLineEnd, true},
	"an empty line before":            {"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", FaultEmptyLine, false},
	"a bare empty line before":        {"\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", FaultEmptyLine, false},
	"two blanks after the method":     {"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", FaultRequestLine, true},
	"two blanks before the version":   {"GET /  HTTP/1.1\r\nHost: h\r\n\r\n", FaultRequestLine, true},
	"a blank in the target":           {"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", FaultRequestLine, true},
	"a tab in the request line":       {"GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", FaultRequestLine, true},
	"a blank after the version":       {"GET / HTTP/1.1 \r\nHost: h\r\n\r\n", FaultRequestLine, true},
	"a blank before the method":       {" GET / HTTP/1.1\r\nHost: h\r\n\r\n", FaultRequestLine, true},
	"no version":                      {"GET /\r\nHost: h\r\n\r\n", FaultRequestLine, true},
	"another version":                 {"GET / HTTP/1.2\r\nHost: h\r\n\r\n", FaultRequestLine, true},
	"HTTP/2 without its preface":      {"PRI * HTTP/2.0\r\n\r\nXX", FaultRequestLine, true},
	"NUL in the target":               {"GET /\x00 HTTP/1.1\r\nHost: h\r\n\r\n", FaultRequestLine, true},
	"a fold":                          {"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", FaultFold, true},
	"a fold with a tab":               {"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n", FaultCoding, true},
	"a fold before the first header":  {"GET / HTTP/1.1\r\n Host: h\r\nHost: h\r\n\r\n", FaultFold, true},
	"a folded empty line":             {"GET / HTTP/1.1\r\nHost: h\r\n \r\n\r\n", FaultFold, true},
	"a blank before the colon":        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n", FaultBlankName, true},
	"a tab before the colon":          {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length\t: 5\r\n\r\n", FaultBlankName, true},
	"no name":                         {"GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n", FaultName, true},
	"no colon":                        {"GET / HTTP/1.1\r\nHost: h\r\nX\r\n\r\n", FaultName, true},
	"a name in brackets":              {"GET / HTTP/1.1\r\nHost: h\r\nX(y): z\r\n\r\n", FaultName, true},
	"NUL in a name":                   {"GET / HTTP/1.1\r\nHost: h\r\nX\x00y: z\r\n\r\n", FaultName, true},
	"NUL in a value":                  {"GET / HTTP/1.1\r\nHost: h\r\nX: y\x00z\r\n\r\n", FaultControl, true},
	"0x0b before a coding":            {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", FaultCoding, true},
	"DEL in a value":                  {"GET / HTTP/1.1\r\nHost: h\r\nX: 12345\x7f789\r\n\r\n", FaultControl, true},
	"a length with an underscore":     {"POST / HTTP/1.1\r\nHost: h\r\nContent_Length: 5\r\n\r\nhello", FaultAlias, true},
	"a coding with a dot":             {"POST / HTTP/1.1\r\nHost: h\r\nTransfer.Encoding: chunked\r\n\r\n", FaultAlias, true},
	"a length twice":                  {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", FaultRepeated, true},
	"two lengths":                     {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\ncontent-length: 6\r\n\r\nhello", FaultRepeated, true},
	"a list of lengths":               {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5\r\n\r\nhello", FaultLength, true},
	"a length with a sign":            {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\nhello", FaultLength, true},
	"a length in hexadecimal":         {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x5\r\n\r\nhello", FaultLength, true},
	"a length of two numbers":         {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5 6\r\n\r\nhello", FaultLength, true},
	"no length in Content-Length":     {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: \r\n\r\n", FaultLength, true},
	"a length that overflows":         {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9223372036854775808\r\n\r\n", FaultLength, true},
	"length, then coding":             {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX", FaultBothLengths, true},
	"coding, then length":             {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nGPOST / HTTP/1.1\r\n\r\n", FaultBothLengths, true},
	"a coding twice":                  {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n\r\n0\r\n\r\n", FaultRepeated, true},
	"chunked and identity":            {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", FaultCoding, true},
	"gzip and chunked":                {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", FaultCoding, true},
	"xchunked":                        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", FaultCoding, true},
	"chunkedx":                        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n", FaultCoding, true},
	"chunked with a parameter":        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", FaultCoding, true},
	"quoted chunked":                  {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", FaultCoding, true},
	"identity":                        {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello", FaultCoding, true},
	"an empty coding":                 {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\nContent-Length: 5\r\n\r\nhello", FaultCoding, true},
	"a coding in HTTP/1.0":            {"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", FaultCoding, true},
	"no host":                         {"GET / HTTP/1.1\r\nX: y\r\n\r\n", FaultHost, true},
	"two hosts":                       {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", FaultRepeated, true},
	"two upgrades":                    {"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n", FaultRepeated, true},
	"a chunk without a size":          {chunked + "\r\n\r\n", FaultChunkSize, false},
	"a chunk size with a sign":        {chunked + "+5\r\nhello\r\n0\r\n\r\n", FaultChunkSize, false},
	"a negative chunk size":           {chunked + "-5\r\nhello\r\n0\r\n\r\n", FaultChunkSize, false},
	"a chunk size with 0x":            {chunked + "0x5\r\nhello\r\n0\r\n\r\n", FaultChunkSize, false},
	"a chunk size with an underscore": {chunked + "1_0\r\nhello\r\n0\r\n\r\n", FaultChunkSize, false},
	"bare LF after a chunk size":      {chunked + "5\nhello\r\n0\r\n\r\n", FaultChunkSize, false},
	"bare LF after the last size":     {chunked + "0\n\r\n", FaultChunkSize, false},
	"bare CR after a chunk size":      {chunked + "5\rhello\r\n0\r\n\r\n", FaultChunkSize, false},
	"17 digits of a chunk size":       {chunked + "00000000000000005\r\nhello\r\n0\r\n\r\n", FaultChunkSize, false},
	"a chunk extension":               {chunked + "5;a=b\r\nhello\r\n0\r\n\r\n", FaultChunkExtension, false},
	"an extension of the last chunk":  {chunked + "0;a\r\n\r\n", FaultChunkExtension, false},
	"a blank after a chunk size":      {chunked + "5 \r\nhello\r\n0\r\n\r\n", FaultChunkExtension, false},
	"a blank before a chunk size":     {chunked + " 5\r\nhello\r\n0\r\n\r\n", FaultChunkExtension, false},
	"more data than the chunk":        {chunked + "5\r\nhello!\r\n0\r\n\r\n", FaultChunkEnd, false},
	"bare LF after a chunk":           {chunked + "5\r\nhello\n0\r\n\r\n", FaultChunkEnd, false},
	"bare CR after a chunk":           {chunked + "5\r\nhello\r0\r\n\r\n", FaultChunkEnd, false},
	"a length in the trailers":        {chunked + "0\r\nContent-Length: 5\r\n\r\n", FaultTrailer, false},
	"a coding in the trailers":        {chunked + "0\r\nTransfer-Encoding: chunked\r\n\r\n", FaultTrailer, false},
	"bare LF in the trailers":         {chunked + "0\r\nX: y\n\r\n", FaultLineEnd, false},
	"bare LF at the end of trailers":  {chunked + "0\r\nX: y\r\n\n", FaultLineEnd, false},
	"a fold in the trailers":          {chunked + "0\r\nX: y\r\n z\r\n\r\n", FaultFold, false},
	"trailers over the limit":         {chunked + "0\r\nX: " + strings.Repeat("y", maxTrailers) + "\r\n\r\n", FaultTooLarge, false},
	"a head over the limit":           {"GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("y", DefaultMaxHead) + "\r\n\r\n", FaultTooLarge, false},
}

const chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"

func TestEveryFaultIsFoundHoweverItArrives(t *testing.T) {
	const after = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
	for name, c := range faulty {
		t.Run(name, func(t *testing.T) {
			for _, sizes := range [][]int{nil, {1}, {2, 1, 3}, {7}} {
				if len(c.stream) > 10_000 && len(sizes) > 0 {
					continue
				}
				got := follow(c.stream+after, sizes...)
				if got.fault != c.fault || got.state != stateOver {
					t.Fatalf("in pieces of %v: got fault %q in state %d, want %q", sizes, got.fault, got.state, c.fault)
				}
				if got.delivered > len(c.stream) {
					t.Errorf("in pieces of %v: %d bytes behind the fault were delivered", sizes, got.delivered-len(c.stream))
				}
				if c.head {
					j := &judge{maxHead: DefaultMaxHead}
					if r := requests(c.stream+after, j); len(r.heads) > 0 {
						t.Errorf("the head counts as good")
					}
				}
			}
		})
	}
}

func TestAHeadWithAFaultIsDeliveredToItsEnd(t *testing.T) {
	for name, c := range faulty {
		if !c.head || c.fault == FaultRequestLine || c.fault == FaultCoding || name == "a coding twice" {
			continue // these are broken off
		}
		end := len(c.stream)
		for _, mark := range []string{"\r\n\r\n", "\n\n", "\n\r\n", "\r\n\n"} {
			if i := strings.Index(c.stream, mark); i >= 0 && i+len(mark) < end {
				end = i + len(mark)
			}
		}
		if got := follow(c.stream + "more"); got.delivered != end {
			t.Errorf("%s: %d bytes were delivered, the head has %d", name, got.delivered, end)
		}
	}
}

func TestNothingIsJudgedBehindAnUpgradeNorCounted(t *testing.T) {
	for _, head := range []string{
		"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n",
		"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nok",
		"POST / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	} {
		j := &judge{maxHead: DefaultMaxHead}
		got := requests(head+"GET / HTTP/1.1\r\nHost: h\r\n\r\n\x81\x05\x00\n\n", j)
		if got.state != stateHeld || len(got.heads) != 1 || len(got.ends) != 1 || got.ends[0] != len(head) {
			t.Errorf("%q: state %d, heads %v, ends %v", head, got.state, got.heads, got.ends)
		}
	}
	for _, method := range []string{"CONNEC", "CONNECTS", "connect", "XCONNECT"} {
		j := &judge{maxHead: DefaultMaxHead}
		if requests(method+" / HTTP/1.1\r\nHost: h\r\n\r\n", j); j.state != stateStart {
			t.Errorf("%s is taken for CONNECT", method)
		}
	}
}

func TestHTTP2IsLetThroughFromItsPrefaceOn(t *testing.T) {
	for _, sizes := range [][]int{nil, {1}, {5}} {
		if got := follow(preface+"\x00\x00\x00\x04\n\n\x00", sizes...); got.state != statePass || got.fault != noFault {
			t.Errorf("in pieces of %v: state %d, fault %v", sizes, got.state, got.fault)
		}
	}
	// Only at the beginning of a connection.
	j := &judge{maxHead: DefaultMaxHead}
	if requests("GET / HTTP/1.1\r\nHost: h\r\n\r\n"+preface, j); j.state == statePass {
		t.Error("a connection that spoke HTTP/1 was let go")
	}
}

func TestTextLengthStopsAtTheFirstByteThatIsNone(t *testing.T) {
	for least := range []byte{0x20, 0x21} {
		for n := range 20 {
			for c := range 256 {
				text := append([]byte(strings.Repeat("\xff~!", 7)[:n]), byte(c))
				text = append(text, "\x00\x7f!!!!!!!!!"...)
				want := n
				if c >= least && c != 0x7f {
					want++
				}
				if least > 0 { // the byte after is none
					if got := textLength(text, byte(least)); got != want {
						t.Fatalf("textLength of %q from %#x on: %d, want %d", text, least, got, want)
					}
				}
			}
		}
	}
}

var headOfTen = []byte("POST /v1/charges?account=42 HTTP/1.1\r\n" +
	"Host: payments.example.com\r\nUser-Agent: worker/1.4 (linux; amd64)\r\nAccept: application/json\r\n" +
	"Content-Type: application/json\r\nContent-Length: 256\r\nFence-Job-Id: nightly-billing-2026-11-29\r\n" +
	"Fence-Generation: 17\r\nIdempotency-Key: charge-0123456789\r\n" +
	"Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\n\r\n" +
	strings.Repeat("x", 256))

func BenchmarkAHeadOfTenHeaders(b *testing.B) {
	j := &judge{maxHead: DefaultMaxHead}
	b.ReportAllocs()
	b.SetBytes(int64(len(headOfTen)))
	for b.Loop() {
		if j.scan(headOfTen) < len(headOfTen) {
			b.Fatal(Fault(j.fault.Load()))
		}
	}
}
