//go:build !unix

package proxy

import "net"

// quiet can not look without reading here; a connection that was closed shows at the
// write.
func quiet(*net.TCPConn) bool { return true }
