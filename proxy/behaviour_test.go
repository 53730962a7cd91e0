package proxy

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/fidelity.md anew")

// fidelityPage is the page that shows the table.
const fidelityPage = "../docs/fidelity.md"

func behaviours() []behaviour {
	return slices.Concat(methodRows(), targetRows(), requestHeaderRows(), forwardingRows(), requestBodyRows(), expectRows(),
		statusRows(), replyHeaderRows(), replyBodyRows(), flushRows(), interimRows(), failureRows())
}

// verdict is a row with what each way changes.
type verdict struct {
	*behaviour
	ways map[string][]string
}

func TestHonestTrafficPassesAsIfNobodyWereThere(t *testing.T) {
	rows := behaviours()
	if len(rows) < 60 {
		t.Errorf("the table has %d rows, want at least 60", len(rows))
	}
	var table []verdict
	names := map[string]bool{}
	for i := range rows {
		row := &rows[i]
		if names[row.name] {
			t.Errorf("two rows are called %q", row.name)
		}
		names[row.name] = true
		v := verdict{row, map[string][]string{}}
		t.Run(row.name, func(t *testing.T) {
			want := observe(t, row, ways()[0])
			differs := false
			for _, w := range ways()[1:] {
				got := observe(t, row, w)
				d := difference(want, got)
				if w.name == bare && row.varies != "" {
					d = []string{"varies: " + row.varies}
				}
				v.ways[w.name] = d
				if w.name == bare || len(d) == 0 {
					continue
				}
				differs = true
				if row.because == "" {
					t.Errorf("%s is not as direct:\n%s", w.name, strings.Join(d, "\n"))
				}
			}
			if row.because != "" && !differs {
				t.Errorf("the row may differ (%s), and does not", row.because)
			}
		})
		table = append(table, v)
	}
	if t.Failed() {
		return
	}
	page := fidelityText(table)
	if *update {
		if err := os.WriteFile(fidelityPage, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(fidelityPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, page) {
		t.Errorf("docs/fidelity.md is not what was observed; look at the difference and run this test with -update\n%s",
			strings.Join(difference(strings.Split(string(have), "\n"), strings.Split(string(page), "\n")), "\n"))
	}
}

// fidelityText is the page.
func fidelityText(table []verdict) []byte {
	var b bytes.Buffer
	bareDiffers, oursDiffers := 0, 0
	for _, v := range table {
		bareDiffers += min(1, len(v.ways[bare]))
		if v.because != "" {
			oursDiffers++
		}
	}
	fmt.Fprintf(&b, `# Fidelity

How much of HTTP/1.1 passes unchanged. The test of package proxy that writes this page plays %d exchanges over raw sockets five
ways: directly to the upstream, through a bare `+"`httputil.ReverseProxy`"+` (`+"`Rewrite`"+` with `+"`SetURL`"+`, a tuned
transport), through fenceproxy as a fenced write with each of its two senders, and through fenceproxy on a route that does
not fence. What the upstream and the caller saw is compared with the direct way.

The bare proxy differs in %d rows, fenceproxy in %d. A row in which it differs without a reason on this page fails the test.

Not compared, because HTTP says that it does not count or belongs to one hop: the version; the case of header names and the
order of headers with different names (RFC 9110, section 5.3); blanks around values; how a body of unknown length is cut into
chunks; `+"`Connection`, `Keep-Alive`, `Date`"+` where a proxy has to add it (section 6.6.1). Headers that
[the protocol](protocol.md) adds are left out.

`, len(table), bareDiffers, oursDiffers)
	fmt.Fprint(&b, "## Where fenceproxy differs\n")
	for _, v := range table {
		if v.because != "" {
			v.show(&b, " "+v.because, ours, transport, plain)
		}
	}
	fmt.Fprint(&b, "\n## Where the bare proxy differs\n")
	for _, v := range table {
		if len(v.ways[bare]) > 0 {
			v.show(&b, "", bare)
		}
	}
	fmt.Fprint(&b, "\n## All exchanges\n\n| exchange | bare proxy | fenceproxy |\n|---|---|---|\n")
	for _, v := range table {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", v.name, sameOr(len(v.ways[bare]) > 0), sameOr(v.because != ""))
	}
	return b.Bytes()
}

func sameOr(differs bool) string {
	if differs {
		return "differs"
	}
	return "same"
}

// show writes what the named ways change. Ways that change the same are shown once.
func (v verdict) show(b *bytes.Buffer, why string, names ...string) {
	fmt.Fprintf(b, "\n**%s.**%s\n", v.name, why)
	for len(names) > 0 {
		d := v.ways[names[0]]
		var alike, others []string
		for _, n := range names {
			if slices.Equal(v.ways[n], d) {
				alike = append(alike, n)
			} else {
				others = append(others, n)
			}
		}
		names = others
		switch {
		case len(d) == 0:
		case len(alike)+len(others) < 3 && why != "", len(others) > 0:
			fmt.Fprintf(b, "\n%s:\n", strings.Join(alike, "; "))
			fallthrough
		default:
			fmt.Fprintf(b, "\n```diff\n%s\n```\n", strings.Join(d, "\n"))
		}
	}
}
