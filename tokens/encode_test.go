package tokens

import (
	"encoding/json"
	"reflect"
	"testing"
)

// fill sets every field below v that can be set from the bytes of seed, in turn.
func fill(v reflect.Value, seed []byte, at *int) {
	next := func() byte {
		*at++
		if len(seed) == 0 {
			return 1
		}
		return seed[*at%len(seed)]
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), seed, at)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), seed, at)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), int(next()%4), 4))
		for i := range v.Len() {
			fill(v.Index(i), seed, at)
		}
	case reflect.Pointer:
		if v.Type() == reflect.TypeFor[*Reply]() || next()%3 == 0 {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), seed, at)
	case reflect.String:
		n := int(next() % 8)
		s := make([]byte, 0, n)
		for range n {
			s = append(s, next())
		}
		v.SetString(string(s))
	case reflect.Bool:
		v.SetBool(next()%2 == 1)
	case reflect.Int, reflect.Int64:
		v.SetInt((int64(next()) - 100) * int64(next()) << (next() % 40))
	case reflect.Uint64:
		v.SetUint(uint64(next()) << (next() % 45))
	default:
		panic("no way to fill " + v.Type().String())
	}
}

func sameAsLibrary(t *testing.T, seed []byte) {
	t.Helper()
	var (
		r  Record
		w  WriteRecord
		at int
	)
	fill(reflect.ValueOf(&r).Elem(), seed, &at)
	fill(reflect.ValueOf(&w).Elem(), seed, &at)
	for _, c := range []struct {
		value  any
		encode func() ([]byte, error)
	}{
		{r, func() ([]byte, error) { return EncodeRecord(r) }},
		{w, func() ([]byte, error) { return EncodeWrite(w) }},
	} {
		want, err := json.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.encode(); err != nil || string(got) != string(want) {
			t.Fatalf("%v\n got %s\nwant %s", err, got, want)
		}
	}
}

// A field that is added to a record and not to its encoding would be forgotten at the next
// restart.
func TestTheStoredFormIsWhatTheLibraryWrites(t *testing.T) {
	for _, seed := range []string{"\x00", "\x01", "\x07abcdefgh", "\x05<>&\"\\\n\u2028\xff\x00zZ~ \x7f", "\xff\x10é\x03"} {
		sameAsLibrary(t, []byte(seed))
	}
}

func FuzzTheStoredFormIsWhatTheLibraryWrites(f *testing.F) {
	f.Add([]byte("\x01\x02\x03abc<>"))
	f.Fuzz(sameAsLibrary)
}
