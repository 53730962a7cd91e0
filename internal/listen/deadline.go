package listen

import (
	"errors"
	"os"
	"sync"
	"time"
)

// deadline is that of one direction of a connection. A server asks for several with each
// request, of which nearly none strikes, and setting one costs more than judging the
// request. So the connection below keeps the earliest of those that were asked for, and
// is given the last one when that strikes. None strikes early, and none late.
type deadline struct {
	set func(time.Time) error // on the connection below

	mu    sync.Mutex
	asked time.Time // zero for none
	below time.Time // never after asked; zero for none
}

// ask makes t the deadline from now on.
func (d *deadline) ask(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = t
	if !d.below.IsZero() && (t.IsZero() || !t.Before(d.below)) {
		return nil
	}
	d.below = t
	return d.set(t)
}

// goOn reports whether a call that ended with err may go on, because what struck was not
// the deadline that counts; that one is set then.
func (d *deadline) goOn(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.asked.IsZero() && !time.Now().Before(d.asked) {
		return false
	}
	d.below = d.asked
	return d.set(d.asked) == nil
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err == nil || n > 0 || !c.read.goOn(err) {
			return n, err
		}
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (n int, err error) {
	for {
		k, err := c.Conn.Write(p[n:])
		if n += k; err == nil || !c.write.goOn(err) {
			return n, err
		}
	}
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.read.ask(t), c.write.ask(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.read.ask(t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.write.ask(t) }
