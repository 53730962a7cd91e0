package badgerstore

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// holder is what the holder file says of the process that has the directory open.
// Only the lock on the file counts; its text is for people.
type holder struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
}

// hold makes this process the only one in dir until the returned file is closed.
// The error wraps ErrLocked if there is another.
func hold(dir string, now time.Time) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "holder"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open holder file: %w", err)
	}
	held, err := lockFile(f)
	if held {
		err = locked(dir, f)
	} else if err != nil {
		err = fmt.Errorf("lock holder file: %w", err)
	}
	if err == nil {
		err = writeHolder(f, now)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func writeHolder(f *os.File, now time.Time) error {
	// A host without a name is no reason not to start.
	host, _ := os.Hostname()
	b, err := json.Marshal(holder{PID: os.Getpid(), Host: host, Started: now.UTC().Truncate(time.Second)})
	if err != nil {
		return fmt.Errorf("write holder file: %w", err)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("write holder file: %w", err)
	}
	if _, err := f.WriteAt(append(b, '\n'), 0); err != nil {
		return fmt.Errorf("write holder file: %w", err)
	}
	return nil
}

// locked says who holds dir. The file may be half written or empty; then it names
// nobody.
func locked(dir string, f *os.File) error {
	var h holder
	who := "another process"
	if err := json.NewDecoder(f).Decode(&h); err == nil && h.PID != 0 {
		who = fmt.Sprintf("process %d on host %s, started %s,", h.PID, h.Host, h.Started.Format(time.RFC3339))
	}
	return fmt.Errorf("%w: %s has %s open; stop it, or give this process a directory of its own (--data DIR)", ErrLocked, who, dir)
}
