package framing

// maxDigits bounds the digits of a chunk's size, so that it fits 64 bits.
const maxDigits = 16

// body judges what follows a head: a counted body, or chunks (RFC 9112, section 7.1).
func (j *judge) body(p []byte, i int) int {
	for i < len(p) {
		c := p[i]
		switch j.state {
		case stateBody, stateData:
			n := min(uint64(len(p)-i), j.left)
			i += int(n)
			if j.left -= n; j.left > 0 {
				return i
			}
			if j.state == stateBody {
				j.ended()
				return i
			}
			j.state = stateDataCR
		case stateDataCR:
			if c != '\r' {
				return j.breakOff(FaultChunkEnd, i)
			}
			j.state = stateDataLF
			i++
		case stateDataLF:
			if c != '\n' {
				return j.breakOff(FaultChunkEnd, i)
			}
			j.state, j.left, j.digits = stateSize, 0, 0
			i++
		case stateSize:
			d := hexDigit(c)
			switch {
			case d < 16 && j.digits < maxDigits:
				j.left, j.digits = j.left<<4|uint64(d), j.digits+1
			case c == '\r' && j.digits > 0:
				j.state = stateSizeLF
			case c == ';' || c == ' ' || c == '\t':
				return j.breakOff(FaultChunkExtension, i)
			default:
				return j.breakOff(FaultChunkSize, i)
			}
			i++
		default:
			if c != '\n' {
				return j.breakOff(FaultChunkSize, i)
			}
			i++
			if j.left > 0 {
				j.state = stateData
				continue
			}
			j.state, j.trailer, j.size = stateLine, true, 0
			return i
		}
	}
	return i
}

// hexDigit is the value of a hexadecimal digit, or 16.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}
