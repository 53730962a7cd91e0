package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

func TestALevelHidesWhatIsBelowIt(t *testing.T) {
	for level, want := range map[string]string{"debug": "dbg inf wrn err", "info": "inf wrn err", "warn": "wrn err", "error": "err"} {
		for _, format := range []string{"json", "text"} {
			var out bytes.Buffer
			log := newTestLogger(t, &out, level, format)
			log.Debug("dbg")
			log.Info("inf")
			log.Warn("wrn")
			log.Error("err")
			var got []string
			for line := range strings.Lines(out.String()) {
				for _, word := range []string{"dbg", "inf", "wrn", "err"} {
					if strings.Contains(line, word) {
						got = append(got, word)
					}
				}
			}
			if s := strings.Join(got, " "); s != want {
				t.Errorf("%s %s wrote %q, want %q", level, format, s, want)
			}
		}
	}
}

func TestAnUnknownLevelOrFormatIsAnErrorThatNamesIt(t *testing.T) {
	for _, level := range []string{"loud", "", "INFO"} {
		if _, err := ParseLevel(level); err == nil || !strings.Contains(err.Error(), strconv.Quote(level)) {
			t.Errorf("level %q: error %v does not name it", level, err)
		}
	}
	for _, format := range []string{"xml", ""} {
		if log, err := NewLogger(io.Discard, slog.LevelInfo, format); err == nil || log != nil || !strings.Contains(err.Error(), strconv.Quote(format)) {
			t.Errorf("format %q: logger %v, error %v", format, log, err)
		}
	}
}

func TestTheLevelCanBeChangedWhileTheLoggerIsInUse(t *testing.T) {
	var out bytes.Buffer
	level := new(slog.LevelVar)
	log, err := NewLogger(&out, level, "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("before")
	level.Set(slog.LevelDebug)
	log.Debug("after")
	if got := out.String(); strings.Contains(got, "before") || !strings.Contains(got, "after") {
		t.Errorf("wrote %q", got)
	}
}

func TestTimesAreInUTCWithNanoseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock of a bubble starts at midnight, 1 January 2000, UTC
		for format, want := range map[string]string{"json": `"time":"2000-01-01T00:00:00Z"`, "text": `time=2000-01-01T00:00:00Z`} {
			var out bytes.Buffer
			newTestLogger(t, &out, "info", format).Info("ready")
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %s in %s", format, want, out.String())
			}
		}
	})
}

func TestSecretsAreBlankedWhereverTheyStand(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		log := newTestLogger(t, &out, "info", format)
		log.With("Fence-Lease", "hush1").Info("refused", "lease_id", "hush2", "job_id", "nightly",
			slog.Group("request", "Authorization", "hush3", "claim_id", "hush4"), "key", HashKey("hush5"))
		if line := out.String(); strings.Contains(line, "hush") || !strings.Contains(line, "nightly") ||
			strings.Count(line, "[redacted]") != 4 {
			t.Errorf("%s: %s", format, line)
		}
	}
}

type bomb struct{}

func (bomb) LogValue() slog.Value         { panic("boom") }
func (bomb) MarshalJSON() ([]byte, error) { panic("boom") }
func (*bomb) Error() string               { panic("boom") }

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestNothingThatIsLoggedPanics(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		for _, w := range []io.Writer{&out, brokenPipe{}} {
			log := newTestLogger(t, w, "debug", format)
			log.Info("odd", []any{"no value"}...) // spread, or go vet would catch it
			log.Info("odd", []any{1, 2, nil, nil}...)
			log.Info("odd", "error", error(nil), "typed nil", (*bomb)(nil), "time", nil, "func", func() {}, "chan", make(chan int))
			log.Info("bomb", "value", bomb{}, "error", error(&bomb{}))
			log.WithGroup("").With().Info("not UTF-8 \xff\n", "k\xff", "v\xff\n")
		}
		if n := strings.Count(out.String(), "\n"); n != 5 {
			t.Errorf("%s: %d lines, want 5:\n%s", format, n, out.String())
		}
		if format == "json" {
			for line := range strings.Lines(out.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("not JSON: %s", line)
				}
			}
		}
	}
}

func TestAKeyIsShownAsTwelveDigitsOfItsHash(t *testing.T) {
	// printf abc | sha256sum
	if got := HashKey("abc"); got != "ba7816bf8f01" {
		t.Errorf("HashKey(abc) is %s", got)
	}
	if HashKey("a") == HashKey("b") {
		t.Error("two keys look the same")
	}
}

func newTestLogger(t *testing.T, w io.Writer, level, format string) *slog.Logger {
	t.Helper()
	threshold, err := ParseLevel(level)
	if err != nil {
		t.Fatal(err)
	}
	log, err := NewLogger(w, threshold, format)
	if err != nil {
		t.Fatal(err)
	}
	return log
}
