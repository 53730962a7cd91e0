//go:build unix

package main

import "syscall"

// mostCallers bounds the connections from callers of each listener, so that a flood of them leaves
// descriptors to the store, to the upstreams and to the other listener: a store that can not open a
// file takes no more writes, and workers that can not renew lose their leases. 0 means that nothing is
// known. The Go runtime has raised the limit to the hard one.
func mostCallers() (data, control int) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0, 0
	}
	return shareDescriptors(int(limit.Cur))
}

// shareDescriptors divides n descriptors: a twentieth is kept for the proxy itself, and a sixteenth is
// for callers of the control listener.
func shareDescriptors(n int) (data, control int) {
	own := max(n/20, min(n/2, 64))
	control = max(n/16, min(n/8, 32))
	return n - own - control, control
}
