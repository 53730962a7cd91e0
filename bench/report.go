package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// report collects the rows of the table and the notes below it.
type report struct {
	out   io.Writer
	rows  []row
	notes []string
}

// row is one figure of both sides. Goal says in words what is hoped for; met whether it
// was reached, where there is one.
type row struct {
	what, ours, peer, ratio, goal string
}

func newReport(out io.Writer) *report { return &report{out: out} }

func (r *report) progress(format string, args ...any) {
	fmt.Fprintf(r.out, format+"\n", args...)
}

func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// add adds a row without a goal.
func (r *report) add(what, ours, peer, ratio string) {
	r.rows = append(r.rows, row{what, ours, peer, ratio, ""})
}

// judge adds a row with a goal.
func (r *report) judge(what, ours, peer, ratio, goal string, met bool) {
	verdict := "MISSED"
	if met {
		verdict = "met"
	}
	r.rows = append(r.rows, row{what, ours, peer, ratio, goal + ": " + verdict})
}

// print writes the table. Columns are for a person; nothing parses them.
func (r *report) print() error {
	fmt.Fprintf(r.out, "\n%s, %s/%s, %d processors; medians of interleaved rounds\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tfenceproxy\tbeside\tratio\tgoal")
	for _, row := range r.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", row.what, row.ours, row.peer, row.ratio, row.goal)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	fmt.Fprintln(r.out, "\nWhat this leaves out, and how it was measured:")
	for _, n := range r.notes {
		fmt.Fprintln(r.out, "- "+n)
	}
	return nil
}

// median of the values, which are sorted in place; zero if there are none.
func median[T int64 | float64 | time.Duration](v []T) T {
	return quantile(v, 0.5)
}

// quantile sorts v in place and returns its q-quantile, by nearest rank.
func quantile[T int64 | float64 | time.Duration](v []T, q float64) T {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[int(q*float64(len(v)-1)+0.5)]
}

func times(f float64) string { return fmt.Sprintf("%.2fx", f) }

func micros(d time.Duration) string {
	return fmt.Sprintf("%.0f us", float64(d)/float64(time.Microsecond))
}

// spread shows how far apart the rounds were: a wide one means that the machine was
// busy with something else.
func spread(v []float64, format string) string {
	return fmt.Sprintf("["+format+" .. "+format+"]", slices.Min(v), slices.Max(v))
}
