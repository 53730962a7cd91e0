package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The Files of faults that no file is guilty of.
const (
	fileEnvironment = "environment"
	fileCommandLine = "command line"
)

// Fault is one thing that is wrong with a configuration. No part of it ever
// holds the value of a secret.
type Fault struct {
	// File is the file as its caller named it, "environment", "command line",
	// or empty for a configuration that was built in code.
	File string
	// Line and Column count from 1; 0 where there is none.
	Line, Column int
	// Key is the path of the key, as routes[0].takeover.wait, or the name of
	// the environment variable or flag that set it.
	Key string
	// Message says what is wrong, and what would be right.
	Message string
}

// String returns the fault as one line: file:line:column: key: message.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	for _, part := range []string{f.Key, f.Message} {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(part)
	}
	return b.String()
}

// Faults is every fault of one configuration, in the order of the file. It is
// the error of Parse, Load, ForUpstream and Validate; find it with errors.As.
type Faults []Fault

var _ error = Faults(nil)

// Error returns one line for each fault.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// ErrorOrNil sorts the faults and drops repetitions: a bad value under defaults
// is found once for each route that takes it. Without faults it returns nil.
func (fs Faults) ErrorOrNil() error {
	if len(fs) == 0 {
		return nil
	}
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	seen := make(map[Fault]bool, len(fs))
	return slices.DeleteFunc(fs, func(f Fault) bool {
		twice := seen[f]
		seen[f] = true
		return twice
	})
}

// FaultOf returns a fault of the key at path, as control.tls.cert_file, at the
// place where the key was set. It is for checks that need more than the
// configuration itself: the files that it names, or the one that is in effect.
func (c *Config) FaultOf(path, message string) Fault { return c.origin.fault(path, message) }

// collector gathers the faults of one configuration.
type collector struct {
	origin origin
	faults Faults
	// bad holds the paths that have a fault. What lies at or under one is not
	// judged again: its value is not what the user wrote.
	bad map[string]bool
}

// add reports a fault of the key at path, where that key was set.
func (c *collector) add(path, format string, args ...any) {
	if c.isBad(path) {
		return
	}
	c.bad[path] = true
	c.faults = append(c.faults, c.origin.fault(path, fmt.Sprintf(format, args...)))
}

// addAt reports a fault at a place of its own, shown as key.
func (c *collector) addAt(at place, path, key, format string, args ...any) {
	c.bad[path] = true
	c.faults = append(c.faults, Fault{
		File: at.file, Line: at.line, Column: at.column, Key: key, Message: fmt.Sprintf(format, args...),
	})
}

func (c *collector) isBad(path string) bool {
	for ; path != ""; path = trimKey(path) {
		if c.bad[path] {
			return true
		}
	}
	return c.bad[""]
}
