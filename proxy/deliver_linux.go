package proxy

import (
	"net"

	"golang.org/x/sys/unix"
)

// tcpClose is the state of a socket that is no connection any more (TCP_CLOSE of
// include/net/tcp_states.h).
const tcpClose = 7

// unread returns how many bytes of what was written to a connection its peer's kernel has
// not acknowledged, the end counted as one, and whether they may still be. known is false
// where the kernel does not say so. An error says that the connection was closed here.
func unread(c *net.TCPConn) (left int, open, known bool, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false, true, err
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		if left, asked = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); asked != nil || left == 0 {
			return
		}
		var info *unix.TCPInfo
		if info, asked = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); asked == nil {
			open = info.State != tcpClose
		}
	})
	if err == nil {
		err = asked
	}
	return left, open, true, err
}
