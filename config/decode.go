package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// decoder fills a Config from a YAML document. It walks the syntax tree itself
// instead of letting the library decode, because the library stops at the first
// fault and knows no key paths.
type decoder struct {
	collector
	file string
	// routes is set aside on the way: routes can be filled only once the
	// defaults under them are known.
	routes ast.Node
	// given is the one route of a configuration without a file.
	given *Route
	// most bounds the document; maxFile if zero.
	most Size
}

// maxFile bounds a configuration file, so that a wrong path (a disk image, a
// log) is refused instead of read as YAML.
const maxFile = 256 << 10

// maxNesting bounds how deep a document nests. The schema needs 5; the parser
// takes time and stack without bound for more.
const maxNesting = 64

// document reads everything but the routes into a block, to which into points.
func (d *decoder) document(data []byte, into any) {
	d.origin[""] = place{file: d.file, line: 1, column: 1}
	if most := cmp.Or(d.most, maxFile); Size(len(data)) > most {
		d.add("", "the file is larger than %s", most)
		return
	}
	body := d.parse(bytes.TrimPrefix(data, []byte("\ufeff")))
	if body == nil || body.Type() == ast.NullType {
		return
	}
	d.block(body, reflect.ValueOf(into).Elem(), "")
}

// parse returns the body of the only document, or nil when there is none.
func (d *decoder) parse(data []byte) (body ast.Node) {
	// The parser has panicked on malformed input before; to its user that is
	// one more fault of the file.
	defer func() {
		if p := recover(); p != nil {
			body = nil
			d.add("", "this is not YAML")
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if at := tooDeep(tokens); at != nil {
		d.addAt(place{file: d.file, line: at.Line, column: at.Column}, "", "", "this nests deeper than any configuration")
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, message := d.origin[""], "this is not YAML"
		var syntax yaml.Error
		if errors.As(err, &syntax) {
			// Some messages end by quoting the file, which may hold a secret.
			reason, _, _ := strings.Cut(syntax.GetMessage(), `: "`)
			message += ": " + strings.Map(visible, reason)
			if t := syntax.GetToken(); t != nil && t.Position != nil {
				at.line, at.column = t.Position.Line, t.Position.Column
			}
		}
		d.addAt(at, "", "", "%s", message)
		return nil
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil, doc.Body.Type() == ast.DirectiveType:
		case body != nil:
			d.addAt(d.placeOf(doc.Body), "", "", "a second document begins: only one is allowed")
			return nil
		default:
			body = doc.Body
		}
	}
	return body
}

// tooDeep returns where tokens nest deeper than maxNesting, or nil. Blocks cost
// their author a column of indentation a level, so only what nests within a
// line is counted: brackets, and dashes in a row.
func tooDeep(tokens token.Tokens) *token.Position {
	brackets, dashes := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		}
		switch t.Type {
		case token.SequenceEntryType, token.MappingKeyType:
			dashes++
		default:
			dashes = 0
		}
		if brackets > maxNesting || dashes > maxNesting {
			return t.Position
		}
	}
	return nil
}

// placeOf returns where a node begins.
func (d *decoder) placeOf(n ast.Node) place {
	if pairs, ok := pairsOf(n); ok && len(pairs) > 0 {
		if m, isMap := n.(*ast.MappingNode); !isMap || !m.IsFlowStyle {
			n = pairs[0].Key
		}
	}
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return d.origin[""]
	}
	return place{file: d.file, line: t.Position.Line, column: t.Position.Column}
}

// pairsOf returns the keys and values of a block.
func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// block reads the keys of a struct.
func (d *decoder) block(n ast.Node, v reflect.Value, path string) {
	pairs, ok := pairsOf(n)
	if !ok {
		d.addAt(d.placeOf(n), path, path, "wants a block of keys, not %s", kindOf(n))
		return
	}
	known := fields(v.Type())
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.key
	}
	first := make(map[string]place, len(pairs))
	for _, pair := range pairs {
		key, at := textOf(pair.Key), d.placeOf(pair.Key)
		here := join(path, printable(key))
		if before, twice := first[key]; twice {
			d.addAt(at, here, here, "set twice, first in line %d", before.line)
			continue
		}
		first[key] = at
		i := slices.Index(names, key)
		if i < 0 {
			d.unknownKey(pair.Key, at, path, key, names)
			continue
		}
		if pair.Value == nil || pair.Value.Type() == ast.NullType {
			d.nothing(v.FieldByIndex(known[i].index), at, here)
			continue
		}
		d.value(pair.Value, v.FieldByIndex(known[i].index), at, here)
	}
}

// unknownKey reports a key that the block at path does not have.
func (d *decoder) unknownKey(n ast.Node, at place, path, key string, names []string) {
	here := join(path, printable(key))
	switch {
	case n.Type() == ast.MergeKeyType:
		d.addAt(at, here, here, "merge keys are not supported: put what routes share under defaults")
		return
	case path == "defaults":
		for _, f := range fields(reflect.TypeFor[Route]()) {
			if f.key == key {
				d.addAt(at, here, here, "belongs to one route and cannot have a default")
				return
			}
		}
	}
	hint, meant := suggestion(key, names)
	d.addAt(at, here, here, "unknown key%s", hint)
	if meant != "" {
		// That the key it was meant for is missing is no second fault.
		d.bad[join(path, meant)] = true
	}
}

// visible replaces the control characters of a message.
func visible(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// printable keeps keys that are not text from breaking the line of a fault.
func printable(key string) string {
	if !isPrintable(key) || len(key) > 64 {
		return strconv.QuoteToASCII(key[:min(len(key), 64)])
	}
	return key
}

// nothing handles a key without a value: fine for a block or a list, which then
// has nothing in it.
func (d *decoder) nothing(v reflect.Value, at place, path string) {
	d.origin[path] = at
	switch {
	case isBlock(v.Type()):
	case v.Kind() == reflect.Slice:
		v.SetZero()
	default:
		d.add(path, "has no value")
	}
}

// value reads what follows a key, which stands at keyAt.
func (d *decoder) value(n ast.Node, v reflect.Value, keyAt place, path string) {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.addAt(d.placeOf(n), path, path, "%s is not supported: put what routes share under defaults", kindOf(n))
		return
	}
	switch t := v.Type(); {
	case isBlock(t):
		d.origin[path] = keyAt
		d.block(n, v, path)
	case t == reflect.TypeFor[[]Route]():
		d.origin[path] = keyAt
		d.routes = n
	case isBlockList(t):
		d.origin[path] = keyAt
		d.blocks(n, v, path)
	case t.Kind() == reflect.Slice:
		d.origin[path] = keyAt
		d.list(n, v, path)
	default:
		d.origin[path] = d.placeOf(n)
		d.scalar(n, v, path)
	}
}

// list reads a list of scalars.
func (d *decoder) list(n ast.Node, v reflect.Value, path string) {
	sequence, ok := n.(*ast.SequenceNode)
	if !ok {
		d.addAt(d.placeOf(n), path, path, "wants a list, as in [a, b], not %s", kindOf(n))
		return
	}
	v.SetZero()
	for i, element := range sequence.Values {
		e, at := reflect.New(v.Type().Elem()).Elem(), fmt.Sprintf("%s[%d]", path, i)
		d.origin[at] = d.placeOf(element)
		d.scalar(element, e, at)
		v.Set(reflect.Append(v, e))
	}
}

// blocks reads a list of blocks.
func (d *decoder) blocks(n ast.Node, v reflect.Value, path string) {
	sequence, ok := n.(*ast.SequenceNode)
	if !ok {
		d.addAt(d.placeOf(n), path, path, "wants a list of blocks, not %s", kindOf(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(sequence.Values), len(sequence.Values)))
	for i, element := range sequence.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		if element == nil || element.Type() == ast.NullType {
			d.addAt(d.origin[path], at, at, "has no value")
			continue
		}
		d.value(element, v.Index(i), d.placeOf(element), at)
	}
}

// decodeRoutes reads the routes, each over the defaults.
func (d *decoder) decodeRoutes(c *Config) {
	if d.given != nil {
		route := newRoute(c.Defaults)
		route.Name, route.Upstream = d.given.Name, d.given.Upstream
		c.Routes = []Route{route}
		if !isPrintable(route.Upstream) {
			d.add("routes[0].upstream", "control characters and broken UTF-8 are not allowed")
		}
	}
	if d.routes == nil {
		return
	}
	sequence, ok := d.routes.(*ast.SequenceNode)
	if !ok {
		d.addAt(d.placeOf(d.routes), "routes", "routes", "wants a list of routes, not %s", kindOf(d.routes))
		return
	}
	c.Routes = make([]Route, len(sequence.Values))
	for i, n := range sequence.Values {
		c.Routes[i] = newRoute(c.Defaults)
		path := fmt.Sprintf("routes[%d]", i)
		if n == nil || n.Type() == ast.NullType {
			d.addAt(d.origin["routes"], path, path, "has no value")
			continue
		}
		d.value(n, reflect.ValueOf(&c.Routes[i]).Elem(), d.placeOf(n), path)
	}
}

// scalar reads one value. The text of a wrong one is not quoted here: it may be
// a secret under the wrong key.
func (d *decoder) scalar(n ast.Node, v reflect.Value, path string) {
	var fits bool
	var wants string
	kind := n.Type()
	isText := kind == ast.StringType || kind == ast.LiteralType
	isNumber := kind == ast.IntegerType || kind == ast.FloatType
	switch t := v.Type(); {
	case isDuration(t):
		fits, wants = isText || isNumber, "a duration, as in 10s"
	case isSize(t):
		fits, wants = isText || isNumber, "a size, as in 64KiB"
	case t.Kind() == reflect.Int:
		fits, wants = isNumber, "a whole number"
	case t.Kind() == reflect.Bool:
		fits, wants = kind == ast.BoolType, "true or false"
	default:
		fits, wants = isText, "text"
	}
	if !fits {
		message := fmt.Sprintf("wants %s, not %s", wants, kindOf(n))
		if v.Kind() == reflect.String && (isNumber || kind == ast.BoolType) {
			message += ": put it in quotes"
		}
		d.addAt(d.placeOf(n), path, path, "%s", message)
		return
	}
	if err := setText(v, textOf(n)); err != nil {
		d.add(path, "%s", err.Error())
	}
}

// textOf returns the text of a scalar or of a key.
func textOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.LiteralNode:
		if n.Value == nil {
			return ""
		}
		return n.Value.Value
	case *ast.BoolNode:
		return strconv.FormatBool(n.Value)
	}
	if t := n.GetToken(); t != nil {
		return t.Value
	}
	return ""
}

// kindOf names a node for a message.
func kindOf(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a block of keys"
	case ast.SequenceType:
		return "a list"
	case ast.StringType, ast.LiteralType:
		return "text"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "a number"
	case ast.BoolType:
		return "true or false"
	case ast.NullType:
		return "nothing"
	case ast.AnchorType:
		return "an anchor"
	case ast.AliasType:
		return "an alias"
	case ast.TagType:
		return "a tag"
	}
	return "this"
}
