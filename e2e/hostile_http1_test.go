package e2e_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// hostile is a request that must not reach the upstream. In its text {F} stands for the fence of a write that would be
// admitted, {W} for a whole such write. The line ends of the text are the real ones.
type hostile struct {
	name, text string
	code       string // of the problem; empty: request-invalid
}

// The head of a chunked write that would be admitted.
const chunkedHead = "POST /w HTTP/1.1\r\nHost: p\r\n{F}Transfer-Encoding: chunked\r\n\r\n"

func hostileHeaders() []hostile {
	const fence = "fence-invalid"
	var all []hostile
	add := func(name, headers, code string) {
		all = append(all, hostile{name, "POST /w HTTP/1.1\r\nHost: p\r\n" + headers + "Content-Length: 0\r\n\r\n", code})
	}
	add("job twice", "{F}Fence-Job-Id: job\r\n", fence)
	add("two jobs", "{F}fence-job-id: other\r\n", fence)
	add("generation twice", "{F}Fence-Generation: 1\r\n", fence)
	add("a list of generations", "Fence-Job-Id: job\r\nFence-Generation: 1, 1\r\n", fence)
	add("a list of jobs", "Fence-Job-Id: job, job\r\nFence-Generation: 1\r\n", fence)
	add("a lease twice", "{F}Fence-Lease: a\r\nFence-Lease: a\r\n", fence)
	add("a key twice", "{F}Idempotency-Key: a\r\nIdempotency-Key: b\r\n", fence)
	add("a job with underscores", "{F}Fence_Job_Id: other\r\n", fence)
	add("a generation with dots", "{F}Fence.Generation: 2\r\n", fence)
	add("a generation with both", "{F}fence_generation: 2\r\nFence.Generation: 2\r\n", fence)
	add("a lease with an underscore", "{F}Fence_Lease: x\r\n", fence)
	add("a key with a dot", "{F}Idempotency.Key: x\r\n", fence)
	add("underscores only", "Fence_Job_Id: job\r\nFence_Generation: 1\r\n", fence)
	add("a generation named in Connection", "{F}Connection: close, Fence-Generation\r\n", fence)
	add("a job named in Connection", "{F}Connection: fence-job-id\r\n", fence)
	add("an alias named in Connection", "{F}Connection: fence_lease\r\n", fence)
	add("a key named in a second Connection", "{F}Connection: close\r\nConnection: x, Idempotency-Key\r\n", fence)
	add("a generation with a sign", "Fence-Job-Id: job\r\nFence-Generation: +1\r\n", fence)
	add("a generation with a zero", "Fence-Job-Id: job\r\nFence-Generation: 01\r\n", fence)
	add("a generation beyond 2^53", "Fence-Job-Id: job\r\nFence-Generation: 9007199254740993\r\n", fence)
	add("no generation", "Fence-Job-Id: job\r\n", fence)
	add("no job", "Fence-Generation: 1\r\n", fence)
	add("no fence", "", "fence-required")
	add("an expectation that nobody meets", "{F}Expect: 200-ok\r\n", "")
	add("an expectation too many", "{F}Expect: 100-continue, 200-ok\r\n", "request-invalid")
	add("two expectations", "{F}Expect: 100-continue\r\nExpect: 200-ok\r\n", "request-invalid")
	add("an upgrade to h2c", "{F}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", "request-invalid")
	add("an upgrade to anything", "{F}Connection: Upgrade\r\nUpgrade: foo\r\n", "request-invalid")
	add("an upgrade that Connection does not name", "{F}Upgrade: websocket\r\n", "request-invalid")
	add("one header over the limit", "{F}X: "+strings.Repeat("x", 100<<10)+"\r\n", "")
	add("many headers over the limit", "{F}"+strings.Repeat("X-Header: x\r\n", 10_000), "")
	all = append(all,
		hostile{"a fence in the trailers only",
			"POST /w HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\nTrailer: Fence-Job-Id, Fence-Generation\r\n\r\n0\r\n{F}\r\n", "fence-required"},
		hostile{"a method override", "GET /w HTTP/1.1\r\nHost: p\r\nX-HTTP-Method-Override: DELETE\r\n\r\n", "fence-required"},
		hostile{"a method override with underscores", "GET /w HTTP/1.1\r\nHost: p\r\nX_HTTP_Method: PUT\r\n\r\n", "fence-required"},
		hostile{"a method in small letters", "delete /w HTTP/1.1\r\nHost: p\r\n\r\n", "fence-required"},
		hostile{"a method that nobody knows", "FROBNICATE /w HTTP/1.1\r\nHost: p\r\n\r\n", "fence-required"},
	)
	return all
}

func hostileTargets() []hostile {
	var all []hostile
	for name, target := range map[string]string{
		"a dot segment": "/a/../w", "a dot segment at the end": "/w/..", "a single dot": "/./w", "encoded dots": "/%2e%2e/w",
		"mixed dots": "/a/.%2E/w", "dots and an encoded slash": "/a/..%2fw", "all encoded": "/a%2f%2e%2e%2fw",
		"dots and a parameter": "/a/..;x=y/w", "dots and a backslash": `/a\..\w`, "dots and an encoded backslash": "/a%5c..%5cw",
		"an encoded NUL": "/w%00", "another scheme": "ftp://p/w", "a scheme without a host": "http:/w",
		"an opaque URL": "http:w", "a user in the URL": "http://u:p@p/w", "an authority": "p:80", "an asterisk": "*", "no slash": "w",
		"a query only": "?x", "dots in a whole URL": "http://p/a/../w",
	} {
		all = append(all, hostile{name, "POST " + target + " HTTP/1.1\r\nHost: p\r\n{F}Content-Length: 0\r\n\r\n", ""})
	}
	return append(all,
		hostile{"CONNECT with an authority", "CONNECT p:80 HTTP/1.1\r\nHost: p\r\n{F}\r\n{W}", "request-invalid"},
		hostile{"CONNECT with a path", "CONNECT /w HTTP/1.1\r\nHost: p\r\n{F}\r\n{W}", "request-invalid"},
		hostile{"a host with a user", "POST /w HTTP/1.1\r\nHost: u@p\r\n{F}Content-Length: 0\r\n\r\n", ""},
		hostile{"a host with a path", "POST /w HTTP/1.1\r\nHost: p/x\r\n{F}Content-Length: 0\r\n\r\n", ""},
	)
}

// Behind each of these the same text goes on with a write that would be admitted by itself: it must not get through.
func hostileFraming() []hostile {
	const invalid = "request-invalid"
	post := func(headers, body string) string {
		return "POST /w HTTP/1.1\r\nHost: p\r\n{F}" + headers + "\r\n" + body + "{W}"
	}
	return []hostile{
		{"length and coding", post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), invalid},
		{"coding and length", post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), invalid},
		{"the same length twice", post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), invalid},
		{"two lengths", post("Content-Length: 5\r\nContent-Length: 0\r\n", "hello"), ""},
		{"a list of lengths", post("Content-Length: 5, 5\r\n", "hello"), ""},
		{"a length with a sign", post("Content-Length: +5\r\n", "hello"), ""},
		{"a negative length", post("Content-Length: -5\r\n", "hello"), ""},
		{"a length in hexadecimal", post("Content-Length: 0x5\r\n", "hello"), ""},
		{"a length with an underscore", post("Content_Length: 5\r\n", "hello"), invalid},
		{"two codings", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"), ""},
		{"chunked and identity", post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"), ""},
		{"gzip and chunked", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), ""},
		{"xchunked", post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), ""},
		{"0x0b before chunked", post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), ""},
		{"a coding with a dot", post("Transfer.Encoding: chunked\r\n", "0\r\n\r\n"), invalid},
		{"a blank before the colon", post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), ""},
		{"a coding on a folded line", post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), ""},
		{"a coding in HTTP/1.0", "POST /w HTTP/1.0\r\nHost: p\r\n{F}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{W}", ""},
		{"a fold", post("X: a\r\n b\r\nContent-Length: 0\r\n", ""), invalid},
		{"a fold that hides a fence", "POST /w HTTP/1.1\r\nHost: p\r\nX: a\r\n {F}Content-Length: 0\r\n\r\n{W}", invalid},
		{"bare LF in the head", "POST /w HTTP/1.1\nHost: p\r\n{F}Content-Length: 0\r\n\r\n{W}", invalid},
		{"bare LF after a header", post("X: y\nContent-Length: 0\r\n", ""), invalid},
		{"bare LF at the end of the head", "POST /w HTTP/1.1\r\nHost: p\r\n{F}Content-Length: 0\r\n\n{W}", invalid},
		{"bare LFs only", "POST /w HTTP/1.1\nHost: p\nFence-Job-Id: job\nFence-Generation: 1\nContent-Length: 0\n\n{W}", invalid},
		{"bare CR in a value", post("X: a\rContent-Length: 9\r\nContent-Length: 0\r\n", ""), ""},
		{"NUL in a value", post("X: a\x00b\r\nContent-Length: 0\r\n", ""), ""},
		{"NUL in a name", post("X\x00: a\r\nContent-Length: 0\r\n", ""), ""},
		{"an empty name", post(": a\r\nContent-Length: 0\r\n", ""), ""},
		{"a line without a colon", post("Fence\r\nContent-Length: 0\r\n", ""), ""},
		{"no host", "POST /w HTTP/1.1\r\n{F}Content-Length: 0\r\n\r\n{W}", ""},
		{"two hosts", "POST /w HTTP/1.1\r\nHost: p\r\nHost: q\r\n{F}Content-Length: 0\r\n\r\n{W}", ""},
		{"an empty line before", "\r\nPOST /w HTTP/1.1\r\nHost: p\r\n{F}Content-Length: 0\r\n\r\n{W}", ""},
		{"HTTP/0.9", "GET /w\r\n\r\n{W}", ""},
		{"HTTP/1.2", "POST /w HTTP/1.2\r\nHost: p\r\n{F}Content-Length: 0\r\n\r\n{W}", ""},
		{"HTTP/2.0 in a request line", "POST /w HTTP/2.0\r\nHost: p\r\n{F}Content-Length: 0\r\n\r\n{W}", ""},
		{"a preface that goes on otherwise", "PRI * HTTP/2.0\r\nHost: p\r\n{F}\r\n{W}", ""},
		{"two blanks", "POST  /w HTTP/1.1\r\nHost: p\r\n{F}Content-Length: 0\r\n\r\n{W}", ""},
		{"a blank in the target", "POST /w x HTTP/1.1\r\nHost: p\r\n{F}Content-Length: 0\r\n\r\n{W}", ""},
		{"a chunk extension", chunkedHead + "5;a=b\r\nhello\r\n0\r\n\r\n{W}", invalid},
		{"an extension of the last chunk", chunkedHead + "5\r\nhello\r\n0;a\r\n\r\n{W}", invalid},
		{"bare LF after a chunk size", chunkedHead + "5\nhello\r\n0\r\n\r\n{W}", invalid},
		{"bare LF after a chunk", chunkedHead + "5\r\nhello\n0\r\n\r\n{W}", invalid},
		{"a chunk size with a sign", chunkedHead + "+5\r\nhello\r\n0\r\n\r\n{W}", invalid},
		{"a chunk size with 0x", chunkedHead + "0x5\r\nhello\r\n0\r\n\r\n{W}", invalid},
		{"a chunk size that overflows", chunkedHead + "10000000000000005\r\nhello\r\n0\r\n\r\n{W}", invalid},
		{"a chunk that is longer than its size", chunkedHead + "4\r\nhello\r\n0\r\n\r\n{W}", invalid},
		{"a length in the trailers", chunkedHead + "0\r\nContent-Length: 5\r\n\r\n{W}", invalid},
		{"trailers over the limit", chunkedHead + "0\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n{W}", invalid},
		{"a write behind an upgrade", post("Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n", ""), invalid},
	}
}

// spell puts the fence and the whole write of a lease into a text. The one is w at the upstream, the other smuggled, with n
// behind it.
func spell(text string, l daemon.Lease, n string) string {
	fence := func(id string) string {
		var b bytes.Buffer
		_ = write(l, id, "").Head().Write(&b) // to memory
		return b.String()
	}
	whole := "POST /w HTTP/1.1\r\nHost: p\r\n" + fence("smuggled"+n) + "Content-Length: 0\r\n\r\n"
	return strings.NewReplacer("{F}", fence("w"+n), "{W}", whole).Replace(text)
}

// answers says something on a connection of its own and reads what comes until the proxy closes, or has nothing more to say
// after so many answers.
func (s *stage) answers(text string, least int) (all []daemon.Answer) {
	s.Helper()
	c, err := net.Dial("tcp", s.proxy.DataAddr())
	if err != nil {
		s.Fatal(err)
	}
	return answersOn(c, text, len(text), least)
}

// answersOn says something in pieces of a size, and closes the connection when so many answers are there and no more come.
func answersOn(c net.Conn, text string, size, least int) (all []daemon.Answer) {
	defer func() { _ = c.Close() }()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for piece := range slices.Chunk([]byte(text), size) {
			if _, err := c.Write(piece); err != nil {
				return // it may close before it has read all
			}
		}
	}()
	br := bufio.NewReader(c)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	for {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			break
		}
		a := daemon.Answer{Status: res.StatusCode, Header: res.Header}
		a.Raw, _ = io.ReadAll(res.Body) // what there is
		_ = json.Unmarshal(a.Raw, &a.Problem)
		all = append(all, a)
		if len(all) >= least { // a connection that is kept is waiting for more, and has had everything
			_ = c.SetReadDeadline(time.Now().Add(glance))
		}
	}
	_ = c.Close()
	<-written
	return all
}

func TestHostileRequestsAreRefusedAndTheUpstreamSeesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	headers, targets, framing := hostileHeaders(), hostileTargets(), hostileFraming()
	rows := slices.Concat(headers, targets, framing)
	got := make([][]daemon.Answer, len(rows))
	s.quiet(func() {
		// Most of the time is spent on finding that nothing more comes.
		var all sync.WaitGroup
		for first := range 16 {
			all.Go(func() {
				for i := first; i < len(rows); i += 16 {
					got[i] = s.answers(spell(rows[i].text, l, itoa(i)), 1)
				}
			})
		}
		all.Wait()
	})
	for i, row := range rows {
		s.inOurWords(row.name, got[i])
		if want := cmp.Or(row.code, "request-invalid"); len(got[i]) == 0 || got[i][0].Text("code") != want {
			t.Errorf("%s: want %s, got %d answers %v", row.name, want, len(got[i]), got[i])
		}
		if ambiguous := i >= len(headers)+len(targets); ambiguous && len(got[i]) > 1 {
			t.Errorf("%s: %d answers: something was read behind a request that is ambiguous", row.name, len(got[i]))
		}
		s.unseen("w"+itoa(i), "smuggled"+itoa(i))
	}
	s.forwarded(s.send(write(l, "after", "")), 200, "applied")
	s.executed("after", 1)
}

func TestWhatIsInTheBodyOfARefusedWriteIsNoRequest(t *testing.T) {
	t.Parallel()
	s := open(t)
	old := s.claim("job", "A", long)
	s.wantReply(s.reply(s.control.Revoke(s.soon(), "job", old.Generation, "test")), 200, "")
	now := s.claim("job", "B", long)
	whole := spell("{W}", now, "")
	for _, row := range []string{
		"POST /w HTTP/1.1\r\nHost: p\r\n{F}Content-Length: " + itoa(len(whole)) + "\r\n\r\n" + whole,
		"POST /w HTTP/1.1\r\nHost: p\r\n{F}Expect: 100-continue\r\nContent-Length: " + itoa(len(whole)) + "\r\n\r\n" + whole,
		"POST /w HTTP/1.1\r\nHost: p\r\n{F}Transfer-Encoding: chunked\r\n\r\n" + hex(len(whole)) + "\r\n" + whole + "\r\n0\r\n\r\n",
		"POST /w HTTP/1.1\r\nHost: p\r\n{F}Content-Length: 1000000\r\n\r\n" + whole,
	} {
		s.quiet(func() {
			got := s.answers(spell(row, old, ""), 1)
			if len(got) != 1 || got[0].Status != 412 {
				t.Errorf("%.60q: got %v", row, got)
			}
		})
	}
	s.unseen("w", "smuggled")
}

func TestARequestBehindARefusedOneIsJudgedByItself(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	stale := l
	stale.Generation = 7 // never issued
	got := s.answers(spell("POST /w HTTP/1.1\r\nHost: p\r\n{F}Content-Length: 5\r\n\r\nhello", stale, "")+spell("{W}", l, ""), 2)
	if len(got) != 2 || got[0].Reason() != "unissued-generation" || got[1].Decision() != "forwarded" {
		t.Errorf("got %v", got)
	}
	s.executed("smuggled", 1)
	s.unseen("w")
}

func itoa(n int) string { return strconv.Itoa(n) }

func hex(n int) string { return strconv.FormatInt(int64(n), 16) }
