package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/framing"
)

// smallBody is the size of the pooled buffers, in bytes.
const smallBody = 4 << 10

// small holds buffers for the bodies of most writes.
var small = sync.Pool{New: func() any { b := make([]byte, 0, smallBody); return &b }}

// receive reads the body of a fenced write into memory, up to the route's buffer. whole
// tells that it ends there; otherwise the rest is still to be streamed. The error is
// errTooLarge, errStalled or wraps errBody.
func (ex *exchange) receive() (body []byte, whole bool, err error) {
	limit, length := ex.rt.BodyBuffer, ex.r.ContentLength
	if length == 0 || ex.r.Body == nil {
		return nil, true, nil
	}
	if ex.tooLong() {
		return nil, false, errTooLarge
	}
	if !ex.buffers() {
		return nil, false, nil
	}
	if !ex.receiving(true) {
		return nil, false, errBody
	}
	defer ex.noReadDeadline()
	ex.hush()
	ex.pooled = small.Get().(*[]byte)
	buf := (*ex.pooled)[:0]
	for {
		if int64(len(buf)) > limit {
			return buf, false, nil
		}
		if len(buf) == cap(buf) {
			// Grown as it comes, not by what the caller announces.
			size := min(max(2*cap(buf), smallBody), int(limit)+1+smallBody)
			if !ex.keep(size) {
				return buf, false, nil // the rest is streamed
			}
			grown := make([]byte, len(buf), size)
			copy(grown, buf)
			buf = grown
		}
		n, err := ex.readBody(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if m := ex.rt.BodyMax; m > 0 && int64(len(buf)) > m {
			return nil, false, errTooLarge
		}
		if err == io.EOF && len(ex.r.Trailer) > 0 {
			return buf, false, nil // there are trailers, though nobody announced them
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

// keep asks for memory for a body, size bytes in all. False means that the proxy keeps as
// much as it may: it takes bodies from whoever names a job, and callers can send them as
// slowly as they like.
func (ex *exchange) keep(size int) bool {
	more := int64(size) - ex.kept
	if ex.p.kept.Add(more) > ex.p.mostKept {
		ex.p.kept.Add(-more)
		return false
	}
	ex.kept += more
	return true
}

// tooLong reports whether the body is announced as larger than the route's limit.
func (ex *exchange) tooLong() bool {
	return ex.rt.BodyMax > 0 && ex.r.ContentLength > ex.rt.BodyMax
}

// buffers reports whether receive reads from the caller. A trailer can only follow a
// stream, and a gRPC call may go on only after it was answered.
func (ex *exchange) buffers() bool {
	most := ex.rt.BodyBuffer
	return most > 0 && !ex.grpc && ex.r.ContentLength <= most && len(ex.r.Trailer) == 0 && !ex.tooLong()
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

// hush keeps the server from looking ahead on the caller's connection, if nothing will be
// waited for that would end with the caller: then nobody cares whether it is there, and
// the look costs a goroutine and several calls of the kernel.
func (ex *exchange) hush() {
	if !ex.attempt.Calm || ex.keyed() || ex.rt.Observe || ex.r.ContentLength <= 0 {
		return
	}
	if ex.hushed = framing.ConnOf(ex.r.Context()); ex.hushed != nil {
		ex.hushed.Mute(true)
	}
}

// readBody reads a piece of the caller's body within the idle timeout.
func (ex *exchange) readBody(p []byte) (int, error) {
	idle := ex.rt.IdleTimeout
	if ex.hasty {
		idle = min(idle, partTime)
	}
	ex.boundRead(idle)
	n, err := ex.r.Body.Read(p)
	ex.pause.Stop() // what the upstream takes to take it is not the caller's pause
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errStalled
	}
	return n, errors.Join(errBody, err)
}

// boundRead bounds the next read from the caller; zero lifts the bound. One that struck
// when nobody read any more strikes nobody else, unless the exchange was stopped: then
// reads have to fail.
func (ex *exchange) boundRead(d time.Duration) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if d > 0 {
		ex.pause.Reset(d)
	} else {
		ex.pause.Stop()
	}
	if ex.muted && ex.cause == nil && !ex.over {
		ex.muted = false
		_ = ex.rc.SetReadDeadline(time.Time{}) // one could be set, so it can be lifted
	}
}

func (ex *exchange) noReadDeadline() { ex.boundRead(0) }

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
		for name, values := range s.ex.r.Trailer {
			if s.trailer != nil && s.ex.p.late(name) {
				s.trailer[name] = values
			}
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
