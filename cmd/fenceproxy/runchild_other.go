//go:build unix && !linux

package main

import "syscall"

// groupOfItsOwn makes a process group. Only Linux can tie the program's life to that of this process.
func groupOfItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func adopt() {}

func reap(int) {}
