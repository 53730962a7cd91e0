package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestDemo runs three demos side by side, because each waits for real leases to run out,
// and then looks for what they left behind.
func TestDemo(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("FENCEPROXY_LISTEN", "no address") // has no effect
	t.Run("all", func(t *testing.T) {
		for name, f := range map[string]func(*testing.T){
			"once it tells the story and exits with 0":            theStoryOnce,
			"its lines to try by hand do what they say":           theLinesByHand,
			"without a fence it finds the record not as expected": theStoryWithoutAFence,
		} {
			// Not t.Parallel, which t.Setenv forbids.
			done := make(chan struct{})
			go func() {
				defer close(done)
				t.Run(name, f)
			}()
			defer func() { <-done }()
		}
	})
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	goleak.VerifyNone(t, before)
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func theStoryOnce(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"demo", "--once"}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("exit code %d, stderr %q", code, errs.String())
	}
	got := regexp.MustCompile(`(?m)^ +\d+\.\d{3}s `).ReplaceAllString(out.String(), " 0.000s ")
	for _, want := range []string{
		" 0.000s  A claims order-42, a lease of 1s         generation 1\n",
		" 0.000s  A charges instalment 1                   200                        200\n",
		" 0.000s  B has waited out the lease, and claims   generation 2\n" +
			" 0.000s  A goes on, and charges instalment 2      412 stale-generation       200\n" +
			" 0.000s      what the API saw of that             0 requests, 0 connections  1 request, 1 connection\n" +
			" 0.000s  B learns A did 1, charges instalment 2   200                        200\n",
		` 0.000s  C sets the status to "paid"              waits for A's write        200` + "\n" +
			` 0.000s  A has its answer                         200, Fence-Generation: 2   200, overwrites "paid"` + "\n" +
			" 0.000s  C has its answer                         200\n",
		" 0.000s  A is answered in the middle of it        412 stale-generation, cut  under way\n",
		"              B  instalment 2                           A  instalment 2\n" +
			"                                                        B  instalment 2, charged again\n",
		"  in the end  200 of 200 EUR, paid, statement C's       300 of 200 EUR, open, statement A's\n",
		"\nOK: ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 101 || strings.Contains(line, "\x1b") || strings.TrimRight(line, " \n")+"\n" != line {
			t.Errorf("too wide, coloured, or with blanks at its end: %q", line)
		}
	}
}

func theLinesByHand(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errs bytes.Buffer
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"demo"}, w, &errs)
		_ = w.Close()
	}()
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(r); in.Scan(); {
			lines <- in.Text()
		}
	}()
	var statuses []int
	for len(statuses) < 4 {
		line, ok := <-lines
		if !ok {
			t.Errorf("no more lines after statuses %v; stderr %q", statuses, errs.String())
			return
		}
		if !strings.HasPrefix(line, "  curl ") {
			continue
		}
		if head, more := strings.CutSuffix(line, `\`); more {
			line = head + <-lines
		}
		statuses = append(statuses, curl(t, line))
	}
	if want := []int{201, 200, 200, 412}; !slices.Equal(statuses, want) {
		t.Errorf("got statuses %v, want %v", statuses, want)
	}
	cancel()
	var saw []string
	for line := range lines {
		if strings.Contains(line, "the API behind the fence") {
			saw = append(saw, line)
		}
	}
	if len(saw) != 1 || !strings.Contains(saw[0], ": instalment 1 of mine, by Go-http-client") {
		t.Errorf("the API told %q of one write", saw)
	}
	if c := <-code; c != 0 || errs.Len() > 0 {
		t.Errorf("exit code %d, stderr %q", c, errs.String())
	}
}

// curl does what curl would with the line's -H and -d, and returns the status.
func curl(t *testing.T, line string) int {
	t.Helper()
	var args []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	method, url, body, header := http.MethodGet, "", "", http.Header{}
	for i := 1; i < len(args); i++ {
		switch {
		case args[i] == "-H":
			i++
			name, value, _ := strings.Cut(args[i], ": ")
			header.Set(name, value)
		case args[i] == "-d":
			i++
			method, body = http.MethodPost, args[i]
		case !strings.HasPrefix(args[i], "-"):
			url = args[i]
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Errorf("%s: %v", line, err)
		return 0
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("%s: %v", line, err)
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// theStoryWithoutAFence sends the fenced writes past the proxy as well.
func theStoryWithoutAFence(t *testing.T) {
	apis := make([]*paymentAPI, 2)
	for i := range apis {
		a, err := startPaymentAPI()
		if err != nil {
			t.Error(err)
			return
		}
		defer a.close()
		apis[i] = a
	}
	d, remove, err := demoDaemon(t.Context(), apis[0].url(), io.Discard, false)
	if err != nil {
		t.Error(err)
		return
	}
	defer remove()
	d.start()
	defer d.stop()
	show := &stage{w: io.Discard, broken: func() {}}
	err = playDemo(t.Context(), show, apis[0], apis[1], apis[0].url(), "http://"+d.controlAddr())
	var found *demoFaults
	if !errors.As(err, &found) || !strings.Contains(err.Error(), "the stale write reached the API") {
		t.Errorf("got %v", err)
	}
}

func TestADemoThatNobodyReadsEndsWithTheReason(t *testing.T) {
	before := goleak.IgnoreCurrent()
	r, w := io.Pipe()
	_ = r.Close()
	var errs bytes.Buffer
	code := run(t.Context(), []string{"demo"}, w, &errs)
	if want := "fenceproxy: write output: io: read/write on closed pipe\n"; code != 1 || errs.String() != want {
		t.Errorf("exit code %d, stderr %q, want 1 and %q", code, errs.String(), want)
	}
	goleak.VerifyNone(t, before)
}

func TestOnlyATerminalThatWantsColoursGetsThem(t *testing.T) {
	terminal, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, c := range []struct {
		w    io.Writer
		env  map[string]string
		want bool
	}{
		{terminal, nil, true},
		{terminal, map[string]string{"NO_COLOR": "1"}, false},
		{terminal, map[string]string{"NO_COLOR": ""}, true},
		{terminal, map[string]string{"TERM": "dumb"}, false},
		{file, nil, false},
		{&bytes.Buffer{}, nil, false},
	} {
		if got := colourful(c.w, func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%T with %v: got %v, want %v", c.w, c.env, got, c.want)
		}
	}
	var out bytes.Buffer
	s := &stage{w: &out, colour: true}
	s.line([]cell{{"a", bad}, {"b", plain}, blank}, []int{3, 3, 3})
	if got, want := out.String(), "\x1b[31ma  \x1b[0mb\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
