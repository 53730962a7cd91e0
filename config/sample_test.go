package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
)

const sampleFile = "../deploy/fenceproxy.yaml"

func TestTheSampleHasEveryKeyAtItsDefault(t *testing.T) {
	got, err := Load(sampleFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Routes) != 1 {
		t.Fatalf("the sample has %d routes, want 1", len(got.Routes))
	}
	want := Default()
	want.Routes = []Route{newRoute(want.Defaults)}
	// These two have no default.
	want.Routes[0].Name, want.Routes[0].Upstream = got.Routes[0].Name, got.Routes[0].Upstream

	defaults := map[string]any{}
	walk(reflect.ValueOf(want), "", func(path string, _ field, v reflect.Value) { defaults[path] = v.Interface() })
	if _, ok := got.origin["defaults"]; !ok {
		t.Error("key defaults is missing")
	}
	walk(reflect.ValueOf(got).Elem(), "", func(path string, _ field, v reflect.Value) {
		if _, ok := got.origin[path]; !ok && !strings.HasPrefix(path, "defaults.") {
			t.Errorf("key %s is missing", path)
		}
		if !reflect.DeepEqual(v.Interface(), defaults[path]) {
			t.Errorf("key %s is %v, its default is %v", path, v.Interface(), defaults[path])
		}
	})
}

// A line has its comment behind it, or above it, or above its block.
func TestTheSampleExplainsEveryValue(t *testing.T) {
	data, err := os.ReadFile(sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "#") || strings.HasSuffix(text, ":") || strings.Contains(text, " #") {
			continue
		}
		if i == 0 || !strings.HasPrefix(strings.TrimSpace(lines[i-1]), "#") {
			t.Errorf("line %d has no comment: %s", i+1, line)
		}
	}
}

// The comments on the fields are the reference manual.
func TestEveryKeyIsDocumentedInTheSchema(t *testing.T) {
	for _, file := range []string{"schema.go", "route.go", "principals.go"} {
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			block, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range block.Fields.List {
				if f.Tag == nil {
					continue
				}
				doc := f.Doc.Text()
				if !strings.HasPrefix(doc, f.Names[0].Name+" ") {
					t.Errorf("%s.%s has no comment that begins with its name", spec.Name, f.Names[0].Name)
				}
				// A block says it on its keys.
				if id, ok := f.Type.(*ast.Ident); ok && ast.IsExported(id.Name) && id.Name != "Size" {
					continue
				}
				if !strings.Contains(strings.ToLower(doc), "default") && !strings.Contains(doc, "Required") && f.Names[0].Name != "Routes" {
					t.Errorf("%s.%s does not say its default", spec.Name, f.Names[0].Name)
				}
			}
			return true
		})
	}
}
