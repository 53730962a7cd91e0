package daemon

import (
	"fmt"
	"os"
	"strings"
)

// Peak is the most memory that the process ever had resident, in bytes; known tells whether the system counts that.
func (d *Daemon) Peak() (bytes int64, known bool) {
	d.tb.Helper()
	return d.counted("status", "VmHWM: %d kB") << 10, true
}

// Read is how many bytes the process has read so far, from sockets and files; known tells whether the system counts that.
func (d *Daemon) Read() (bytes int64, known bool) {
	d.tb.Helper()
	return d.counted("io", "rchar: %d"), true
}

// counted reads one number of what the system tells about the process.
func (d *Daemon) counted(file, format string) int64 {
	d.tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", d.PID(), file))
	if err != nil {
		d.tb.Fatalf("read what the system knows of fenceproxy: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		var n int64
		if _, err := fmt.Sscanf(line, format, &n); err == nil {
			return n
		}
	}
	d.tb.Fatalf("read what the system knows of fenceproxy: no %q in %s", format, file)
	return 0
}
