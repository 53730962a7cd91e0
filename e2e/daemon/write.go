package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"

	"github.com/fenceproxy/fenceproxy/e2e/upstream"
)

// Write is one fenced write. The zero value of each field means "leave it out", of Method POST and of Path /charge.
type Write struct {
	Method     string
	Path       string
	Job        string
	Generation uint64
	Lease      string
	Key        string
	ID         string // the test's name for this write
	Do         string // how the upstream is to behave
	Body       []byte
	Stream     io.Reader   // instead of Body: sent chunked, as it comes
	Header     http.Header // added as they are
	Trailer    http.Header // sent after a Stream
}

// Answer is what the caller of a write got.
type Answer struct {
	Status        int
	Header        http.Header
	Trailer       http.Header
	Informational []textproto.MIMEHeader // heads of the 1xx answers before
	Raw           []byte
	Problem       Fields // the body, if it is a JSON object; numbers are json.Number
	ContentLength int64  // as announced; -1 if it was not
}

// Decision is the Fence-Decision header.
func (a Answer) Decision() string { return a.Header.Get("Fence-Decision") }

// Reason is the Fence-Reason header.
func (a Answer) Reason() string { return a.Header.Get("Fence-Reason") }

// Outcome is the Fence-Outcome header.
func (a Answer) Outcome() string { return a.Header.Get("Fence-Outcome") }

// Floor is the job's floor that the answer tells, 0 if it tells none.
func (a Answer) Floor() uint64 {
	n, err := strconv.ParseUint(a.Header.Get("Fence-Generation"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Text is a string member of the problem, or "".
func (a Answer) Text(name string) string { s, _ := a.Problem[name].(string); return s }

// Member is an object among the problem's members, or nil.
func (a Answer) Member(name string) Fields { f, _ := a.Problem[name].(Fields); return f }

// Number is a whole number among the problem's members, or -1.
func (a Answer) Number(name string) int64 { return number(a.Problem[name]) }

// Writer sends fenced writes. It never sends one twice: every request has a body that cannot be rewound, and no connection is
// used again unless KeepAlive was asked for. Safe for concurrent use.
type Writer struct {
	base      string
	transport *http.Transport
}

// Writer makes one for the process that runs now; after a restart make another.
func (d *Daemon) Writer(keepAlive bool) *Writer {
	w := NewWriter(d.Data())
	w.transport.DisableKeepAlives = !keepAlive
	return w
}

// NewWriter makes one for any base URL, for example the upstream's own, to compare. It uses no connection twice.
func NewWriter(base string) *Writer {
	return &Writer{base: base, transport: &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		MaxIdleConns:       128,
		// A worker of a load test keeps its connection while it pauses.
		MaxIdleConnsPerHost: 128,
	}}
}

// KeepAlive lets connections be used again.
func (w *Writer) KeepAlive() *Writer {
	w.transport.DisableKeepAlives = false
	return w
}

// Close drops idle connections.
func (w *Writer) Close() { w.transport.CloseIdleConnections() }

// Send sends one write and reads the whole answer. The error says that no whole answer came.
func (w *Writer) Send(ctx context.Context, write Write) (Answer, error) {
	var a Answer
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, head textproto.MIMEHeader) error {
			a.Informational = append(a.Informational, head)
			return nil
		},
	})
	r, err := write.request(ctx, w.base)
	if err != nil {
		return Answer{}, err
	}
	if stream, ok := write.Stream.(io.Closer); ok {
		// net/http waits for the body even after ctx has ended.
		stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
		defer stop()
	}
	res, err := w.transport.RoundTrip(r) // not http.Client, which would follow redirects
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	a.Status, a.Header, a.ContentLength = res.StatusCode, res.Header, res.ContentLength
	if a.Raw, err = io.ReadAll(res.Body); err != nil {
		return a, fmt.Errorf("read answer: %w", err)
	}
	a.Trailer, a.Problem = res.Trailer, object(a.Raw)
	return a, nil
}

// once hides the type of a body from net/http, which would otherwise learn to rewind it.
type once struct{ io.Reader }

// Close ends a stream that can be ended, so that a request given up frees whoever feeds it.
func (o once) Close() error {
	if c, ok := o.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (write Write) request(ctx context.Context, base string) (*http.Request, error) {
	body := io.Reader(once{bytes.NewReader(write.Body)})
	if write.Stream != nil {
		body = once{write.Stream}
	}
	r, err := http.NewRequestWithContext(ctx, or(write.Method, http.MethodPost), base+or(write.Path, "/charge"), body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	r.ContentLength = int64(len(write.Body))
	if write.Stream != nil {
		r.ContentLength = -1
		r.Trailer = write.Trailer
	} else if len(write.Body) == 0 {
		r.Body = http.NoBody // announces Content-Length: 0
	}
	for name, values := range write.Head() {
		r.Header[name] = values
	}
	return r, nil
}

// Head is the header of the write, for tests that speak to the socket themselves.
func (write Write) Head() http.Header {
	h := http.Header{}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set("Fence-Job-Id", write.Job)
	set("Fence-Lease", write.Lease)
	set("Idempotency-Key", write.Key)
	set(upstream.HeaderJob, write.Job)
	set(upstream.HeaderID, write.ID)
	set(upstream.HeaderDo, write.Do)
	set(upstream.HeaderKey, write.Key)
	if write.Generation != 0 {
		generation := strconv.FormatUint(write.Generation, 10)
		set("Fence-Generation", generation)
		set(upstream.HeaderGeneration, generation)
	}
	for name, values := range write.Header {
		h[name] = append(h[name], values...)
	}
	return h
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
