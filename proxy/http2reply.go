package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
)

// checkHTTP2Head refuses what the client takes and what is malformed all the same (RFC 9113,
// sections 8.1.1 and 8.3.2): whoever gets the reply next may read it in another way.
func checkHTTP2Head(res *http.Response) error {
	if status, _, _ := strings.Cut(res.Status, " "); len(status) != 3 || !digits(status) {
		return errStatus
	}
	if cl := res.Header["Content-Length"]; len(cl) > 1 || len(cl) == 1 && (!digits(cl[0]) || res.ContentLength < 0) {
		return errLength
	}
	return nil
}

// digits reports whether s is a number in decimal digits.
func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// http2Reply is the body of a reply. It is read and closed by one goroutine.
type http2Reply struct {
	io.ReadCloser
	sender *http2Sender
	conn   *http2Conn // nil once it was given back
	read   bool       // to its end
	s      *Send
	upload *upload
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (r *http2Reply) Read(p []byte) (int, error) {
	if r.read {
		return 0, io.EOF // a body that was closed has forgotten it
	}
	n, err := r.ReadCloser.Read(p)
	if err == io.EOF {
		r.read = true
		r.end()
	}
	return n, err
}

// end gives the connection back if request and reply were whole, and reports whether it
// has.
func (r *http2Reply) end() bool {
	c := r.conn
	if c == nil {
		return true
	}
	if c.unfinished(r.s) {
		return false // a part of the request is still on its way
	}
	r.conn = nil
	_ = r.ReadCloser.Close() // waits until the client is done with the stream
	r.sender.giveBack(c)
	return true
}

// Close implements io.Closer. A connection whose request or reply is incomplete is
// closed: only that ends an upload for certain.
func (r *http2Reply) Close() error {
	defer r.cancel()
	r.upload.stop()
	if r.end() {
		return nil
	}
	c := r.conn
	r.conn = nil
	err := c.abandon()
	// Else the client would wait for an upload that waits for its caller.
	r.cancel()
	return errors.Join(err, r.ReadCloser.Close())
}
