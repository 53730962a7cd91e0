package proxy

import "encoding/binary"

// What of RFC 9113 has to be known to follow the frames of a connection: sections 4.1
// (the header of a frame), 6 (types and flags) and 7 (error codes).
const (
	frameHeader = 9 // bytes
	// prefaceSize is the length of what a client says first (section 3.4).
	prefaceSize = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameSettings     = 0x4
	frameGoAway       = 0x7
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagAck        = 0x1 // of SETTINGS
	flagEndHeaders = 0x4

	refusedStream = 0x7
)

// frameHead is the header of a frame.
type frameHead struct {
	kind, flags byte
	stream      uint32
	length      int
}

func readFrameHead(b []byte) frameHead {
	return frameHead{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   b[3], flags: b[4],
		stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31),
	}
}

// ofRequest tells the frames that carry a request (section 8.1) from those that only
// keep the connection going: SETTINGS, PING, WINDOW_UPDATE, GOAWAY, RST_STREAM.
func (f frameHead) ofRequest() bool {
	return f.kind == frameData || f.kind == frameHeaders || f.kind == frameContinuation
}

// outgoing follows what is written to an HTTP/2 connection. It keeps its place between
// two writes, for a write may end anywhere in a frame.
type outgoing struct {
	preface int       // bytes of the preface that were written
	f       frameHead // the present one
	left    int       // bytes of it to come
	ending  bool      // the request ends with the present header block
	// agreed tells that the upstream's SETTINGS were acknowledged, which the client
	// does when it has taken them in.
	agreed bool
}

// run is a piece of a write that is of one sort.
type run struct {
	n       int
	request bool
	stream  uint32 // of the request
	// last tells that the run ends with the last byte of the request.
	last bool
}

// next takes the longest run off the beginning of b. A run of no bytes means that b
// ends within the header of a frame, so that nobody can say what it is.
func (o *outgoing) next(b []byte) (r run) {
	if k := min(prefaceSize-o.preface, len(b)); k > 0 {
		o.preface += k
		r.n = k
	}
	for r.n < len(b) {
		if o.left > 0 {
			if !r.takes(o.f) {
				return r
			}
			k := min(o.left, len(b)-r.n)
			o.left -= k
			r.n += k
		} else {
			if len(b)-r.n < frameHeader {
				return r
			}
			f := readFrameHead(b[r.n:])
			if !r.takes(f) {
				return r
			}
			o.begin(f)
			r.n += frameHeader
		}
		if o.left == 0 && o.ends() {
			r.last = true
			return r
		}
	}
	return r
}

// takes reports whether bytes of f belong to the run, and makes it one of theirs if it
// is empty.
func (r *run) takes(f frameHead) bool {
	if r.n == 0 {
		r.request = f.ofRequest()
		if r.request {
			r.stream = f.stream
		}
		return true
	}
	return r.request == f.ofRequest() && (!r.request || r.stream == f.stream)
}

func (o *outgoing) begin(f frameHead) {
	o.f, o.left = f, f.length
	if f.kind == frameHeaders {
		// Its END_STREAM holds for the CONTINUATION frames behind it as well.
		o.ending = f.flags&flagEndStream != 0
	}
	o.agreed = o.agreed || f.kind == frameSettings && f.flags&flagAck != 0
}

// ends reports whether the request ends with the present frame.
func (o *outgoing) ends() bool {
	switch o.f.kind {
	case frameData:
		return o.f.flags&flagEndStream != 0
	case frameHeaders, frameContinuation:
		return o.ending && o.f.flags&flagEndHeaders != 0
	}
	return false
}

// incoming follows what is read from an HTTP/2 connection and tells what it says about
// streams. What it does not understand it leaves to the client.
type incoming struct {
	head [frameHeader]byte
	have int // bytes of head
	f    frameHead
	left int     // bytes of the payload to come
	body [8]byte // the beginning of the payload
	got  int     // bytes of body
}

// listener hears what an upstream says about its connection and about streams.
type listener interface {
	// heard is called when a part of the reply on a stream has come.
	heard(stream uint32)
	// ended is called when the reply on a stream has ended.
	ended(stream uint32)
	// reset is called for RST_STREAM, with its error code.
	reset(stream, code uint32)
	// goAway is called with the last stream that the upstream may have acted on.
	goAway(last uint32)
}

// read follows b.
func (i *incoming) read(b []byte, to listener) {
	for len(b) > 0 {
		if i.have < frameHeader {
			k := copy(i.head[i.have:], b)
			i.have += k
			b = b[k:]
			if i.have < frameHeader {
				return
			}
			i.f, i.got = readFrameHead(i.head[:]), 0
			i.left = i.f.length
		}
		k := min(i.left, len(b))
		if i.f.kind == frameReset || i.f.kind == frameGoAway {
			i.got += copy(i.body[i.got:], b[:k])
		}
		i.left -= k
		b = b[k:]
		if i.left == 0 {
			i.have = 0
			i.tell(to)
		}
	}
}

// tell tells what the frame that was read to its end means.
func (i *incoming) tell(to listener) {
	switch f := i.f; {
	case f.kind == frameReset && i.got >= 4:
		to.reset(f.stream, binary.BigEndian.Uint32(i.body[:]))
	case f.kind == frameGoAway && i.got >= 8:
		to.goAway(binary.BigEndian.Uint32(i.body[:]) &^ (1 << 31))
	case f.kind == frameHeaders || f.kind == frameData:
		to.heard(f.stream)
		if f.flags&flagEndStream != 0 {
			to.ended(f.stream)
		}
	}
}
