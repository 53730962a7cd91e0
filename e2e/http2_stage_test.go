package e2e_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// fields are the fields of a header section of HTTP/2, in their order, as they are to stand on the wire.
type fields [][2]string

// get and post begin a request that would be served.
func get(path string) fields {
	return fields{{":method", "GET"}, {":scheme", "http"}, {":authority", "p"}, {":path", path}}
}

func post(path string) fields {
	return fields{{":method", "POST"}, {":scheme", "http"}, {":authority", "p"}, {":path", path}}
}

func (f fields) with(more ...string) fields {
	out := append(fields(nil), f...)
	for i := 0; i < len(more); i += 2 {
		out = append(out, [2]string{more[i], more[i+1]})
	}
	return out
}

// without drops one field.
func (f fields) without(name string) (out fields) {
	for _, field := range f {
		if field[0] != name {
			out = append(out, field)
		}
	}
	return out
}

// raw2 is a connection of HTTP/2 by prior knowledge on which a test writes the frames itself. It is for one goroutine.
type raw2 struct {
	net.Conn
	*http2.Framer
	next  uint32
	block bytes.Buffer
	enc   *hpack.Encoder
	dec   *hpack.Decoder
}

// speak2 opens one.
func (s *stage) speak2() *raw2 {
	s.Helper()
	c, err := net.Dial("tcp", s.proxy.DataAddr())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	r := &raw2{Conn: c, Framer: http2.NewFramer(c, c), next: 1, dec: hpack.NewDecoder(4096, nil)}
	r.AllowIllegalWrites, r.AllowIllegalReads = true, true
	r.enc = hpack.NewEncoder(&r.block)
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, http2.ClientPreface) // what follows fails if this does
	if err := r.WriteSettings(); err != nil {
		s.Fatal(err)
	}
	return r
}

// open sends the head of a request on the next stream.
func (r *raw2) open(f fields, end bool) (stream uint32, err error) {
	stream = r.next
	r.next += 2
	return stream, r.section(stream, f, end)
}

// section sends a header section, in as many frames as it takes.
func (r *raw2) section(stream uint32, f fields, end bool) error {
	r.block.Reset()
	for _, field := range f {
		_ = r.enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}) // to memory
	}
	block := r.block.Bytes()
	for first := true; first || len(block) > 0; first = false {
		n := min(len(block), 16<<10)
		var err error
		if first {
			err = r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block[:n], EndStream: end, EndHeaders: n == len(block)})
		} else {
			err = r.WriteContinuation(stream, n == len(block), block[:n])
		}
		if err != nil {
			return err
		}
		block = block[n:]
	}
	return nil
}

// errEnded tells that the proxy has ended the stream, or the connection, without an answer.
var errEnded = errors.New("ended without an answer")

// answer waits for the status of a stream; errEnded if there is none.
func (r *raw2) answer(stream uint32) (status int, err error) {
	for {
		f, err := r.ReadFrame()
		if err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				return 0, err
			}
			return 0, errEnded // the connection was closed
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = r.WriteSettingsAck() // the next read fails if this does
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = r.WritePing(true, f.Data)
			}
		case *http2.HeadersFrame:
			all, err := r.dec.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				return 0, err
			}
			if f.StreamID == stream && all[0].Name == ":status" && all[0].Value[0] != '1' {
				return strconv.Atoi(all[0].Value)
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return 0, errEnded
			}
		case *http2.GoAwayFrame:
			return 0, errEnded
		}
	}
}
