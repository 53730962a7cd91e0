//go:build !race && (amd64 || arm64)

package socket

import (
	"syscall"
	"unsafe"
)

// peek looks at the next byte that was received, without taking it. b is not empty.
func peek(fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
