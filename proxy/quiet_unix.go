//go:build unix

package proxy

import (
	"net"
	"syscall"
)

// quiet reports whether an unused connection is still open and has nothing to say. It
// does not block. A write on a connection that the upstream has just closed would have
// an unknown outcome for no reason.
func quiet(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	// Control and not Read: http.Transport has a Read under way on every idle
	// connection, and Read would wait for that one's lock.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ok = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
	})
	return err == nil && ok
}
