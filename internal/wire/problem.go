package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/fenceproxy/fenceproxy/tokens"
)

const (
	typePrefix = "urn:fenceproxy:"
	// maxProblem bounds what a client reads of a refusal, in bytes: a result of
	// MaxResult and everything else.
	maxProblem = 256 << 10
)

// Problem is a refusal as it travels (RFC 9457). The zero value of an optional field
// leaves it out.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says for people what was refused, why, and the way out.
	Detail string `json:"detail"`
	Code   string `json:"code"`
	JobID  string `json:"job_id,omitempty"`
	// Generation is the caller's; for lease-held and generation-mismatch it is
	// the current one.
	Generation tokens.Generation `json:"generation,omitempty"`
	Floor      tokens.Generation `json:"floor,omitempty"`
	// Retry is one of the Retry constants.
	Retry string `json:"retry"`

	// Ended says how the refused generation ended.
	Ended tokens.Ended `json:"ended,omitempty"`
	// Reason says how a lease was lost, "unknown" if nobody can tell.
	Reason string `json:"reason,omitempty"`
	// Owner and ExpiresIn (milliseconds) describe who holds the lease.
	Owner     string `json:"owner,omitempty"`
	ExpiresIn *int64 `json:"expires_in_ms,omitempty"`
	// Result is what the job was completed with.
	Result json.RawMessage `json:"result,omitempty"`
	// Field is the name of the field that is not valid.
	Field string `json:"field,omitempty"`
	// Outcome is what is known of an attempt that was made.
	Outcome string `json:"outcome,omitempty"`
	// About is what is known of the write under the key.
	About *Write `json:"write,omitempty"`
	// Headers are the names of the headers that a write needs.
	Headers []string `json:"headers,omitempty"`

	// RetryAfter is sent as the Retry-After header, in seconds rounded up.
	RetryAfter time.Duration `json:"-"`
}

// NewProblem returns a problem of the code.
func NewProblem(c Code, detail string) Problem {
	return Problem{Type: typePrefix + c.Name, Title: c.Title, Status: c.Status, Detail: detail, Code: c.Name, Retry: c.Retry}
}

// Write answers with the problem. It keeps the headers that are already set on w.
func (p Problem) Write(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(ceilSeconds(p.RetryAfter), 10))
	}
	WriteJSON(w, p.Status, TypeProblem, p)
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// WriteJSON answers with v as JSON without HTML escaping. Nothing that fenceproxy
// says about a lease may be answered from a cache later, so it is never stored.
func WriteJSON(w http.ResponseWriter, status int, mediaType string, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		// Only a stored result that is not JSON can get here.
		status, mediaType = CodeInternal.Status, TypeProblem
		body.Reset()
		_ = enc.Encode(NewProblem(CodeInternal, "the answer can not be written as JSON"))
	}
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the caller is gone; there is nobody to tell
}

// ReadProblem reads the refusal that a response carries. False means that it is no
// problem of fenceproxy's: something else answered. It does not close the body.
func ReadProblem(resp *http.Response) (Problem, bool) {
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || mediaType != TypeProblem {
		return Problem{}, false
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	if err != nil {
		return Problem{}, false
	}
	var p Problem
	if err := json.Unmarshal(body, &p); err != nil || p.Code == "" || p.Type != typePrefix+p.Code {
		return Problem{}, false
	}
	if s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31); err == nil {
		p.RetryAfter = time.Duration(s) * time.Second
	}
	return p, true
}
