package upstream

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
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
	for tries, timedOut := 0, false; !d.full(timedOut); tries++ {
		c, err := net.DialTimeout("tcp", d.Addr(), 200*time.Millisecond)
		var timeout net.Error
		switch timedOut = errors.As(err, &timeout) && timeout.Timeout(); {
		case err == nil:
			d.fillers = append(d.fillers, c)
		case !timedOut || tries == 64:
			d.Close()
			return nil, fmt.Errorf("fill the accept queue: %d connections, %w", len(d.fillers), err)
		}
	}
	return d, nil
}

// full tells whether the accept queue has no room, by the kernel's own table where there is one: a dial that took its time
// may be that of a busy machine.
func (d *Deaf) full(timedOut bool) bool {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return timedOut
	}
	const listening, none = "0A", "00000000"
	_, port, _ := strings.Cut(d.Addr(), ":")
	n, _ := strconv.ParseUint(port, 10, 16) // the address is ours
	local := fmt.Sprintf("0100007F:%04X", n)
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // number, local, remote, state, lengths of the queues
		if len(f) > 4 && f[1] == local && f[3] == listening {
			_, waiting, _ := strings.Cut(f[4], ":")
			return waiting != none
		}
	}
	return false
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
