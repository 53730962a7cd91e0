package upstream

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Deaf is a recording upstream whose accept queue is full: the kernel answers no further SYN, so a dial to it hangs until
// Release. Linux only in its effect: other kernels refuse instead of staying silent.
type Deaf struct {
	*Server
	once    sync.Once
	fillers []net.Conn
}

// NewDeaf opens a listener with the smallest queue there is and fills it.
func NewDeaf() (*Deaf, error) {
	lis, err := listenShort()
	if err != nil {
		return nil, fmt.Errorf("open deaf upstream: %w", err)
	}
	d := &Deaf{Server: newServer(lis)}
	for len(d.fillers) < 64 {
		c, err := net.DialTimeout("tcp", d.Addr(), 200*time.Millisecond)
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				return d, nil
			}
			d.Close()
			return nil, fmt.Errorf("fill the accept queue: %w", err)
		}
		d.fillers = append(d.fillers, c)
	}
	d.Close()
	return nil, fmt.Errorf("fill the accept queue: still open after %d connections", len(d.fillers))
}

// Fillers is how many accepted connections are the server's own stuffing; no byte is ever sent on them.
func (d *Deaf) Fillers() int { return len(d.fillers) }

// Release starts to accept. Dials that hang complete when the kernel repeats their SYN: after 1 s, 3 s, 7 s.
func (d *Deaf) Release() {
	d.once.Do(d.serve)
}

// Close ends the server and its stuffing.
func (d *Deaf) Close() {
	for _, c := range d.fillers {
		_ = c.Close() // nothing was sent on it and nobody reads it
	}
	d.Server.Close()
}

// listenShort listens on a loopback port with a backlog of 0, which package net has no way to ask for.
func listenShort() (net.Listener, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "deaf")
	defer file.Close() // FileListener works on a copy
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return net.FileListener(file)
}
