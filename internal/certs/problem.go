package certs

import (
	"fmt"
	"time"
)

// Problem is one thing that is wrong with a file. It never holds anything of a private
// key.
type Problem struct {
	// Key is the last part of the configuration's key that names the file, as
	// cert_file.
	Key string
	// Message names the file, and says what is wrong with it.
	Message string
	// Warning tells that the file can be used all the same: an expired
	// certificate is presented, because some clients still take it, and because
	// a proxy that does not start helps none of them.
	Warning bool
}

// problems gathers them.
type problems []Problem

func (ps *problems) add(key, format string, args ...any) {
	*ps = append(*ps, Problem{Key: key, Message: fmt.Sprintf(format, args...)})
}

func (ps *problems) warn(key, format string, args ...any) {
	*ps = append(*ps, Problem{Key: key, Message: fmt.Sprintf(format, args...), Warning: true})
}

// fatal reports whether the files can not be used.
func (ps problems) fatal() bool {
	for _, p := range ps {
		if !p.Warning {
			return true
		}
	}
	return false
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }
