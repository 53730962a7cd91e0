package framing

import (
	"encoding/binary"
	"math/bits"
)

// tokens maps the bytes of a token (RFC 9110, section 5.6.2) to their lower case, others to 0.
var tokens = func() (t [256]byte) {
	for c := '0'; c <= '9'; c++ {
		t[c] = byte(c)
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = byte(c), byte(c)
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		t[c] = c
	}
	return t
}()

// textLength counts the bytes at the beginning of p that are at least min and not DEL. Eight are
// compared at a time; min is at most 0x80.
func textLength(p []byte, least byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	n := 0
	for below := ones * uint64(least); len(p)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(p[n:])
		del := x ^ ones*0x7f
		// The lowest byte that is marked is one; those above it may be marked by a borrow.
		if m := ((x-below)&^x | (del-ones)&^del) & highs; m != 0 {
			return n + bits.TrailingZeros64(m)/8
		}
	}
	for n < len(p) && p[n] >= least && p[n] != 0x7f {
		n++
	}
	return n
}
