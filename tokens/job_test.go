package tokens

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

func TestAGenerationIsACanonicalDecimal(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Generation
	}{
		{"1", 1}, {"9", 9}, {"10", 10}, {"42", 42}, {"4294967296", EpochSize},
		{"9007199254740990", MaxGeneration - 1}, {"9007199254740991", MaxGeneration},
		{"", 0}, {"0", 0}, {"00", 0}, {"01", 0}, {"007", 0}, {"-1", 0}, {"+1", 0}, {" 1", 0}, {"1 ", 0}, {"1\t", 0}, {"1\n", 0},
		{"1.0", 0}, {"1e3", 0}, {"0x10", 0}, {"1_000", 0}, {"1,2", 0}, {"1;2", 0}, {"NaN", 0}, {"١", 0}, {"１", 0}, {"1\x00", 0}, {"a", 0}, {"\"1\"", 0},
		{"9007199254740992", 0}, {"9999999999999999", 0}, {"10000000000000000", 0}, {"18446744073709551617", 0}, {strings.Repeat("9", 10000), 0},
	} {
		got, err := ParseGeneration(c.in)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("ParseGeneration(%.30q) = %d, %v; want %d", c.in, got, err, c.want)
		}
		if err != nil && !errors.Is(err, ErrInvalidGeneration) {
			t.Errorf("ParseGeneration(%.30q): %v does not wrap ErrInvalidGeneration", c.in, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("ParseGeneration(%.30q): an error of %d bytes", c.in, len(err.Error()))
		}
	}
}

func TestParsingAGenerationDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _, _ = ParseGeneration("9007199254740991") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseGeneration(f *testing.F) {
	for _, s := range []string{"", "0", "1", "01", "+1", "9007199254740991", "9007199254740992", "1e3", "１"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		g, err := ParseGeneration(s)
		if err != nil {
			if g != 0 || !errors.Is(err, ErrInvalidGeneration) {
				t.Fatalf("%q: %d, %v", s, g, err)
			}
			return
		}
		if g < 1 || g > MaxGeneration || strconv.FormatUint(uint64(g), 10) != s {
			t.Fatalf("%q was read as %d", s, g)
		}
	})
}

func TestAJobIDIsPrintableASCIIWithoutSeparators(t *testing.T) {
	long := strings.Repeat("x", MaxJobID)
	for _, id := range []string{
		"a", "Run-7", "run-7", "tenant/42", "a%2Fb", "a%252Fb", "..", ".", "a?b", "a#b", "+", "%", "!", "~", "{}", "[0]", "a:b", "a;b", "a'b", "null", long,
	} {
		if err := CheckJobID(id); err != nil {
			t.Errorf("CheckJobID(%q): %v", id, err)
		}
	}
	for _, id := range []string{
		"", " ", "Run-7 ", " Run-7", "a b", "a\tb", "a\nb", "a\r\nb", "a\x00", "\x7f", "a,b", `a"b`, `a\b`, "São-Paulo", "Sa\u0303o", "\xff", "日本", long + "x",
	} {
		err := CheckJobID(id)
		if !errors.Is(err, ErrInvalidJobID) {
			t.Errorf("CheckJobID(%.20q): %v, want ErrInvalidJobID", id, err)
			continue
		}
		for _, c := range []byte(err.Error()) {
			if c < 0x20 || c == 0x7f {
				t.Errorf("CheckJobID(%.20q): the message holds the control byte %#x", id, c)
			}
		}
	}
}

func FuzzCheckJobID(f *testing.F) {
	for _, s := range []string{"", "a", "a b", "a,b", `a"b`, `a\b`, "\x7f", strings.Repeat("x", 257)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		good := len(id) >= 1 && len(id) <= 256 && strings.IndexFunc(id, func(r rune) bool {
			return r < 0x21 || r > 0x7e || strings.ContainsRune(`,"\`, r)
		}) < 0
		err := CheckJobID(id)
		if (err == nil) != good {
			t.Fatalf("CheckJobID(%q): %v", id, err)
		}
		if err != nil && !errors.Is(err, ErrInvalidJobID) {
			t.Fatalf("CheckJobID(%q): %v does not wrap ErrInvalidJobID", id, err)
		}
	})
}

func TestOutcomesHaveTheNamesOfTheProtocol(t *testing.T) {
	for o, want := range map[Outcome]string{Applied: "applied", Declined: "declined", NotSent: "not-sent", OutcomeUnknown: "unknown", 0: "", 99: ""} {
		if o.String() != want {
			t.Errorf("outcome %d is %q, want %q", o, o.String(), want)
		}
	}
}
