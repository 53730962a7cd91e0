package framing

// version is what the name of every version that is judged begins with.
const version = "HTTP/1."

// lineState is how a reader that takes LF for a line's end sees the present line.
type lineState uint8

const (
	lineEmpty lineState = iota
	lineText
	lineCR // nothing but a CR so far
)

// condemn notes a fault in a head. The byte at i has not been delivered; line says how a lenient
// reader sees the line before it. From here on the head is delivered up to where net/http may see
// its end, so that its handler can answer.
func (j *judge) condemn(f Fault, i int, line lineState) int {
	if j.trailer || f == FaultRequestLine || f == FaultCoding || f == FaultRepeated && j.field == fieldCoding {
		// Some of these net/http would answer itself, with a 501 or 505. Broken off, they
		// are its 400.
		return j.breakOff(f, i)
	}
	j.blame(f)
	j.state, j.line = stateCondemned, line
	return i
}

// condemned looks for the end of a head that has a fault: an empty line, with or without CR.
func (j *judge) condemned(p []byte, i int) int {
	for ; i < len(p); i++ {
		switch {
		case p[i] == '\n' && j.line != lineText:
			j.state = stateOver
			return i + 1
		case p[i] == '\n':
			j.line = lineEmpty
		case p[i] == '\r' && j.line == lineEmpty:
			j.line = lineCR
		default:
			j.line = lineText
		}
	}
	return i
}

// requestLine judges the first line of a head (RFC 9112, section 3).
func (j *judge) requestLine(p []byte, i int) int {
	for i < len(p) {
		c := p[i]
		switch j.state {
		case stateStart:
			switch {
			case c == '\r' || c == '\n':
				return j.breakOff(FaultEmptyLine, i)
			case tokens[c] == 0:
				return j.condemn(FaultRequestLine, i, lineEmpty)
			}
			// A method other than CONNECT leaves it at 0 or ends elsewhere.
			j.state, j.at = stateMethod, 0
		case stateMethod:
			const connect = "CONNECT"
			for i < len(p) && tokens[p[i]] != 0 {
				if j.at >= 0 && j.at < len(connect) && p[i] == connect[j.at] {
					j.at++
				} else {
					j.at = -1
				}
				i++
			}
			if i == len(p) {
				return i
			}
			if p[i] != ' ' {
				return j.condemn(FaultRequestLine, i, lineText)
			}
			j.hold = j.at == len(connect)
			j.state, j.at = stateTarget, 0
			i++
		case stateTarget:
			n := textLength(p[i:], 0x21)
			i, j.at = i+n, j.at+n
			if i == len(p) {
				return i
			}
			if p[i] != ' ' || j.at == 0 {
				return j.condemn(FaultRequestLine, i, lineText)
			}
			j.state, j.at = stateVersion, 0
			i++
		case stateVersion:
			switch {
			case j.at < len(version) && c == version[j.at]:
				j.at++
			case j.at == len(version) && (c == '0' || c == '1'):
				j.minor, j.state = c-'0', stateVersionCR
			default:
				return j.condemn(FaultRequestLine, i, lineText)
			}
			i++
		case stateVersionCR:
			switch c {
			case '\r':
				j.state = stateVersionLF
			case '\n':
				return j.condemn(FaultLineEnd, i, lineText)
			default:
				return j.condemn(FaultRequestLine, i, lineText)
			}
			i++
		default:
			if c != '\n' {
				return j.condemn(FaultLineEnd, i, lineText)
			}
			j.state = stateLine
			return i + 1
		}
	}
	return i
}

// header judges headers and trailers, and the empty line after them.
func (j *judge) header(p []byte, i int) int {
	for i < len(p) {
		c := p[i]
		switch j.state {
		case stateLine:
			t := tokens[c]
			switch {
			case t != 0:
			case c == '\r':
				j.state = stateEndLF
				i++
				continue
			case c == '\n':
				return j.condemn(FaultLineEnd, i, lineEmpty)
			case c == ' ' || c == '\t':
				return j.condemn(FaultFold, i, lineEmpty)
			default:
				return j.condemn(FaultName, i, lineEmpty)
			}
			j.state, j.at = stateName, 0
			j.keep = t == 'c' || t == 't' || t == 'h' || t == 'u'
			fallthrough
		case stateName:
			if i = j.readName(p, i); i == len(p) {
				return i
			}
			switch p[i] {
			case ':':
			case ' ', '\t':
				return j.condemn(FaultBlankName, i, lineText)
			default:
				return j.condemn(FaultName, i, lineText)
			}
			if f := j.named(); f != noFault {
				return j.condemn(f, i, lineText)
			}
			j.state = stateBlank
			if i++; i == len(p) {
				return i
			}
			fallthrough
		case stateBlank:
			for p[i] == ' ' || p[i] == '\t' {
				if i++; i == len(p) {
					return i
				}
			}
			j.at, j.digits, j.state = 0, 0, stateValue
			if j.field == fieldLength {
				j.state = stateLength
				continue
			} else if j.field == fieldCoding {
				j.state = stateCoding
				continue
			}
			fallthrough
		case stateValue:
			if i += textLength(p[i:], 0x20); i == len(p) {
				return i
			}
			switch p[i] {
			case '\r':
				j.state = stateLineEnd
				if i+1 < len(p) && p[i+1] == '\n' { // as nearly always
					j.state = stateLine
					i++
				}
			case '\t':
			case '\n':
				return j.condemn(FaultLineEnd, i, lineText)
			default:
				return j.condemn(FaultControl, i, lineText)
			}
			i++
		case stateLineEnd:
			if c != '\n' {
				return j.condemn(FaultLineEnd, i, lineText)
			}
			j.state = stateLine
			i++
		case stateEndLF:
			if c != '\n' {
				return j.condemn(FaultLineEnd, i, lineCR)
			}
			if f := j.headEnds(); f != noFault {
				return j.condemn(f, i, lineCR)
			}
			return i + 1
		default:
			f := j.fieldValue(c)
			if f != noFault {
				return j.condemn(f, i, lineText)
			}
			i++
		}
	}
	return i
}

// readName reads on in a name and returns where it ends or p does.
func (j *judge) readName(p []byte, i int) int {
	if !j.keep {
		for i < len(p) && tokens[p[i]] != 0 {
			i++
		}
		return i
	}
	for ; i < len(p) && tokens[p[i]] != 0; i++ {
		if j.at < longestField {
			j.name[j.at] = tokens[p[i]]
		}
		j.at++
	}
	return i
}

// headEnds judges a head as a whole when it has ended, and decides what follows. A body that has
// no length is none (RFC 9112, section 6.3).
func (j *judge) headEnds() Fault {
	j.fresh = true
	if j.trailer {
		j.ended()
		return noFault
	}
	chunked := j.seen[fieldCoding]
	switch {
	case chunked && j.seen[fieldLength]:
		return FaultBothLengths
	case chunked && j.minor == 0:
		return FaultCoding
	case !j.seen[fieldHost] && j.minor == 1:
		return FaultHost
	}
	j.heads.Add(1)
	switch {
	case chunked:
		j.state, j.left, j.digits = stateSize, 0, 0
	case j.length > 0:
		j.state, j.left = stateBody, j.length
	default:
		j.ended()
	}
	return noFault
}
