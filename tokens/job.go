package tokens

import (
	"fmt"
	"strings"
)

const (
	// MaxJobID is the longest job id, in bytes.
	MaxJobID = 256
	// MaxGeneration is the highest generation, 2^53-1: the highest whole number
	// that every JSON reader keeps exact (RFC 8259, section 6).
	MaxGeneration Generation = 1<<53 - 1
	// EpochSize is how many generations an epoch holds.
	EpochSize Generation = 1 << 32
)

// Job names a unit of work. Two namespaces never share a floor. Jobs are compared
// byte for byte.
type Job struct {
	Namespace string
	ID        string
}

// String returns the job for logs and messages.
func (j Job) String() string {
	if j.Namespace == "" {
		return j.ID
	}
	return j.Namespace + "/" + j.ID
}

// CheckJobID returns nil if id is 1 to MaxJobID bytes of printable ASCII
// (0x21-0x7E) without comma, double quote and backslash: the bytes that no
// intermediary splits, folds or re-encodes in a header. Otherwise the error wraps
// ErrInvalidJobID and says what is wrong.
func CheckJobID(id string) error {
	if id == "" {
		return fmt.Errorf("%w: it is empty", ErrInvalidJobID)
	}
	if len(id) > MaxJobID {
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrInvalidJobID, len(id), MaxJobID)
	}
	for i := range len(id) {
		c := id[i]
		if c < 0x21 || c > 0x7e || c == ',' || c == '"' || c == '\\' {
			return fmt.Errorf("%w: byte %d is %q; printable ASCII without blank, comma, quote and backslash is allowed, percent-encode the rest",
				ErrInvalidJobID, i+1, string(rune(c)))
		}
	}
	return nil
}

// Generation numbers the holders of a job. It grows with every claim and is never
// used twice. Zero is no generation.
type Generation uint64

// ParseGeneration reads a canonical decimal generation: digits only, no sign, no
// leading zero, no blank, 1 to MaxGeneration. It does not allocate on success.
// Otherwise the error wraps ErrInvalidGeneration and says what is wrong.
func ParseGeneration(s string) (Generation, error) {
	if s == "" {
		return 0, fmt.Errorf("%w: it is empty", ErrInvalidGeneration)
	}
	if s[0] == '0' {
		return 0, fmt.Errorf("%w: %q; a generation begins with 1 and has no leading zero", ErrInvalidGeneration, clip(s))
	}
	if len(s) > len("9007199254740991") {
		return 0, fmt.Errorf("%w: %q; at most %d is allowed", ErrInvalidGeneration, clip(s), MaxGeneration)
	}
	var g Generation
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%w: %q; only decimal digits are allowed", ErrInvalidGeneration, clip(s))
		}
		g = g*10 + Generation(c-'0')
	}
	if g > MaxGeneration {
		return 0, fmt.Errorf("%w: %q; at most %d is allowed", ErrInvalidGeneration, clip(s), MaxGeneration)
	}
	return g, nil
}

// clip keeps hostile input short in messages.
func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Ended says how a generation ended.
type Ended string

// The ways in which a generation ends.
const (
	Superseded Ended = "superseded"
	Released   Ended = "released"
	Completed  Ended = "completed"
	Revoked    Ended = "revoked"
)

// Outcome is what is known about a write once it is settled.
type Outcome uint8

// The outcomes of an attempt.
const (
	// Applied: the upstream did it.
	Applied Outcome = iota + 1
	// Declined: the upstream answered that it did not do it.
	Declined
	// NotSent: no byte of it reached the upstream.
	NotSent
	// OutcomeUnknown: nobody knows.
	OutcomeUnknown
)

// String returns the outcome as it is written in headers, metrics and logs.
func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Declined:
		return "declined"
	case NotSent:
		return "not-sent"
	case OutcomeUnknown:
		return "unknown"
	}
	return ""
}
