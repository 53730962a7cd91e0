// Package overlay makes variants of the program for go build -overlay: the tree is read and never written or copied.
package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrText is returned for an edit whose old text is not in its file exactly once: the file has changed since the edit was
// written, and what the edit would do is no longer known.
var ErrText = errors.New("text to be replaced is not there exactly once")

// Edit replaces a text that is in a file exactly once.
type Edit struct {
	File string // below the module's root, with slashes
	Old  string
	New  string
}

// Addition is a file that the tree does not have.
type Addition struct {
	File   string // below the module's root, with slashes
	Source string // path of what it is to contain; relative to the working directory, or absolute
}

// Write writes the changed files and the overlay file into dir, and returns the path of the latter, for the flag -overlay.
// Several edits of one file are applied in their order. The error wraps ErrText if an edit does not fit.
func Write(dir, root string, edits []Edit, additions []Addition) (string, error) {
	changed := make(map[string]string)
	for _, e := range edits {
		path := filepath.Join(root, filepath.FromSlash(e.File))
		text, ok := changed[path]
		if !ok {
			raw, err := os.ReadFile(path)
			if err != nil {
				return "", fmt.Errorf("read file to be edited: %w", err)
			}
			text = string(raw)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return "", fmt.Errorf("edit %s: %w but %d times: %q", e.File, ErrText, n, e.Old)
		}
		changed[path] = strings.Replace(text, e.Old, e.New, 1)
	}
	replace := make(map[string]string)
	for path, text := range changed {
		copied := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("write edited file: %w", err)
		}
		replace[path] = copied
	}
	for _, a := range additions {
		source, err := filepath.Abs(a.Source)
		if err != nil {
			return "", fmt.Errorf("find file to be added: %w", err)
		}
		path := filepath.Join(root, filepath.FromSlash(a.File))
		if _, err := os.Lstat(path); err == nil {
			return "", fmt.Errorf("add file: %s is in the tree", a.File)
		}
		replace[path] = source
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	out := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(out, raw, 0o600); err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	return out, nil
}
