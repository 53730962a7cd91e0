package proxy

import (
	"io"
	"net/http"
)

// directBodyReader is the body of a reply. It is read and closed by one goroutine.
type directBodyReader struct {
	// source is net/http's reader of the body; without one there are left bytes.
	source io.Reader
	left   int64
	conn   *directConn // nil once it was given away
	pool   *directSender
	stop   func() bool // ends the watch on the request's context
}

// Read implements io.Reader.
func (b *directBodyReader) Read(p []byte) (int, error) {
	n, err := b.next(p)
	if err == io.EOF {
		_ = b.end(true) // the reply is complete either way
	} else if err != nil {
		_ = b.end(false) // the error that counts is err
	}
	return n, err
}

func (b *directBodyReader) next(p []byte) (int, error) {
	switch {
	case b.source != nil:
		return b.source.Read(p)
	case b.left == 0:
		return 0, io.EOF
	case b.conn == nil:
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.conn.br.Read(p[:min(int64(len(p)), b.left)])
	switch b.left -= int64(n); {
	case b.left == 0:
		return n, io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Buffered returns how many bytes of the body can at least be read without waiting.
func (b *directBodyReader) Buffered() int {
	if b.conn == nil {
		return 0
	}
	return b.conn.br.Buffered()
}

// pass hands what is left of the body to f, if it is buffered whole; else it returns false
// and nothing has happened. The error is f's.
func (b *directBodyReader) pass(f func([]byte) (int, error)) (bool, error) {
	if b.source != nil || b.conn == nil || int64(b.conn.br.Buffered()) < b.left {
		return false, nil
	}
	n := int(b.left)
	piece, _ := b.conn.br.Peek(n) // it is buffered
	_, err := f(piece)
	_, _ = b.conn.br.Discard(n)
	b.left = 0
	// After an error f's server may still be reading the piece, see exchange.leave: so
	// nothing may be read into the connection's buffer any more.
	_ = b.end(err == nil) // the reply is complete either way
	return true, err
}

// Close implements io.Closer. It does not read what is left.
func (b *directBodyReader) Close() error { return b.end(false) }

func (b *directBodyReader) end(whole bool) error {
	c := b.conn
	if c == nil {
		return nil
	}
	b.conn = nil
	if b.stop != nil {
		b.stop()
	}
	if whole && b.pool != nil && c.exhausted() {
		b.pool.idle.put(c)
		return nil
	}
	return c.abandon()
}
