package overlay

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// tree is a module's root with one file in it.
func tree(t *testing.T, text string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func replaced(t *testing.T, path string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ Replace map[string]string }
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out.Replace
}

func TestEditsAndAdditionsLeaveTheTreeAlone(t *testing.T) {
	root := tree(t, "one two three")
	path, err := Write(t.TempDir(), root, []Edit{{"a.go", "two", "2"}, {"a.go", "three", "3"}}, []Addition{{"sub/b.go", "b.txt"}})
	if err != nil {
		t.Fatal(err)
	}
	files := replaced(t, path)
	if len(files) != 2 {
		t.Fatalf("replaced: %v", files)
	}
	got, err := os.ReadFile(files[filepath.Join(root, "a.go")])
	if err != nil || string(got) != "one 2 3" {
		t.Errorf("edited: %q, %v", got, err)
	}
	if added := files[filepath.Join(root, "sub", "b.go")]; !filepath.IsAbs(added) || filepath.Base(added) != "b.txt" {
		t.Errorf("added: %q", added)
	}
	if now, err := os.ReadFile(filepath.Join(root, "a.go")); err != nil || string(now) != "one two three" {
		t.Errorf("the tree was changed: %q, %v", now, err)
	}
}

func TestAnEditThatDoesNotFitIsAnError(t *testing.T) {
	for name, old := range map[string]string{"absent": "four", "twice": "o"} {
		_, err := Write(t.TempDir(), tree(t, "one two"), []Edit{{"a.go", old, "x"}}, nil)
		if !errors.Is(err, ErrText) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Write(t.TempDir(), tree(t, "one"), []Edit{{"b.go", "one", "x"}}, nil); err == nil {
		t.Error("a file that is not there was edited")
	}
	if _, err := Write(t.TempDir(), tree(t, "one"), nil, []Addition{{"a.go", "b.txt"}}); err == nil {
		t.Error("a file that is there was added")
	}
}
