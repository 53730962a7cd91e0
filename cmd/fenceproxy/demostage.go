package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Widths of the timeline's columns. The last one has 23 left, of 100.
const (
	timeWidth   = 9
	whoWidth    = 2
	whatWidth   = 39
	fencedWidth = 27
)

// tone says how a piece of text is meant; on a terminal it has a colour.
type tone string

const (
	plain tone = ""
	faint tone = "\x1b[2m"
	loud  tone = "\x1b[1m"
	good  tone = "\x1b[32m"
	bad   tone = "\x1b[31m"
)

// cell is one column of a row.
type cell struct {
	text string
	tone tone
}

// stage prints the demo. Safe for concurrent use, once it is open.
type stage struct {
	colour bool
	// began is when the times that it prints are counted from.
	began time.Time
	// broken is called when nobody reads any more.
	broken func()

	mu  sync.Mutex
	w   io.Writer
	err error // the first one
}

// colourful tells whether w is a terminal that is to have colours. NO_COLOR is obeyed as
// https://no-color.org says.
func colourful(w io.Writer, getenv func(string) string) bool {
	f, ok := w.(*os.File)
	if !ok || getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// line prints cells, each padded to its width but for the last one.
func (s *stage) line(cells []cell, widths []int) {
	last := len(cells) - 1
	for last >= 0 && cells[last].text == "" {
		last--
	}
	var b strings.Builder
	for i := 0; i <= last; i++ {
		text := cells[i].text
		if i < last {
			text = fmt.Sprintf("%-*s", widths[i], text)
		}
		if s.colour && cells[i].tone != plain && strings.TrimSpace(text) != "" {
			text = string(cells[i].tone) + text + "\x1b[0m"
		}
		b.WriteString(text)
	}
	b.WriteByte('\n')
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.WriteString(s.w, b.String()); err != nil && s.err == nil {
		s.err = written(err)
		s.broken()
	}
}

// failure is the first error of the output.
func (s *stage) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *stage) text(text string, t tone) { s.line([]cell{{text, t}}, nil) }

func (s *stage) row(who, what string, fenced, bare cell) {
	s.rowAt(time.Now(), who, what, fenced, bare)
}

func (s *stage) rowAt(at time.Time, who, what string, fenced, bare cell) {
	s.line(
		[]cell{{s.since(at), faint}, {who, loud}, {what, plain}, fenced, bare},
		[]int{timeWidth, whoWidth, whatWidth, fencedWidth, 0},
	)
}

func (s *stage) since(at time.Time) string { return fmt.Sprintf("%6.3fs", at.Sub(s.began).Seconds()) }

func (s *stage) opening() {
	s.began = time.Now()
	s.text("Workers hold a job by a lease, and write to a payment API that does whatever it is asked.", plain)
	s.text("Each write is sent twice at the same moment: through fenceproxy, and straight to a second copy.", plain)
	s.text("", plain)
	s.line(
		[]cell{{"", plain}, {"through fenceproxy", loud}, {"straight to the API", loud}},
		[]int{timeWidth + whoWidth + whatWidth, fencedWidth, 0},
	)
}

func (s *stage) scene(title, rest string) {
	s.text("", plain)
	s.line([]cell{{title, loud}, {" (" + rest + ")", faint}}, []int{0, 0})
}

func (s *stage) verdict(text string) { s.text(text, good) }

// visitor tells of a write that reached an API while the demo serves on.
func (s *stage) visitor(api string, v visit) {
	s.text(fmt.Sprintf("%s  %s: %s of %s, by %s, %s", s.since(v.left), api, v.what, v.order, v.worker, v.state), plain)
}

// blank is a column with nothing to say.
var blank = cell{}

func generation(w *demoWorker) cell {
	return cell{fmt.Sprint("generation ", w.lease.Generation), plain}
}

func replied(r reply) cell {
	if r.reason != "" {
		return cell{r.String(), good}
	}
	return cell{r.String(), plain}
}

// late is the answer to a write that should not have come through any more.
func late(r reply, harm string) cell {
	if r.status == 200 {
		return cell{r.String() + ", " + harm, bad}
	}
	return cell{r.String(), plain}
}

func seen(t traffic, tone tone) cell {
	return cell{fmt.Sprintf("%s, %s", count(t.requests, "request"), count(t.connections, "connection")), tone}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
