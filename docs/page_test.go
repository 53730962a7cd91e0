package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = ".."

// block is one fenced block of a page.
type block struct {
	info string // what stands behind the opening fence
	text string
	line int // of the opening fence
}

// readPage reads a page of the repository.
func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the fenced blocks of a page, in order.
func blocks(page string) (out []block) {
	var open *block
	n := 0
	for line := range strings.Lines(page) {
		n++
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			open = &block{info: strings.TrimSpace(fence), line: n}
		case isFence:
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text += line
		}
	}
	return out
}

// rows returns the cells of the table whose first row is head, without backquotes.
func rows(t *testing.T, page, head string) (out [][]string) {
	t.Helper()
	_, table, found := strings.Cut(page, head+"\n")
	if !found {
		t.Fatalf("there is no table that begins with %q", head)
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "`", "")
		}
		if !strings.HasPrefix(cells[0], "---") {
			out = append(out, cells)
		}
	}
	return out
}

// fits reports whether output is what a page shows. There … stands for anything, also for lines, and a time such as
// 0.002s for any time.
func fits(shown, output string) bool {
	parts := strings.Split(tidy(shown), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(parts, `.*?`) + `$`).MatchString(tidy(output))
}

// tidy takes away what no page shows, carriage returns and blanks at the end of lines, and what differs each time.
func tidy(s string) string {
	s = regexp.MustCompile(`\b\d+\.\d{3}s\b`).ReplaceAllString(s, "0.000s")
	lines := strings.Split(strings.ReplaceAll(s, "\r", ""), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func TestFitsTellsWhatDiffers(t *testing.T) {
	cases := []struct {
		shown, output string
		want          bool
	}{
		{"HTTP/1.1 200 OK\n", "HTTP/1.1 200 OK\r\n", true},
		{"a …\nc", "a 17 ms\nb\nc", true},
		{"a …\nc", "a 17 ms\nb\n", false},
		{" 0.001s  A claims", " 1.234s  A claims", true},
		{" 0.001s  A claims", " 1.234s  B claims", false},
		{"a.c", "abc", false},
		{"a", "a\nb", false},
	}
	for _, c := range cases {
		if got := fits(c.shown, c.output); got != c.want {
			t.Errorf("%q fits %q: %v", c.output, c.shown, got)
		}
	}
}
