//go:build unix

package main

import "syscall"

// mostCallers bounds the connections from callers, so that a flood of them leaves descriptors to the
// store and to the upstreams: a store that can not open a file takes no more writes. 0 means that
// nothing is known. The Go runtime has raised the limit to the hard one.
func mostCallers() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0
	}
	n := int(limit.Cur)
	return n - max(n/20, min(n/2, 64))
}
