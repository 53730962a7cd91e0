package framing

import "sync/atomic"

// DefaultMaxHead bounds a request's head if nothing else is said, in bytes.
const DefaultMaxHead = 1 << 20

// maxTrailers bounds all trailers of a request together, in bytes.
const maxTrailers = 64 << 10

// preface opens an HTTP/2 connection (RFC 9113, section 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// state is where in the stream the next byte stands.
type state uint8

const (
	statePreface state = iota // of HTTP/2, as far as it has matched
	stateStart
	stateMethod
	stateTarget
	stateVersion
	stateVersionCR
	stateVersionLF
	stateLine // at the beginning of a header or trailer
	stateName
	stateBlank // before a value
	stateValue
	stateLength
	stateCoding
	stateValueEnd // blanks after a value that counts
	stateLineEnd  // the LF of a header or trailer
	stateEndLF    // the LF of the empty line
	stateBody     // of known length
	stateSize     // of a chunk
	stateSizeLF
	stateData
	stateDataCR
	stateDataLF
	stateHeld      // after a request that asked for an upgrade
	statePass      // HTTP/2
	stateCondemned // in a head with a fault, up to where a lenient reader sees its end
	stateOver      // nothing is delivered any more
)

// inHead tells whether the bytes of a state count against the limit of a head or of trailers.
func (s state) inHead() bool { return s <= stateEndLF || s == stateCondemned }

// judge follows the bytes of one connection. It keeps no byte: only where it stands, what it has
// seen of the request, and up to longestField bytes of a header's name.
type judge struct {
	maxHead int
	state   state
	field   field // whose value is read
	line    lineState
	minor   byte // of the version
	keep    bool // the name may be one that counts
	digits  uint8
	trailer bool // the headers are trailers
	hold    bool // the request asks to leave HTTP/1
	seen    [fields]bool
	// at counts what has matched of a fixed text, or the bytes of a name.
	at     int
	name   [longestField]byte
	length uint64 // of the body, if it is known
	left   uint64 // to come of a body or chunk
	size   int    // of the head so far
	fresh  bool   // a head or the trailers have just ended

	// heads counts the heads that were found good, fault is what ended it. The handler
	// of a request asks for both while the next one is being received.
	heads atomic.Uint32
	fault atomic.Uint32
}

// scan judges the next bytes of the connection and returns how many of them may be delivered.
// Fewer than len(p) means that there was a fault, and nothing follows.
func (j *judge) scan(p []byte) int {
	i := 0
	for i < len(p) && j.state != stateOver {
		if !j.state.inHead() {
			if j.state == stateHeld || j.state == statePass {
				return len(p)
			}
			i = j.body(p, i)
			continue
		}
		room := j.maxHead - j.size
		if j.trailer {
			room = maxTrailers - j.size
		}
		if room <= 0 {
			return j.breakOff(FaultTooLarge, i)
		}
		from, piece := i, p[:min(len(p), i+room)]
		switch {
		case j.state == statePreface:
			i = j.opening(piece, i)
		case j.state < stateLine:
			i = j.requestLine(piece, i)
		case j.state == stateCondemned:
			i = j.condemned(piece, i)
		default:
			i = j.header(piece, i)
		}
		if j.size += i - from; j.fresh {
			j.fresh, j.size = false, 0 // it has just ended
		}
	}
	return i
}

// blame notes the fault. The first one counts.
func (j *judge) blame(f Fault) { j.fault.CompareAndSwap(0, uint32(f)) }

// breakOff ends the stream before the byte at i: for faults in bodies.
func (j *judge) breakOff(f Fault, i int) int {
	j.blame(f)
	j.state = stateOver
	return i
}

// opening compares the beginning of the connection with the preface of HTTP/2.
func (j *judge) opening(p []byte, i int) int {
	for i < len(p) && j.at < len(preface) && p[i] == preface[j.at] {
		i++
		j.at++
	}
	switch {
	case j.at == len(preface):
		j.state = statePass
	case i < len(p):
		// It is a request like others, of which this much was delivered already.
		matched := j.at
		j.begin()
		j.scan([]byte(preface[:matched]))
	}
	return i
}

// begin waits for the next request.
func (j *judge) begin() {
	j.state, j.at, j.size = stateStart, 0, 0
	j.trailer, j.hold, j.seen, j.length = false, false, [fields]bool{}, 0
}

// ended tells that the message is complete.
func (j *judge) ended() {
	if j.hold {
		j.blame(FaultNotJudged) // of whatever is taken for a request from here on
		j.state = stateHeld
		return
	}
	j.begin()
}
