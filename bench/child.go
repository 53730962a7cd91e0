package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startLimit bounds a child's start; generous, the machine may be busy.
const startLimit = 30 * time.Second

// child is a process of the bench. It is used by one goroutine.
type child struct {
	cmd  *exec.Cmd
	addr string
	// control is the address of the real program's control listener.
	control string
	// lines is what it prints. It is closed when the child has ended.
	lines chan string
	errs  bytes.Buffer
}

// startChild starts a program whose lines are read until the end. ctx ends it.
func startChild(ctx context.Context, name string, args ...string) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, name, args...), lines: make(chan string, 16)}
	c.cmd.Stderr = &c.errs
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "FENCEPROXY_") && !strings.HasPrefix(kv, "OTEL_") {
			c.cmd.Env = append(c.cmd.Env, kv)
		}
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(c.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.lines <- lines.Text()
		}
	}()
	return c, nil
}

// self starts this program in a role.
func self(ctx context.Context, role string, args ...string) (*child, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	return startChild(ctx, path, append([]string{role}, args...)...)
}

// serving starts this program in a role that listens.
func serving(ctx context.Context, role string, args ...string) (*child, error) {
	c, err := self(ctx, role, args...)
	if err != nil {
		return nil, err
	}
	line, err := c.line()
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	c.addr = strings.TrimPrefix(line, listening+" ")
	go c.drain()
	return c, nil
}

// fenceproxy starts the real program before an upstream.
func fenceproxy(ctx context.Context, binary, dir, upstream string) (*child, error) {
	c, err := startChild(ctx, binary, "serve", "--upstream", "http://"+upstream,
		"--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--data", filepath.Join(dir, "hop"))
	if err != nil {
		return nil, err
	}
	for c.addr == "" {
		line, err := c.line()
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		var ready struct {
			Msg     string `json:"msg"`
			Addr    string `json:"data_addr"`
			Control string `json:"control_addr"`
		}
		if json.Unmarshal([]byte(line), &ready) == nil && ready.Msg == "ready" {
			c.addr, c.control = ready.Addr, ready.Control
		}
	}
	go c.drain()
	return c, nil
}

// line is the next line of the child.
func (c *child) line() (string, error) {
	select {
	case line, ok := <-c.lines:
		if !ok {
			_ = c.cmd.Wait() // what it complained of is whole then
			return "", fmt.Errorf("%s ended: %s", filepath.Base(c.cmd.Path), c.errs.String())
		}
		return line, nil
	case <-time.After(startLimit):
		return "", fmt.Errorf("%s said nothing for %s", filepath.Base(c.cmd.Path), startLimit)
	}
}

func (c *child) drain() {
	for range c.lines {
	}
}

// stop ends the child: politely, since the store has to be closed.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", filepath.Base(c.cmd.Path), err)
	}
	c.drain()
	_ = c.cmd.Wait() // it was told to end, by a signal
	return nil
}

// ticksPerSecond of the times in /proc. Linux has 100 on every platform of Go
// (USER_HZ).
const ticksPerSecond = 100

// cpu is the CPU time, user and system, that the process and its children have used so
// far, of all their threads, ended ones too.
func (c *child) cpu() (time.Duration, error) {
	pid := strconv.Itoa(c.cmd.Process.Pid)
	_, ticks, err := readStat(pid)
	if err != nil {
		return 0, fmt.Errorf("read cpu time: %w", err)
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("read cpu time: %w", err)
	}
	for _, path := range stats {
		parent, more, err := readStat(filepath.Base(filepath.Dir(path)))
		if err == nil && parent == pid { // any other may have ended by now
			ticks += more
		}
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// readStat returns the parent of a process, and its ticks of CPU time.
func readStat(pid string) (parent string, ticks uint64, err error) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", 0, err
	}
	// The name in parentheses may hold anything; ppid, utime and stime are the 2nd,
	// 12th and 13th field after it.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return "", 0, fmt.Errorf("%q is too short", b)
	}
	for _, s := range fields[11:13] {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return "", 0, err
		}
		ticks += n
	}
	return fields[1], ticks, nil
}
