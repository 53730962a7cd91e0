//go:build unix

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	// pollGroup is how often a process group is asked whether it is still there: nothing reports the end of one.
	pollGroup = 5 * time.Millisecond
	// killLimit is how long to wait for processes that were killed: one in the middle of a system call may take long.
	killLimit = 2 * time.Second
)

// child is a program with a process group of its own.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the program has ended; what it started may still run
}

// startChild starts a program.
func startChild(cmd *exec.Cmd) (*child, error) {
	adopt()
	cmd.SysProcAttr = groupOfItsOwn()
	cmd.WaitDelay = killLimit // what it started may hold an output open that is not a file
	c := &child{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel ends the program when the thread that started it ends (golang/go#27505), so this one stays with
		// it.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ProcessState has what is wanted of it
			close(c.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	return c, nil
}

// code is the exit code as a shell has it. The program must have ended.
func (c *child) code() int {
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return exitOwn
	case status.Signaled():
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// pass sends on a signal. USR1 and USR2 are for the program alone: whatever it has started and has no handler would die.
func (c *child) pass(s syscall.Signal) {
	if s == syscall.SIGUSR1 || s == syscall.SIGUSR2 {
		_ = c.cmd.Process.Signal(s) // it may have ended
		return
	}
	c.toGroup(s)
}

func (c *child) toGroup(s syscall.Signal) {
	_ = syscall.Kill(-c.cmd.Process.Pid, s) // the group may have ended
}

// stop sends TERM to the group, KILL to what is left of it then, and reports whether all have ended.
func (c *child) stop(kill time.Time) bool {
	if c.ended() {
		return true
	}
	if time.Until(kill) > 0 {
		c.toGroup(syscall.SIGTERM)
		c.toGroup(syscall.SIGCONT) // or a stopped process would not see the TERM
		if c.await(kill, 0) {
			return true
		}
	}
	return c.await(time.Now().Add(killLimit), syscall.SIGKILL)
}

// await polls until the group has ended, and sends it a signal each time: a process may be in the middle of a fork.
func (c *child) await(limit time.Time, s syscall.Signal) bool {
	tick := time.NewTicker(pollGroup)
	defer tick.Stop()
	for {
		if s != 0 {
			c.toGroup(s)
		}
		if c.ended() {
			return true
		}
		left := time.Until(limit)
		if left <= 0 {
			return false
		}
		tick.Reset(min(pollGroup, left))
		<-tick.C
	}
}

// ended reports whether the program and all of its group have ended. The number of the group is not given to another one
// as long as it has a member, and after that nothing is sent to it.
func (c *child) ended() bool {
	select {
	case <-c.exited:
	default:
		return false
	}
	reap(c.cmd.Process.Pid)
	return errors.Is(syscall.Kill(-c.cmd.Process.Pid, 0), syscall.ESRCH)
}
