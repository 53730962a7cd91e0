//go:build !linux

package daemon

import "syscall"

// dieWithParent has no effect here: only Linux can tie a child to its parent.
func dieWithParent() *syscall.SysProcAttr { return nil }
