package docs

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/telemetry"
)

func TestTheCodesOfTheProtocolAreThoseOfTheProgram(t *testing.T) {
	var shown []string
	for _, row := range rows(t, readPage(t, "docs/protocol.md"), "| code | status | retry | when |") {
		shown = append(shown, strings.Join(row[:3], " "))
	}
	var have []string
	for _, c := range wire.Codes() {
		have = append(have, fmt.Sprintf("%s %d %s", c.Name, c.Status, c.Retry))
	}
	compare(t, shown, have)
}

func TestTheMetricsOfTheProtocolAreThoseOfTheProgram(t *testing.T) {
	m := telemetry.NewMetrics(telemetry.Build{}, []string{"r"}, []string{"c"})
	m.Observe(func() float64 { return 0 }, func() float64 { return 0 })
	m.ObserveUnknown(func() (n, oldestSeconds float64) { return 0, 0 })
	m.StoreOperation("badger", "commit", 0.001)
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	page := rec.Body.String()

	var have []string
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (fenceproxy_\w+)`).FindAllStringSubmatch(page, -1) {
		sample := regexp.MustCompile(`(?m)^` + found[1] + `(?:_count)?(?:\{(.*?)\})? `).FindStringSubmatch(page)
		if sample == nil {
			t.Fatalf("%s has no series", found[1])
		}
		have = append(have, found[1]+" "+labels(sample[1]))
	}
	var shown []string
	for _, row := range rows(t, readPage(t, "docs/protocol.md"), "| metric | labels | what it counts |") {
		names := strings.Split(row[1], ", ")
		slices.Sort(names)
		shown = append(shown, row[0]+" "+strings.Join(names, ","))
	}
	compare(t, shown, have)
}

// labels returns the sorted names of a series' labels.
func labels(series string) string {
	var names []string
	for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(series, -1) {
		names = append(names, l[1])
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func compare(t *testing.T, shown, have []string) {
	t.Helper()
	for _, s := range shown {
		if !slices.Contains(have, s) {
			t.Errorf("the page has %q, the program has not", s)
		}
	}
	for _, h := range have {
		if !slices.Contains(shown, h) {
			t.Errorf("the program has %q, the page has not", h)
		}
	}
}

// TestTheLinksOfThePagesLeadSomewhere checks the links within the repository, and their anchors.
func TestTheLinksOfThePagesLeadSomewhere(t *testing.T) {
	for page, dir := range map[string]string{
		"README.md": "", "DESIGN.md": "", "CONTRIBUTING.md": "", "CHANGELOG.md": "", "docs/protocol.md": "docs/", "docs/operations.md": "docs/",
		"docs/outside-issuers.md": "docs/", "docs/access.md": "docs/", "docs/fidelity.md": "docs/",
	} {
		for _, m := range regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(readPage(t, page), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = dir + file
			}
			text := readPage(t, target)
			if anchor != "" && !slices.Contains(anchors(text), anchor) {
				t.Errorf("%s: %s has no heading for #%s", page, target, anchor)
			}
		}
	}
}

// anchors are the names under which the headings of a page can be linked to.
func anchors(page string) (out []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(name, " ", "-"))
	}
	return out
}
