package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"reflect"
	"testing"
)

// heads are replies; plain tells which of them readPlainHead has to take.
var heads = []struct {
	reply string
	plain bool
}{
	{"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", true},
	{"HTTP/1.1 200 OK\r\ncontent-type:a/b\r\nX-a:\t1 \r\nx-A: \xe4, 2\r\nX-A:\r\nContent-Length:  0\t\r\n\r\n", true},
	{"HTTP/1.1 409 \r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n", true},
	{"HTTP/1.1 599\r\nX.y_z: 1\r\nContent-Length: 007\r\n\r\nabcdefghi", true},
	{"HTTP/1.1 200 OK\r\n\r\n", false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTrailer: X\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nPragma: no-cache\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\n: a\r\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nX: a\x00\r\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\nX: a\n\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nX: a\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nX: a\rContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", false},
	{"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", false},
	{"HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\n", false},
	{"HTTP/1.1 101 Switching Protocols\r\nContent-Length: 0\r\n\r\n", false},
	{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1  200 OK\r\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 20\r\nContent-Length: 2\r\n\r\n{}", false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", false},
	{"HTTP/1.1\r\n\r\n", false},
	{"\r\n\r\n", false},
	{"", false},
}

func TestAPlainHeadIsReadAsNetHTTPReadsIt(t *testing.T) {
	for _, h := range heads {
		if plain := sameHead(t, []byte(h.reply)); plain != h.plain {
			t.Errorf("%q: plain is %v", h.reply, plain)
		}
	}
	br := bufio.NewReader(bytes.NewReader([]byte(heads[0].reply)))
	_, _ = br.Peek(1) // fills the buffer
	if readPlainHead(br, &http.Request{Method: http.MethodHead}) != nil {
		t.Error("a reply to a HEAD has no body, whatever its length says")
	}
}

func FuzzAPlainHeadIsReadAsNetHTTPReadsIt(f *testing.F) {
	for _, h := range heads {
		f.Add([]byte(h.reply))
	}
	f.Fuzz(func(t *testing.T, reply []byte) { sameHead(t, reply) })
}

// sameHead reports whether a reply has a plain head, and compares what was made of it.
func sameHead(t *testing.T, reply []byte) (plain bool) {
	t.Helper()
	req := &http.Request{Method: http.MethodPost}
	ours, theirs := bufio.NewReader(bytes.NewReader(reply)), bufio.NewReader(bytes.NewReader(reply))
	_, _ = ours.Peek(1) // fills the buffer
	got := readPlainHead(ours, req)
	if got == nil {
		if rest, err := io.ReadAll(ours); err != nil || !bytes.Equal(rest, reply) {
			t.Errorf("%q: something was taken though the head is not plain; %q is left", reply, rest)
		}
		return false
	}
	want, err := http.ReadResponse(theirs, req)
	if err != nil {
		t.Fatalf("%q: net/http says %v", reply, err)
	}
	wantBody, wantErr := io.ReadAll(want.Body)
	b := &directBodyReader{conn: &directConn{gateConn: &gateConn{tcp: nowhere(t)}, br: ours}, left: got.ContentLength}
	body, err := io.ReadAll(b)
	if !bytes.Equal(body, wantBody) || (err == nil) != (wantErr == nil) {
		t.Errorf("%q: the body is %q and %v, want %q and %v", reply, body, err, wantBody, wantErr)
	}
	want.Body = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q:\ngot  %+v\nwant %+v", reply, got, want)
	}
	rest, _ := io.ReadAll(ours)
	if wantRest, _ := io.ReadAll(theirs); !bytes.Equal(rest, wantRest) {
		t.Errorf("%q: %q is left, want %q", reply, rest, wantRest)
	}
	return true
}

// nowhere is a connection that may be closed.
func nowhere(t *testing.T) *net.TCPConn {
	t.Helper()
	return &net.TCPConn{}
}
