package e2e_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/e2e/daemon"
)

// hostile2 is a request of HTTP/2 that must not reach the upstream.
type hostile2 struct {
	name    string
	head    fields
	body    string
	trailer fields
}

// fenced2 is a write that would be admitted.
func fenced2(l daemon.Lease, id string) fields {
	f := post("/w")
	for name, values := range write(l, id, "").Head() {
		f = f.with(strings.ToLower(name), values[0])
	}
	return f
}

func hostileStreams(ok fields) []hostile2 {
	path := func(p string) fields { return ok.without(":path").with2(":path", p) }
	method := func(m string) fields { return ok.without(":method").with2(":method", m) }
	authority := func(a string) fields { return ok.without(":authority").with2(":authority", a) }
	return []hostile2{
		{name: "a job twice", head: ok.with("fence-job-id", "job")},
		{name: "a generation twice", head: ok.with("fence-generation", "1")},
		{name: "a lease twice", head: ok.with("fence-lease", "a", "fence-lease", "a")},
		{name: "a key twice", head: ok.with("idempotency-key", "a", "idempotency-key", "b")},
		{name: "a generation with an underscore", head: ok.with("fence_generation", "2")},
		{name: "a job with dots", head: ok.with("fence.job.id", "other")},
		{name: "no fence", head: post("/w")},
		{name: "a fence in the trailers only", head: post("/w").with("trailer", "fence-job-id, fence-generation"), body: "x", trailer: fields{{"fence-job-id", "job"}, {"fence-generation", "1"}}},
		{name: "a name in capitals", head: ok.with("X-Capital", "x")},
		{name: "a fence in capitals", head: ok.with("Fence-Generation", "2")},
		{name: "a name with a blank", head: ok.with("x y", "z")},
		{name: "a name with a colon", head: ok.with("x:y", "z")},
		{name: "an empty name", head: ok.with("", "z")},
		{name: "a value with NUL", head: ok.with("x", "y\x00z")},
		{name: "a value with CR LF", head: ok.with("x", "y\r\nfence-generation: 2")},
		{name: "a value with LF", head: ok.with("x", "y\nz")},
		{name: "connection", head: ok.with("connection", "close")},
		{name: "a fence named in connection", head: ok.with("connection", "fence-generation")},
		{name: "proxy-connection", head: ok.with("proxy-connection", "x")},
		{name: "keep-alive", head: ok.with("keep-alive", "x")},
		{name: "transfer-encoding", head: ok.with("transfer-encoding", "chunked"), body: "0\r\n\r\nPOST /smuggled HTTP/1.1\r\nHost: p\r\n\r\n"},
		{name: "transfer-encoding with an underscore", head: ok.with("transfer_encoding", "chunked"), body: "x"},
		{name: "transfer-encoding with a dot", head: ok.with("transfer.encoding", "chunked"), body: "x"},
		{name: "content-length with an underscore", head: ok.with("content_length", "0"), body: "POST /smuggled HTTP/1.1\r\nHost: p\r\n\r\n"},
		{name: "upgrade", head: ok.with("upgrade", "h2c")},
		{name: "te other than trailers", head: ok.with("te", "gzip")},
		{name: "a length below the data", head: ok.with("content-length", "1"), body: "hello"},
		{name: "a length above the data", head: ok.with("content-length", "9"), body: "hello"},
		{name: "a length of a request without data", head: ok.with("content-length", "5")},
		{name: "a length of nothing, with data", head: ok.with("content-length", "0"), body: "POST /smuggled HTTP/1.1\r\n\r\n"},
		{name: "two lengths", head: ok.with("content-length", "5", "content-length", "6"), body: "hello"},
		{name: "a length twice", head: ok.with("content-length", "5", "content-length", "5"), body: "hello"},
		{name: "a list of lengths", head: ok.with("content-length", "5, 5"), body: "hello"},
		{name: "a length with a sign", head: ok.with("content-length", "+5"), body: "hello"},
		{name: "a length that is no number", head: ok.with("content-length", "abc"), body: "hello"},
		{name: "no method", head: ok.without(":method")},
		{name: "an empty method", head: method("")},
		{name: "a method with blanks", head: method("POST /x HTTP/1.1")},
		{name: "a method override", head: get("/w").with("x-http-method-override", "PUT")},
		{name: "a method twice", head: ok.with2(":method", "GET")},
		{name: "no path", head: ok.without(":path")},
		{name: "an empty path", head: path("")},
		{name: "a path without a slash", head: path("w")},
		{name: "an asterisk", head: path("*")},
		{name: "a URL for a path", head: path("http://other/w")},
		{name: "a path with a blank", head: path("/x HTTP/1.1")},
		{name: "a path with a request in it", head: path("/x HTTP/1.1\r\nHost: p\r\n\r\n")},
		{name: "a path with dot segments", head: path("/a/../w")},
		{name: "a path with encoded dots", head: path("/a/%2e%2E/w")},
		{name: "a path with NUL", head: path("/w\x00")},
		{name: "a path twice", head: ok.with2(":path", "/other")},
		{name: "no scheme", head: ok.without(":scheme")},
		{name: "another scheme", head: ok.without(":scheme").with2(":scheme", "ftp")},
		{name: "an authority with a user", head: authority("u@p")},
		{name: "an authority with a path", head: authority("p/x")},
		{name: "an authority with a blank", head: authority("p q")},
		{name: "no authority", head: ok.without(":authority")},
		{name: "another host", head: ok.with("host", "other")},
		{name: "two hosts", head: ok.with("host", "p", "host", "other")},
		{name: "an unknown pseudo-header", head: ok.with2(":fence", "1")},
		{name: "a status", head: ok.with2(":status", "200")},
		{name: "a pseudo-header after the others", head: ok.with("x", "y", ":path", "/x")},
		{name: "CONNECT", head: fields{{":method", "CONNECT"}, {":authority", "p:80"}}},
		{name: "extended CONNECT", head: ok.without(":method").with2(":method", "CONNECT").with2(":protocol", "websocket")},
		{name: "an expectation that nobody meets", head: ok.with("expect", "200-ok")},
		{name: "one header over the limit", head: ok.with("x", strings.Repeat("x", 200<<10))},
		{name: "pseudo-headers in the trailers", head: ok, body: "x", trailer: fields{{":path", "/x"}}},
	}
}

// with2 puts a pseudo-header before the others.
func (f fields) with2(name, value string) fields {
	return append(fields{{name, value}}, f...)
}

func TestHostileStreamsAreRefusedAndTheUpstreamSeesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := s.claim("job", "A", long)
	for _, row := range hostileStreams(fenced2(l, "w")) {
		s.quiet(func() {
			c := s.speak2()
			stream, _ := c.open(row.head, row.body == "" && row.trailer == nil) // it may be refused before it has come whole
			if row.body != "" {
				_ = c.WriteData(stream, row.trailer == nil, []byte(row.body)) // it may be refused already
			}
			if row.trailer != nil {
				_ = c.section(stream, row.trailer, true)
			}
			status, err := c.answer(stream)
			if !errors.Is(err, errEnded) && (err != nil || status < 400 || status > 499) {
				t.Errorf("%s: got %d, %v", row.name, status, err)
			}
			_ = c.Close()
		})
		if s.unseen("w"); t.Failed() {
			t.Fatalf("that was %s", row.name) // the rows after it could not be told from it
		}
	}
	// And the same request without its fault is served.
	c := s.speak2()
	stream, err := c.open(fenced2(l, "fine").with("host", "p", "content-length", "5"), false)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.WriteData(stream, true, []byte("hello")) // the answer tells
	if status, err := c.answer(stream); err != nil || status != 200 {
		t.Errorf("the request without a fault: got %d, %v", status, err)
	}
	s.executed("fine", 1)
}
