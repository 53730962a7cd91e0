package daemon

import (
	"fmt"
	"os"
	"strings"
)

// Peak is the most memory that the process ever had resident, in bytes; known tells whether the system counts that.
func (d *Daemon) Peak() (bytes int64, known bool) {
	d.tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	if err != nil {
		d.tb.Fatalf("read memory of fenceproxy: %v", err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10, true
		}
	}
	d.tb.Fatal("read memory of fenceproxy: no VmHWM")
	return 0, false
}
