package badgerstore

import (
	"errors"
	"fmt"
)

var (
	// ErrDamaged is returned by Open when the directory does not hold what was
	// acknowledged, or can not be read, and by Load and List when a record can
	// not be read. The message names the way out.
	ErrDamaged = errors.New("data directory is damaged")
	// ErrLocked is returned by Open when another process has the directory
	// open. The message names it.
	ErrLocked = errors.New("data directory is in use")
	// ErrFormat is returned by Open when a newer program wrote the directory.
	ErrFormat = errors.New("data directory has a newer format")
	// ErrNoSpace is what Open and Err report while too little space is free.
	ErrNoSpace = errors.New("too little free space")
)

// damaged wraps ErrDamaged with what was found and the way out. Nothing has been
// changed when it is called.
func damaged(dir, format string, args ...any) error {
	return fmt.Errorf("%w: %w; nothing was changed; %s", ErrDamaged, fmt.Errorf(format, args...), wayOut(dir))
}

func wayOut(dir string) string {
	return fmt.Sprintf("put back the data directory as it was when it was last written (an older copy has lower floors: salvage it before it is served), or run `fenceproxy salvage --data %s`, "+
		"which keeps what is readable and starts a new epoch above every generation ever issued", dir)
}
