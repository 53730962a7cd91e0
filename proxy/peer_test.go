package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is an HTTP/2 server that says exactly what a test wants it to say.
type peer struct {
	fr   *http2.Framer
	hbuf bytes.Buffer
	henc *hpack.Encoder
	head map[string]string // of the last request
	body []byte
}

// newPeer reads the client's preface and greets it.
func newPeer(c net.Conn, br *bufio.Reader, settings ...http2.Setting) *peer {
	_, _ = io.CopyN(io.Discard, br, int64(len(http2.ClientPreface)))
	p := &peer{fr: http2.NewFramer(c, br)}
	p.henc = hpack.NewEncoder(&p.hbuf)
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = p.fr.WriteSettings(settings...)
	return p
}

// open reads the head of the next request; whole tells that it has no body.
func (p *peer) open() (stream uint32, whole, ok bool) {
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			return 0, false, false
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = p.fr.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			p.head = map[string]string{}
			for _, h := range f.Fields {
				p.head[h.Name] = h.Value
			}
			p.body = nil
			return f.StreamID, f.StreamEnded(), true
		}
	}
}

// data reads the next piece of the body.
func (p *peer) data() (whole, ok bool) {
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			return false, false
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			p.body = append(p.body, f.Data()...)
			if n := uint32(len(f.Data())); n > 0 && !f.StreamEnded() {
				_ = p.fr.WriteWindowUpdate(0, n)
				_ = p.fr.WriteWindowUpdate(f.StreamID, n)
			}
			return f.StreamEnded(), true
		case *http2.MetaHeadersFrame:
			return f.StreamEnded(), true
		case *http2.RSTStreamFrame:
			return false, false
		}
	}
}

// request reads the next request to its end.
func (p *peer) request() (stream uint32, ok bool) {
	stream, whole, ok := p.open()
	for ok && !whole {
		whole, ok = p.data()
	}
	return stream, ok
}

// reply sends a block of headers.
func (p *peer) reply(stream uint32, end bool, fields ...string) {
	p.hbuf.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = p.henc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.hbuf.Bytes(), EndHeaders: true, EndStream: end})
}
