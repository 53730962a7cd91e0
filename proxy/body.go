package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// smallBody is the size of the pooled buffers, in bytes.
const smallBody = 4 << 10

// small holds buffers for the bodies of most writes.
var small = sync.Pool{New: func() any { b := make([]byte, 0, smallBody); return &b }}

// receive reads the body of a fenced write into memory, up to the route's buffer. whole
// tells that it ends there; otherwise the rest is still to be streamed. The error is
// errTooLarge, errStalled or wraps errBody.
func (ex *exchange) receive() (body []byte, whole bool, err error) {
	if ex.grpc {
		return nil, false, nil // a stream may go on only after it was answered
	}
	limit, length := ex.rt.BodyBuffer, ex.r.ContentLength
	if length == 0 || ex.r.Body == nil {
		return nil, true, nil
	}
	if len(ex.r.Trailer) > 0 {
		return nil, false, nil // trailers can only follow a stream
	}
	if m := ex.rt.BodyMax; m > 0 && length > m {
		return nil, false, errTooLarge
	}
	if length > limit {
		return nil, false, nil
	}
	if !ex.receiving(true) {
		return nil, false, errBody
	}
	defer ex.noReadDeadline()
	ex.pooled = small.Get().(*[]byte)
	buf := (*ex.pooled)[:0]
	for {
		if int64(len(buf)) > limit {
			return buf, false, nil
		}
		if len(buf) == cap(buf) {
			// Grown as it comes, not by what the caller announces.
			grown := make([]byte, len(buf), min(max(2*cap(buf), smallBody), int(limit)+1+smallBody))
			copy(grown, buf)
			buf = grown
		}
		n, err := ex.readBody(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if m := ex.rt.BodyMax; m > 0 && int64(len(buf)) > m {
			return nil, false, errTooLarge
		}
		if err == io.EOF || err == nil && int64(len(buf)) == length {
			ex.receiving(false)
			ex.whole = true
			return buf, true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
}

// received reports whether the caller's body was read to its end.
func (ex *exchange) received() bool {
	if s := ex.stream; s != nil {
		select {
		case <-s.done:
			return s.whole
		default:
			return false
		}
	}
	return ex.whole || ex.r.ContentLength == 0
}

// readBody reads a piece of the caller's body within the idle timeout.
func (ex *exchange) readBody(p []byte) (int, error) {
	idle := ex.rt.IdleTimeout
	if ex.hasty {
		idle = min(idle, partTime)
	}
	ex.readDeadline(time.Now().Add(idle))
	n, err := ex.r.Body.Read(p)
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errStalled
	}
	return n, errors.Join(errBody, err)
}

// readDeadline bounds the next reads from the caller, unless the exchange was stopped:
// then they have to fail.
func (ex *exchange) readDeadline(t time.Time) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.cause == nil && !ex.over {
		_ = ex.rc.SetReadDeadline(t) // a transport without deadlines has its own bounds
	}
}

func (ex *exchange) noReadDeadline() { ex.readDeadline(time.Time{}) }

// stream is a body that is passed on while it is received. The transport reads and
// closes it in goroutines of its own.
type stream struct {
	ex     *exchange
	prefix []byte // what was received before
	total  int64
	// trailer is the outgoing request's; it is filled when the body has ended.
	trailer http.Header
	once    sync.Once
	// done is closed when the transport will not read any more.
	done chan struct{}
	// whole tells, once done is closed, that the body was read to its end.
	whole bool
}

func newStream(ex *exchange, prefix []byte) *stream {
	ex.receiving(true)
	return &stream{ex: ex, prefix: prefix, total: int64(len(prefix)), done: make(chan struct{})}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	select {
	case <-s.done:
		// The transport looks for more than there was. By now the handler uses
		// the digest.
		if s.whole {
			return 0, io.EOF
		}
		return 0, errBody
	default:
	}
	s.ex.send.bodyBegins(s.ex.r.ContentLength)
	if len(s.prefix) > 0 {
		n := copy(p, s.prefix)
		s.prefix = s.prefix[n:]
		return n, nil
	}
	n, err := s.ex.readBody(p)
	s.total += int64(n)
	if s.ex.digest != nil {
		_, _ = s.ex.digest.Write(p[:n]) // a hash does not fail
	}
	if m := s.ex.rt.BodyMax; m > 0 && s.total > m {
		err = errTooLarge
	}
	if err == nil {
		return n, nil
	}
	if err == io.EOF {
		s.ex.receiving(false)
		s.ex.noReadDeadline()
		for name := range s.trailer {
			s.trailer[name] = s.ex.r.Trailer[name]
		}
	} else {
		// The upstream must never take a broken body for a whole one.
		s.ex.stop(err)
	}
	s.end(err == io.EOF)
	return n, err
}

// Close implements io.Closer. The caller's body is not closed: the server does that.
func (s *stream) Close() error {
	s.end(false)
	return nil
}

func (s *stream) end(whole bool) {
	s.once.Do(func() {
		s.whole = whole
		close(s.done)
	})
}
