//go:build !race && (amd64 || arm64)

package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// conn is a TCP connection with reads and writes of its own.
type conn struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out call
}

// call is a read or a write that is under way.
type call struct {
	mu   sync.Mutex                   // one at a time, as in package net
	step func(fd uintptr) (over bool) // is called again when the socket is ready

	p     []byte
	n     int
	errno syscall.Errno
}

// New returns c, or what reads and writes it in another way.
func New(c *net.TCPConn) net.Conn {
	raw, err := c.SyscallConn()
	if err != nil {
		return c // which says what is wrong with it
	}
	out := &conn{TCPConn: c, raw: raw}
	out.in.step, out.out.step = out.in.read, out.out.write
	return out
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return c.TCPConn.Read(p)
	}
	k := &c.in
	k.mu.Lock()
	defer k.mu.Unlock()
	k.p, k.n, k.errno = p, 0, 0
	err := c.raw.Read(k.step)
	k.p = nil
	switch {
	case err != nil || k.errno != 0:
		return 0, c.failed("read", k.errno, err)
	case k.n == 0:
		return 0, io.EOF
	}
	return k.n, nil
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return c.TCPConn.Write(p)
	}
	k := &c.out
	k.mu.Lock()
	defer k.mu.Unlock()
	k.p, k.n, k.errno = p, 0, 0
	err := c.raw.Write(k.step)
	k.p = nil
	if err != nil || k.errno != 0 {
		return k.n, c.failed("write", k.errno, err)
	}
	return k.n, nil
}

func (k *call) read(fd uintptr) (over bool) {
	n, errno := ask(syscall.SYS_READ, fd, k.p)
	if errno == syscall.EAGAIN {
		return false
	}
	k.n, k.errno = n, errno
	return true
}

func (k *call) write(fd uintptr) (over bool) {
	for k.n < len(k.p) {
		n, errno := ask(syscall.SYS_WRITE, fd, k.p[k.n:])
		if errno == syscall.EAGAIN {
			return false
		}
		if errno != 0 {
			k.errno = errno
			return true
		}
		k.n += n
	}
	return true
}

// ask makes a call of the kernel on a socket that does not block. p is not empty.
func ask(trap, fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// failed is the error of package net for a call that the kernel refused with errno, or that
// ended with err before.
func (c *conn) failed(op string, errno syscall.Errno, err error) error {
	if errno == 0 {
		var own *net.OpError
		if errors.As(err, &own) {
			own.Op = op // it says raw-read
		}
		return err
	}
	return &net.OpError{
		Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(),
		Err: os.NewSyscallError(op, errno),
	}
}
