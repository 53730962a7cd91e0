//go:build !linux

package daemon

// Peak is the most memory that the process ever had resident, in bytes; known tells whether the system counts that.
func (d *Daemon) Peak() (bytes int64, known bool) { return 0, false }

// Read is how many bytes the process has read so far, from sockets and files; known tells whether the system counts that.
func (d *Daemon) Read() (bytes int64, known bool) { return 0, false }
