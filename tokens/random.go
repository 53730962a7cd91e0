package tokens

import (
	"encoding/base64"
	"fmt"
	"io"
)

// newLeaseID draws the secret of a lease. It begins with the id of the store.
func (a *Authority) newLeaseID() (string, error) {
	id, err := draw(a.opt.Rand)
	return a.info.ID + "." + id, err
}

// draw returns 128 random bits as text.
func draw(source io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(source, b[:]); err != nil {
		return "", fmt.Errorf("draw random id: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b[:]), nil
}
