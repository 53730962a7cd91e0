package proxy

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// Headers are the names under which a write carries its fence.
type Headers struct{ JobID, Generation, Lease, Key string }

// DefaultHeaders returns the names of the protocol.
func DefaultHeaders() Headers {
	return Headers{JobID: wire.HeaderJobID, Generation: wire.HeaderGeneration, Lease: wire.HeaderLease, Key: wire.HeaderKey}
}

const (
	maxKey   = 255
	maxLease = 256
)

// fence is what the headers of a write say.
type fence struct {
	jobID      string
	generation tokens.Generation
	lease      string
	key        string
	// rawKey is the key as it was sent, to be echoed.
	rawKey string
}

// fenceReader reads fences. It is made once from the configured names.
type fenceReader struct {
	names [4]string // canonical: job, generation, lease, key
}

func newFenceReader(h Headers) *fenceReader {
	c := http.CanonicalHeaderKey
	return &fenceReader{names: [4]string{c(h.JobID), c(h.Generation), c(h.Lease), c(h.Key)}}
}

// read returns the fence of a request as it arrived, before any hop-by-hop handling.
// The error is errNoFence, or says which header is wrong and why; beside it the fence has
// what is well formed of job, generation and key, for the answer to name.
//
// Three ways to make two readers of one request see different fences are refused
// here: naming a fence header in Connection, so that the next hop drops it; spelling
// one with _ or . for -, which CGI-like upstreams take for the same; repeating one.
func (fr *fenceReader) read(h http.Header) (fence, error) {
	var f fence
	if err := fr.checkNames(h); err != nil {
		return f, err
	}
	f.key, f.rawKey = fr.key(h)
	var present [4]bool
	var values [4]string
	for i, name := range fr.names {
		v := h[name]
		if len(v) > 1 {
			return f, fmt.Errorf("%s is there %d times; send it once", name, len(v))
		}
		if len(v) == 1 {
			present[i], values[i] = true, v[0]
		}
	}
	var wrongJob, wrongGeneration error
	if present[0] {
		if wrongJob = tokens.CheckJobID(values[0]); wrongJob == nil {
			f.jobID = values[0]
		}
	}
	if present[1] {
		f.generation, wrongGeneration = tokens.ParseGeneration(values[1])
	}
	if !present[0] && !present[1] {
		if present[2] {
			return f, fmt.Errorf("%s is there without %s and %s", fr.names[2], fr.names[0], fr.names[1])
		}
		return f, errNoFence
	}
	if !present[0] || !present[1] {
		have, want := fr.names[0], fr.names[1]
		if !present[0] {
			have, want = want, have
		}
		return f, fmt.Errorf("%s is there without %s; a fenced write needs both", have, want)
	}
	if wrongJob != nil {
		return f, fmt.Errorf("%s: %w", fr.names[0], wrongJob)
	}
	if wrongGeneration != nil {
		return f, fmt.Errorf("%s: %w", fr.names[1], wrongGeneration)
	}
	if present[2] {
		if !visible(values[2], maxLease) {
			return f, fmt.Errorf("%s must be 1 to %d visible ASCII characters", fr.names[2], maxLease)
		}
		f.lease = values[2]
	}
	if present[3] && f.key == "" {
		return f, fmt.Errorf("%s must be 1 to %d visible ASCII characters", fr.names[3], maxKey)
	}
	return f, nil
}

// key returns the idempotency key of a request, and as it was sent. Both are empty if it has
// none, several, or a malformed one.
func (fr *fenceReader) key(h http.Header) (key, raw string) {
	if v := h[fr.names[3]]; len(v) == 1 {
		if key = parseKey(v[0]); key != "" {
			return key, v[0]
		}
	}
	return "", ""
}

// checkNames refuses aliases of fence headers and fence headers named in Connection.
func (fr *fenceReader) checkNames(h http.Header) error {
	for name := range h {
		if strings.IndexByte(name, '_') >= 0 || strings.IndexByte(name, '.') >= 0 {
			folded := strings.Map(dashed, name)
			for _, ours := range fr.names {
				if strings.EqualFold(folded, ours) {
					return fmt.Errorf("header %q looks like %s to some servers; send %s", name, ours, ours)
				}
			}
		}
	}
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			token = strings.TrimSpace(token)
			for _, ours := range fr.names {
				if strings.EqualFold(strings.Map(dashed, token), ours) {
					return fmt.Errorf("Connection names %s, which would hide it from the next hop", ours)
				}
			}
		}
	}
	return nil
}

// undisguised is the name that some servers take a header's for: _ and . count as - there.
func undisguised(name string) string {
	if strings.IndexByte(name, '_') < 0 && strings.IndexByte(name, '.') < 0 {
		return name
	}
	return http.CanonicalHeaderKey(strings.Map(dashed, name))
}

func dashed(r rune) rune {
	if r == '_' || r == '.' {
		return '-'
	}
	return r
}

// parseKey reads an idempotency key: bare, or as a quoted structured-field string
// (RFC 8941, section 3.3.3) of which one pair of quotes is stripped. It is empty if it is
// malformed.
func parseKey(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	if !visible(s, maxKey) {
		return ""
	}
	return s
}

// visible reports whether s is 1 to most bytes of 0x21-0x7E.
func visible(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
