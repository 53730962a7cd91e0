//go:build unix && (!linux || race || !(amd64 || arm64))

package socket

import "syscall"

// peek looks at the next byte that was received, without taking it.
func peek(fd uintptr, b []byte) (int, error) {
	n, _, err := syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n, err
}
