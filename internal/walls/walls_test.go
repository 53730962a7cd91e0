package walls

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/fenceproxy/fenceproxy"
	root   = "../.."
	// tableHead is the first row of the table in DESIGN.md.
	tableHead = "| room | what lives there | may import | libraries | more in tests |"
)

// room is one line of the table: its directory and all below it that has no line of its own.
type room struct {
	// rooms and libraries are what its files may import, tests what its tests may import besides.
	rooms, libraries, tests []string
}

// edge is one import.
type edge struct {
	file, dir, imports string
	test               bool
}

func TestNoPackageImportsMoreThanTheDesignAllows(t *testing.T) {
	rooms := readTable(t)
	for _, e := range edges(t) {
		if why := judge(rooms, e); why != "" {
			t.Errorf("%s imports %s: %s", e.file, e.imports, why)
		}
	}
}

func TestEveryRoomOfTheDesignExists(t *testing.T) {
	for name := range readTable(t) {
		if name == anyRoom {
			continue
		}
		if fi, err := os.Stat(filepath.Join(root, name)); err != nil || !fi.IsDir() {
			t.Errorf("DESIGN.md has a line for %s, which is no directory", name)
		}
	}
}

func TestTheWallsRefuseWhatTheyShould(t *testing.T) {
	rooms := readTable(t)
	cases := []struct {
		name    string
		edge    edge
		allowed bool
	}{
		{"the domain and the standard library", edge{dir: "tokens", imports: "net/http"}, true},
		{"the domain and a library", edge{dir: "tokens", imports: "golang.org/x/sync/errgroup"}, false},
		{"the domain and an engine", edge{dir: "tokens", imports: module + "/tokens/badgerstore"}, false},
		{"the domain's test and an engine", edge{dir: "tokens", imports: module + "/tokens/badgerstore", test: true}, false},
		{"the domain's test and its suite", edge{dir: "tokens", imports: module + "/tokens/tokenstest", test: true}, true},
		{"the domain and its suite", edge{dir: "tokens", imports: module + "/tokens/tokenstest"}, false},
		{"an engine and its driver", edge{dir: "tokens/badgerstore", imports: "github.com/dgraph-io/badger/v4/y"}, true},
		{"a name that only begins like the driver", edge{dir: "tokens/badgerstore", imports: "github.com/dgraph-io/badger/v4x"}, false},
		{"the proxy and an engine's driver", edge{dir: "proxy", imports: "github.com/dgraph-io/badger/v4"}, false},
		{"the proxy and the control listener", edge{dir: "proxy", imports: module + "/control"}, false},
		{"the proxy and metrics by hand", edge{dir: "proxy", imports: "github.com/prometheus/client_golang/prometheus"}, false},
		{"a test and the leak detector", edge{dir: "config", imports: "go.uber.org/goleak", test: true}, true},
		{"a program and the leak detector", edge{dir: "config", imports: "go.uber.org/goleak"}, false},
		{"a room without a line", edge{dir: "util", imports: "fmt"}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if why := judge(rooms, c.edge); (why == "") != c.allowed {
				t.Errorf("judged %q", why)
			}
		})
	}
}

// anyRoom is the line of the table that holds for every room.
const anyRoom = "*"

// judge says why an import is not allowed, or nothing.
func judge(rooms map[string]room, e edge) string {
	name := e.dir
	for ; name != "."; name = path.Dir(name) {
		if _, ok := rooms[name]; ok {
			break
		}
	}
	r, ok := rooms[name]
	if !ok {
		return fmt.Sprintf("%s has no line in the table of DESIGN.md", e.dir)
	}
	inside, ours := strings.CutPrefix(e.imports, module+"/")
	first, _, _ := strings.Cut(e.imports, "/")
	if !ours && !strings.Contains(first, ".") {
		return "" // the standard library
	}
	allowed := slices.Concat(r.libraries, rooms[anyRoom].libraries)
	if ours {
		allowed = append(slices.Clone(r.rooms), name)
	}
	if e.test {
		allowed = slices.Concat(allowed, r.tests, rooms[anyRoom].tests)
	}
	target := e.imports
	if ours {
		target = inside
	}
	for _, a := range allowed {
		// A library's packages come with it; a room has to be named.
		if target == a || !ours && strings.HasPrefix(target, a+"/") || a == name && strings.HasPrefix(target, a+"/") && !hasLine(rooms, target) {
			return ""
		}
	}
	return fmt.Sprintf("DESIGN.md does not allow that for %s", name)
}

// hasLine reports whether a directory is a room of its own.
func hasLine(rooms map[string]room, dir string) bool {
	_, ok := rooms[dir]
	return ok
}

// readTable reads the table of DESIGN.md. Only what stands in backquotes counts.
func readTable(t *testing.T) map[string]room {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), tableHead+"\n")
	if !found {
		t.Fatalf("DESIGN.md has no table that begins with %q", tableHead)
	}
	rooms := make(map[string]room)
	code := regexp.MustCompile("`([^`]+)`")
	names := func(cell string) (out []string) {
		for _, m := range code.FindAllStringSubmatch(cell, -1) {
			out = append(out, m[1])
		}
		return out
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			t.Fatalf("DESIGN.md: a row of the table has %d cells: %s", len(cells), line)
		}
		for _, name := range names(cells[0]) {
			rooms[name] = room{rooms: names(cells[2]), libraries: names(cells[3]), tests: names(cells[4])}
		}
	}
	if len(rooms) < 5 {
		t.Fatalf("DESIGN.md: only %d rooms were read from the table", len(rooms))
	}
	return rooms
}

// edges reads the imports of every Go file of the module, whatever system it is for.
func edges(t *testing.T) []edge {
	t.Helper()
	var out []edge
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && file != root || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(file) != ".go":
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		for _, spec := range parsed.Imports {
			imports, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			out = append(out, edge{file: rel, dir: path.Dir(rel), imports: imports, test: strings.HasSuffix(rel, "_test.go")})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 100 {
		t.Fatalf("only %d imports were found", len(out))
	}
	return out
}
