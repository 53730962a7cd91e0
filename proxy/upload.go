package proxy

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"
)

// upload is the body of a request on its way into the client, which reads and closes it in
// goroutines of its own.
type upload struct {
	body io.ReadCloser
	s    *Send
	conn *http2Conn // nil over HTTP/1
	// memory tells that the body is in memory: a buffer that is used again once the
	// upload was stopped.
	memory bool

	mu      sync.Mutex
	stopped bool
	begun   bool
	timer   *time.Timer
}

func newUpload(c *http2Conn, req *http.Request, s *Send) *upload {
	switch {
	case len(s.Body) > 0:
		return &upload{body: io.NopCloser(bytes.NewReader(s.Body)), s: s, conn: c, memory: true}
	case req.Body != nil:
		return &upload{body: req.Body, s: s, conn: c}
	}
	return nil
}

// Read implements io.Reader. The client comes back for more when the upstream has taken
// what it got. HTTP/2 has windows, so a write's deadline alone would not bound that.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	if u.stopped {
		u.mu.Unlock()
		return 0, errBody
	}
	u.begun = true
	if u.timer != nil {
		u.timer.Stop()
	}
	if u.memory {
		// With the lock, so that after stop nobody reads the buffer.
		defer u.mu.Unlock()
		n, err := u.body.Read(p)
		u.watch()
		return n, err
	}
	u.mu.Unlock()
	n, err := u.body.Read(p)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.stopped {
		u.watch()
	}
	return n, err
}

// watch bounds the time until the next piece is asked for.
func (u *upload) watch() {
	switch {
	case u.s.Window == 0 || u.conn == nil: // over HTTP/1 the deadline of a write bounds it
	case u.timer == nil:
		u.timer = time.AfterFunc(u.s.Window, u.expire)
	default:
		u.timer.Reset(u.s.Window)
	}
}

func (u *upload) expire() {
	if u.conn.unsent(u.s) {
		u.s.Cancel(errNotTaken)
		u.s.Abort()
	}
}

// Close implements io.Closer. The body itself is closed only if a byte of the request may
// have gone out: else it may be sent on another connection.
func (u *upload) Close() error {
	u.stop()
	if !u.s.begun() {
		return nil
	}
	u.mu.Lock()
	u.begun = true
	u.mu.Unlock()
	return u.body.Close()
}

// stop lets nobody read any more. It may be called on nil.
func (u *upload) stop() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = true
	if u.timer != nil {
		u.timer.Stop()
	}
}

// used reports whether the body can not be sent from its beginning any more.
func (u *upload) used() bool {
	if u == nil || u.memory {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.begun
}
