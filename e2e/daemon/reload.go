package daemon

import (
	"os"
	"strings"
	"syscall"
	"time"
)

// Configure changes the configuration file. The process learns of it by Reload, or by Restart.
func (d *Daemon) Configure(change func(*Settings)) {
	d.tb.Helper()
	change(&d.settings)
	d.WriteConfig(d.settings.yaml(d.data))
}

// WriteConfig writes the configuration file as it is given, so that it can be wrong.
func (d *Daemon) WriteConfig(text string) {
	d.tb.Helper()
	// As a whole: a reload may read it at any moment.
	if err := os.WriteFile(d.config+".new", []byte(text), 0o600); err != nil {
		d.tb.Fatalf("write configuration: %v", err)
	}
	if err := os.Rename(d.config+".new", d.config); err != nil {
		d.tb.Fatalf("replace configuration: %v", err)
	}
}

// Reload sends SIGHUP, waits until the process says what it made of it, and returns that: the line of its log, and whether
// it took the configuration over.
func (d *Daemon) Reload() (line string, ok bool) {
	d.tb.Helper()
	logs := d.now().logs
	before := len(reloads(logs.String()))
	d.Signal(syscall.SIGHUP)
	limit := time.After(startLimit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if all := reloads(logs.String()); len(all) > before {
			line = all[len(all)-1]
			return line, strings.Contains(line, `"msg":"reloaded"`)
		}
		select {
		case <-limit:
			d.tb.Fatalf("fenceproxy says nothing of a reload after %v", startLimit)
		case <-tick.C:
		}
	}
}

// reloads are the lines that tell what became of a reload.
func reloads(logs string) (lines []string) {
	for line := range strings.Lines(logs) {
		if strings.HasSuffix(line, "\n") && (strings.Contains(line, `"msg":"reloaded"`) || strings.Contains(line, `"msg":"reload refused"`)) {
			lines = append(lines, line)
		}
	}
	return lines
}
