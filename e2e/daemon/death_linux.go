package daemon

import "syscall"

// dieWithParent makes the kernel end the child when the test process dies, for example by its timeout.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
