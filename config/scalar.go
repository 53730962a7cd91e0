package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// setText sets a value, but no list, from its text. Its error is a message for
// the user and quotes the text, but never one that goes into a string: only
// strings hold secrets.
func setText(v reflect.Value, text string) error {
	switch {
	case isDuration(v.Type()):
		d, err := parseDuration(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(d))
	case isSize(v.Type()):
		s, err := parseSize(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(s))
	case v.Kind() == reflect.Int:
		n, err := strconv.Atoi(text)
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%s is out of range", text)
		}
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(int64(n))
	case v.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(text == "true")
	case v.Kind() == reflect.String:
		if !isPrintable(text) {
			return errors.New("control characters and broken UTF-8 are not allowed")
		}
		v.SetString(text)
	}
	return nil
}

// setList sets a list from the texts of its elements, an empty one to nil.
func setList(v reflect.Value, texts []string) error {
	v.SetZero()
	for _, text := range texts {
		element := reflect.New(v.Type().Elem()).Elem()
		if err := setText(element, text); err != nil {
			return err
		}
		v.Set(reflect.Append(v, element))
	}
	return nil
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(n, 0) && !math.IsNaN(n) {
		return 0, fmt.Errorf("%s has no unit: write a duration as in %ss or %sms", text, text, text)
	}
	return 0, fmt.Errorf("%q is not a duration: write one as in 250ms, 10s, 5m or 24h", text)
}

// formatDuration is time.Duration.String without the zero units at its end:
// 24h, not 24h0m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// isPrintable refuses what no name, path or address needs and what would not
// survive being printed as YAML.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsPrint(r) || r == utf8.RuneError
	})
}
