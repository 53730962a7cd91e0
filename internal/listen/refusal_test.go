package listen

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/framing"
)

// refused is a request that no upstream may see, and why not. The groups are the places in net/http
// (Go 1.26) at which it would be refused in net/http's words.
type refused struct {
	name, text string
	why        framing.Fault
}

func line(line string) string     { return line + "\r\nHost: h\r\n\r\n" }
func target(target string) string { return line("GET " + target + " HTTP/1.1") }
func head(header string) string   { return "GET / HTTP/1.1\r\nHost: h\r\n" + header + "\r\n\r\n" }
func body(header string) string   { return "POST / HTTP/1.1\r\nHost: h\r\n" + header + "\r\n\r\n" }

func refusals() []refused {
	const unreadable, requestLine = framing.FaultUnreadable, framing.FaultRequestLine
	return []refused{
		// request.go, readRequest: what is no request line, method or version
		{"one word", line("GET"), requestLine},
		{"no version", line("GET /"), requestLine},
		{"a line of blanks", line("   "), requestLine},
		{"no target", line("GET  HTTP/1.1"), requestLine},
		{"a method that is no token", line("G@T / HTTP/1.1"), requestLine},
		{"no method", line(" / HTTP/1.1"), requestLine},
		{"another protocol", line("GET / HTTQ/1.1"), requestLine},
		{"a protocol in small letters", line("GET / http/1.1"), requestLine},
		{"a version of one digit", line("GET / HTTP/1"), requestLine},
		{"a version of three", line("GET / HTTP/1.1.1"), requestLine},
		{"a version with a letter", line("GET / HTTP/1.x"), requestLine},
		{"JSON", "{\"a\":1}\r\n\r\n", requestLine},
		{"a TLS hello", "\x16\x03\x01\x00\x05hello\r\n\r\n", requestLine},
		{"zeros", strings.Repeat("\x00", 32), requestLine},
		{"an empty line", "\r\n" + target("/"), framing.FaultEmptyLine},
		{"a bare empty line", "\n" + target("/"), framing.FaultEmptyLine},
		// request.go, readRequest: url.ParseRequestURI
		{"an escape that is none", target("/%zz"), unreadable},
		{"half an escape", target("/a%2"), unreadable},
		{"no slash", target("w"), unreadable},
		{"a query only", target("?x"), unreadable},
		{"a colon first", target(":80"), unreadable},
		{"an escape in the host", target("http://h%zz/"), unreadable},
		{"a port that is none", target("http://h:x/"), unreadable},
		{"brackets that do not close", target("http://[::1/"), unreadable},
		{"a user that is none", target("http://a b@h/"), requestLine},
		{"a user with an escape that is none", target("http://%zz@h/"), unreadable},
		{"CONNECT to a port that is none", line("CONNECT h:x HTTP/1.1"), unreadable},
		{"CONNECT to an escape", line("CONNECT %zz HTTP/1.1"), unreadable},
		{"CONNECT with a path that has an escape that is none", line("CONNECT /%zz HTTP/1.1"), unreadable},
		{"a control byte in the target", target("/\x01"), requestLine},
		// textproto, ReadMIMEHeader
		{"no colon", head("X"), framing.FaultName},
		{"no name", head(": x"), framing.FaultName},
		{"a name that is no token", head("X@Y: z"), framing.FaultName},
		{"a name with a blank", head("X Y: z"), framing.FaultBlankName},
		{"a blank before the colon", head("X : z"), framing.FaultBlankName},
		{"a first header that is folded", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", framing.FaultFold},
		{"NUL in a value", head("X: a\x00b"), framing.FaultControl},
		// request.go and server.go, readRequest: the host and the headers
		{"two hosts", head("Host: g"), framing.FaultRepeated},
		{"no host", "GET / HTTP/1.1\r\nX: y\r\n\r\n", framing.FaultHost},
		{"a host that is none", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", unreadable},
		{"a host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", unreadable},
		{"a host of other letters", "GET / HTTP/1.1\r\nHost: \xc3\xa4\r\n\r\n", unreadable},
		{"a control byte in a value", head("X: \x01"), framing.FaultControl},
		{"DEL in a value", head("X: \x7f"), framing.FaultControl},
		// server.go, http1ServerSupportsRequest
		{"HTTP/0.9", line("GET / HTTP/0.9"), requestLine},
		{"HTTP/1.2", line("GET / HTTP/1.2"), requestLine},
		{"HTTP/2.0", line("GET / HTTP/2.0"), requestLine},
		{"HTTP/3.0", line("GET / HTTP/3.0"), requestLine},
		{"a preface that goes on otherwise", "PRI * HTTP/2.0\r\nHost: h\r\n\r\n", requestLine},
		{"half a preface", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", requestLine},
		{"a preface with another method", line("PRX * HTTP/2.0"), requestLine},
		// transfer.go: codings, lengths, and the names of trailers
		{"another coding", body("Transfer-Encoding: gzip"), framing.FaultCoding},
		{"two codings", body("Transfer-Encoding: gzip, chunked"), framing.FaultCoding},
		{"a coding twice", body("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), framing.FaultRepeated},
		{"two lengths", body("Content-Length: 1\r\nContent-Length: 2"), framing.FaultRepeated},
		{"no length", body("Content-Length:"), framing.FaultLength},
		{"a length with a sign", body("Content-Length: +1"), framing.FaultLength},
		{"a length that overflows", body("Content-Length: 9223372036854775808"), framing.FaultLength},
		{"a trailer that is a length", body("Transfer-Encoding: chunked\r\nTrailer: X, Content-Length") + "0\r\n\r\n", unreadable},
		{"a trailer that is a coding", body("Transfer-Encoding: chunked\r\nTrailer: transfer-encoding") + "0\r\n\r\n", unreadable},
		{"a trailer that is Trailer", body("Transfer-Encoding: chunked\r\nTrailer: Trailer") + "0\r\n\r\n", unreadable},
		// server.go, serve: sendExpectationFailed
		{"an expectation that nobody knows", body("Content-Length: 0\r\nExpect: payment"), framing.FaultExpectation},
		// server.go, serve: what ends too early
		{"a line that ends early", "GET / HTT", framing.FaultCut},
		{"a head that ends early", "GET / HTTP/1.1\r\nHost: h\r\nX: ", framing.FaultCut},
		{"a head without its last line", "GET / HTTP/1.1\r\nHost: h\r\n", framing.FaultCut},
	}
}

// large are heads over the limit.
func large() []refused {
	return []refused{
		{"one header over the limit", head("X: " + strings.Repeat("x", 100<<10)), framing.FaultTooLarge},
		{"many headers over the limit", head("A: b" + strings.Repeat("\r\nX-Header: x", 8000)), framing.FaultTooLarge},
		{"a target over the limit", target("/" + strings.Repeat("x", 100<<10)), framing.FaultTooLarge},
	}
}

const fine = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok"

// wantRefused checks that there are so many good answers and then a refusal in our words.
func wantRefused(t *testing.T, name string, row refused, got []heard, before int) {
	t.Helper()
	if len(got) != before+1 {
		t.Errorf("%s: %d answers, want %d: %v", name, len(got), before+1, got)
		return
	}
	for _, h := range got[:before] {
		if h.status != 200 || h.by != byHandler {
			t.Errorf("%s: a good request before it got %v", name, h)
		}
	}
	if h := got[before]; h.status != 400 || h.by == "" || strings.TrimSpace(h.text) != row.why.Error() {
		t.Errorf("%s: got %v, want %q", name, h, row.why.Error())
	}
}

func TestEveryRefusalOfHTTP1IsInOurWords(t *testing.T) {
	p := serveIn(t, answering)
	for _, row := range append(refusals(), large()...) {
		before := p.heard.Load()
		wantRefused(t, row.name, row, p.say(row.text, len(row.text)), 0)
		if n := p.heard.Load() - before; n != 1 {
			t.Errorf("%s: %d heard of it", row.name, n)
		}
		wantRefused(t, row.name+", behind others", row, p.say(fine+fine+row.text, 1<<20), 2)
		if row.why != framing.FaultCut {
			wantRefused(t, row.name+", before another", row, p.say(fine+row.text+fine, 1<<20), 1)
		}
	}
}

func TestARefusalDoesNotDependOnThePiecesOfItsRequest(t *testing.T) {
	p := serveIn(t, answering)
	for _, row := range refusals() {
		for at := 1; at < len(row.text); at++ {
			wantRefused(t, row.name, row, p.say(row.text, at, len(row.text)), 0)
		}
		stream := fine + row.text
		for at := len(fine) - 3; at < len(stream); at++ {
			wantRefused(t, row.name+", behind another", row, p.say(stream, at, len(stream)), 1)
		}
		wantRefused(t, row.name+", byte by byte", row, p.say(fine+row.text, 1), 1)
	}
}

// FuzzWhatNetHTTPRefusesIsRefusedInOurWords holds the server against net/http alone. What that refuses
// no handler of ours may take for good, and no word of its own gets out.
func FuzzWhatNetHTTPRefusesIsRefusedInOurWords(f *testing.F) {
	for _, row := range refusals() {
		f.Add([]byte(row.text), byte(0))
		f.Add([]byte(fine+row.text+fine), byte(3))
	}
	f.Add([]byte(fine+fine), byte(1))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\n\r\n"+fine), byte(0))
	f.Add([]byte(body("Transfer-Encoding: chunked")+"2;x\r\nok\r\n0\r\n\r\n"+fine), byte(9))
	ours, bare := serveIn(f, answering), serveBare(f)
	f.Fuzz(func(t *testing.T, stream []byte, size byte) {
		step := int(size)
		if step == 0 {
			step = len(stream)
		}
		theirs := bare.say(string(stream), step)
		good := 0
		for _, h := range theirs {
			if h.by == byHandler && h.status == 200 {
				good++
			}
		}
		for k, h := range ours.say(string(stream), step) {
			switch {
			case h.by == "":
				t.Fatalf("answer %d is none of ours: %v", k, h)
			case h.status == 200 && k >= good:
				t.Fatalf("answer %d is %v, and net/http alone says %v", k, h, theirs)
			}
		}
		if len(theirs) > good && len(ours.say(string(stream), step)) == 0 {
			t.Fatalf("no answer, and net/http alone says %v", theirs)
		}
	})
}

func TestAFaultBehindARequestDoesNotEndIt(t *testing.T) {
	serving := make(chan struct{})
	p := serveIn(t, func(w http.ResponseWriter, r *http.Request) {
		close(serving)
		select {
		case <-r.Context().Done():
			t.Error("the request was ended")
		case <-time.After(100 * time.Millisecond): // long enough for a broken one to show
		}
		answering(w, r)
	})
	c := p.dial()
	defer func() { _ = c.Close() }()
	go func() {
		_, _ = io.WriteString(c, target("/")) // the answers tell
		<-serving
		_, _ = io.WriteString(c, "\r") // the look ahead finds it
		_ = c.CloseWrite()
	}()
	br := bufio.NewReader(c)
	for k, by := range []string{byHandler, byRefusal} {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.Header.Get("X-By") != by {
			t.Errorf("answer %d is %v", k, res.Header)
		}
	}
}

func TestWhoIsStillSendingReadsItsRefusalAndNoReset(t *testing.T) {
	for name, secure := range map[string]bool{"a target that is none": false, "HTTP on a TLS port": true} {
		s := stood(t, secure, Options{Refusal: inWords})
		c := s.dial()
		_, _ = io.WriteString(c, "POST /%zz HTTP/1.1\r\nHost: h\r\nContent-Length: 30000\r\n\r\n"+strings.Repeat("x", 30_000)) // the answer tells
		if b, err := io.ReadAll(c); err != nil || !strings.Contains(string(b), byRefusal) {
			t.Errorf("%s: got %q, %v", name, b, err)
		}
	}
}
