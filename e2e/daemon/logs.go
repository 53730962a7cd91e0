package daemon

import (
	"bytes"
	"encoding/json"
	"sync"
)

// ready is the line that serve prints once it accepts requests.
type ready struct {
	Msg         string `json:"msg"`
	DataAddr    string `json:"data_addr"`
	ControlAddr string `json:"control_addr"`
}

// logs keeps what the child prints and finds its ready line. It is an io.Writer for both streams at once.
type logs struct {
	mu    sync.Mutex
	all   bytes.Buffer
	line  bytes.Buffer
	found chan ready // holds one
}

func newLogs() *logs { return &logs{found: make(chan ready, 1)} }

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(p)
	for rest := p; len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		l.line.Write(part)
		if !whole {
			break
		}
		l.look(l.line.Bytes())
		l.line.Reset()
		rest = after
	}
	return len(p), nil
}

func (l *logs) look(line []byte) {
	var r ready
	if err := json.Unmarshal(line, &r); err != nil || r.Msg != "ready" {
		return // some other line
	}
	select {
	case l.found <- r:
	default: // announced before
	}
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
