package main

import "syscall"

// prSetChildSubreaper is PR_SET_CHILD_SUBREAPER of prctl(2).
const prSetChildSubreaper = 36

// groupOfItsOwn makes a process group, and the kernel end the program if this process dies. What the program has started
// is then left; it has lost its forwarder.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adopt makes this process the parent of orphans that the program leaves. In a container nobody else may reap them, and
// a group with a zombie in it seems to be alive.
func adopt() {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0) // an old kernel has none; they are init's then
}

// reap ends the zombies among the orphans of a group. Its program must have been waited for.
func reap(group int) {
	for {
		if pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}
