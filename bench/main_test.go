package main

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's own program be the children of the bench.
func TestMain(m *testing.M) {
	if role := roleOf(os.Args); role != nil {
		exit(role(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func TestARunPrintsEveryFigureBesideItsPeer(t *testing.T) {
	var out strings.Builder
	s := settings{rounds: 1, window: 100 * time.Millisecond, warmUp: 20 * time.Millisecond, dir: t.TempDir(), caddy: "caddy", nginx: "nginx"}
	for _, part := range []string{"raise", "hop", "peers", "keyed"} { // testing.Benchmark takes a second each
		s.only = part
		if err := bench(t.Context(), s, &out); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
	}
	for _, want := range []string{
		"durable floor raises, 1 writers", "durable floor raises, 64 writers", "durable floor raises, 256 writers",
		"CPU per write, beside httputil.ReverseProxy, tuned", "CPU per write, beside Caddy", "CPU per write, beside nginx",
		"CPU per fenced write, 64 connections", "CPU per fenced write, 1 connections",
		"keyed writes, 1 connections", "keyed writes, 256 connections", "fsyncs per write", "replays", "p50", "p99", "What this leaves out",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the report:\n%s", want, out.String())
		}
	}
}

func TestAMessageIsSkippedToItsEnd(t *testing.T) {
	br := bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1 204 No Content\r\n\r\n"))
	for _, want := range []string{"HTTP/1.1 200 OK\r\n", "HTTP/1.1 204 No Content\r\n"} {
		if got, err := skipMessage(br); err != nil || string(got) != want {
			t.Errorf("got %q (%v), want %q", got, err, want)
		}
	}
}

func TestQuantilesTakeTheNearestRank(t *testing.T) {
	for _, c := range []struct {
		q    float64
		want int64
	}{{0, 1}, {0.5, 3}, {0.99, 5}, {1, 5}} {
		if got := quantile([]int64{5, 3, 1, 4, 2}, c.q); got != c.want {
			t.Errorf("the %v-quantile is %d, want %d", c.q, got, c.want)
		}
	}
}
