package framing

import "math"

// field is a header that decides where a request ends or who speaks on its connection.
type field uint8

const (
	fieldOther field = iota
	fieldLength
	fieldCoding
	fieldHost
	fieldUpgrade
	fields
)

const (
	longestField = len("transfer-encoding")
	codingValue  = "chunked"
)

// named decides what a name that was read means.
func (j *judge) named() Fault {
	j.field = fieldOther
	if !j.keep || j.at > longestField {
		return noFault
	}
	f, exact := lookup(j.name[:j.at])
	switch {
	case f == fieldOther:
		return noFault
	case !exact:
		return FaultAlias
	case j.trailer:
		return FaultTrailer
	}
	if j.field = f; j.seen[f] {
		return FaultRepeated
	}
	j.seen[f] = true
	if f == fieldUpgrade {
		j.hold = true
	}
	return noFault
}

// lookup finds a field by its lower-case name. exact is false if only a server that takes _ or .
// for a dash would find it.
func lookup(name []byte) (f field, exact bool) {
	var is string
	switch len(name) {
	case len("host"):
		f, is = fieldHost, "host"
	case len("upgrade"):
		f, is = fieldUpgrade, "upgrade"
	case len("content-length"):
		f, is = fieldLength, "content-length"
	case len("transfer-encoding"):
		f, is = fieldCoding, "transfer-encoding"
	default:
		return fieldOther, false
	}
	exact = true
	for i, c := range name {
		if c == is[i] {
			continue
		}
		if is[i] != '-' || c != '_' && c != '.' {
			return fieldOther, false
		}
		exact = false
	}
	return f, exact
}

// fieldValue judges a byte of a length or of a transfer coding.
func (j *judge) fieldValue(c byte) Fault {
	f := FaultLength
	if j.field == fieldCoding {
		f = FaultCoding
	}
	switch {
	case c == '\n':
		return FaultLineEnd
	case c == '\r':
		if j.state == stateLength && j.digits == 0 || j.state == stateCoding && j.at < len(codingValue) {
			return f
		}
		j.state = stateLineEnd
		return noFault
	case c == ' ' || c == '\t':
		if j.state == stateCoding && j.at < len(codingValue) || j.state == stateLength && j.digits == 0 {
			return f
		}
		j.state = stateValueEnd
		return noFault
	case j.state == stateLength && '0' <= c && c <= '9':
		d := uint64(c - '0')
		if j.length > (math.MaxInt64-d)/10 {
			return f
		}
		j.length, j.digits = j.length*10+d, 1
		return noFault
	case j.state == stateCoding && j.at < len(codingValue) && tokens[c] == codingValue[j.at]:
		j.at++
		return noFault
	}
	return f
}
