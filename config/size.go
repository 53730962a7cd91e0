package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. In YAML it is a whole number of bytes, or one with
// the unit B, KiB, MiB, GiB or TiB: 65536, 64KiB.
type Size int64

// The units of Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

type sizeUnit struct {
	name  string
	bytes Size
}

// sizeUnits lists the units, the longest names and largest units first, so that
// both reading and printing may take the first that fits.
func sizeUnits() []sizeUnit {
	return []sizeUnit{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}
}

// String returns the size in the largest unit that leaves it whole.
func (s Size) String() string {
	for _, u := range sizeUnits() {
		if s != 0 && u.bytes > 1 && s%u.bytes == 0 {
			return strconv.FormatInt(int64(s/u.bytes), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// parseSize reads what String writes, and any other whole number with a unit.
func parseSize(text string) (Size, error) {
	number, unit := text, Size(1)
	for _, u := range sizeUnits() {
		if rest, found := strings.CutSuffix(text, u.name); found {
			number, unit = strings.TrimRight(rest, " "), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is out of range", text)
	case err != nil || strings.HasPrefix(number, "+"):
		return 0, fmt.Errorf("%q is not a size: write whole bytes, or a whole number of KiB, MiB, GiB or TiB as in 64KiB", text)
	case n < 0:
		return 0, fmt.Errorf("%s is negative", text)
	case n > math.MaxInt64/int64(unit):
		return 0, fmt.Errorf("%s is out of range", text)
	}
	return Size(n) * unit, nil
}
