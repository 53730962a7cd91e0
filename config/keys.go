package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// field is one key of a block, as its struct declares it.
type field struct {
	key    string
	index  []int
	typ    reflect.Type
	enum   []string // the words it may be, or nil for any value
	secret string   // "dsn" or "userinfo" where the value may hold a secret
}

// fields lists the keys of a block in the order of the struct; those of an
// embedded struct are keys of the block itself.
func fields(block reflect.Type) []field {
	var all []field
	for i := range block.NumField() {
		f := block.Field(i)
		if f.Anonymous {
			for _, inner := range fields(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				all = append(all, inner)
			}
			continue
		}
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		var enum []string
		if words := f.Tag.Get("enum"); words != "" {
			enum = strings.Split(words, ",")
		}
		all = append(all, field{key: key, index: []int{i}, typ: f.Type, enum: enum, secret: f.Tag.Get("secret")})
	}
	return all
}

// isBlock says whether a type is a block of keys rather than a value.
func isBlock(t reflect.Type) bool { return t.Kind() == reflect.Struct }

// isBlockList says whether a type is a list of blocks, as routes is.
func isBlockList(t reflect.Type) bool { return t.Kind() == reflect.Slice && isBlock(t.Elem()) }

// walk calls visit for each value under block, with its path.
func walk(block reflect.Value, path string, visit func(path string, f field, v reflect.Value)) {
	for _, f := range fields(block.Type()) {
		v, at := block.FieldByIndex(f.index), join(path, f.key)
		switch {
		case isBlock(f.typ):
			walk(v, at, visit)
		case isBlockList(f.typ):
			for i := range v.Len() {
				walk(v.Index(i), fmt.Sprintf("%s[%d]", at, i), visit)
			}
		default:
			visit(at, f, v)
		}
	}
}

func isDuration(t reflect.Type) bool { return t == reflect.TypeFor[time.Duration]() }

func isSize(t reflect.Type) bool { return t == reflect.TypeFor[Size]() }

// suggestion returns ", did you mean X?" in brackets, and X, for the one of
// names that is closest to a mistyped one; nothing when none is close.
func suggestion(name string, names []string) (hint, best string) {
	least := 3
	for _, candidate := range names {
		if d := distance(name, candidate); d < least && d < len(candidate) {
			least, best = d, candidate
		}
	}
	if best == "" {
		return "", ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best), best
}

// distance counts the letters to insert, drop, change or swap with their
// neighbour to get from a to b.
func distance(a, b string) int {
	if len(a) > 128 || len(b) > 128 {
		return max(len(a), len(b))
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
