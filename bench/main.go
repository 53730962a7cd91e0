// Command bench measures what the fence costs, side by side with what one would have
// without it, and prints one table with the ratios:
//
//   - an admission and its settlement while the generation stays the same, beside one
//     look-up in a map under a mutex;
//   - durable floor raises through the Authority and the embedded store, beside Badger
//     with the same options and one transaction per write;
//   - CPU time of the real program per fenced write, beside a bare
//     httputil.ReverseProxy;
//   - the same beside Caddy and nginx as plain proxies, where they are installed;
//   - keyed writes through the real program, beside unkeyed ones, with what they cost the
//     store; and replays.
//
// Both sides of a pair run in turns, round after round, and medians count: figures of
// different runs, or of different machines, do not compare. It needs Linux's /proc.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

// settings of a run. The defaults take about four minutes.
type settings struct {
	rounds int           // of each pair
	window time.Duration // measured in each round
	warmUp time.Duration // before it, of the proxies
	dir    string        // where stores are made; it must lie on a real disk
	binary string        // a ready-made fenceproxy; built if empty
	only   string        // one of the parts; all if empty
	caddy  string        // the programs of the peers
	nginx  string
}

func main() {
	if role := roleOf(os.Args); role != nil {
		exit(role(os.Args[2:]))
	}
	var s settings
	flag.IntVar(&s.rounds, "rounds", 5, "rounds of each pair")
	flag.DurationVar(&s.window, "window", 2*time.Second, "measured time of each round")
	flag.DurationVar(&s.warmUp, "warm-up", 500*time.Millisecond, "time before it, of the proxies")
	flag.StringVar(&s.dir, "dir", "", "where stores are made, on a real disk; the system's temporary directory if empty")
	flag.StringVar(&s.binary, "binary", "", "a ready-made fenceproxy; it is built if empty")
	flag.StringVar(&s.only, "only", "", "one part: admit, raise, hop, peers or keyed")
	flag.StringVar(&s.caddy, "caddy", "caddy", "the program to measure beside; left out if it is not there")
	flag.StringVar(&s.nginx, "nginx", "nginx", "the program to measure beside; left out if it is not there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(bench(ctx, s, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// roleOf returns what this process is to do as a child of the bench, or nil.
func roleOf(args []string) func(args []string) error {
	if len(args) < 2 {
		return nil
	}
	return map[string]func([]string) error{
		"role-upstream": runUpstream,
		"role-peer":     runPeer,
		"role-load":     runLoad,
	}[args[1]]
}

// bench runs the parts and prints progress as it goes, and the table at the end.
func bench(ctx context.Context, s settings, out io.Writer) (err error) {
	if s.dir, err = os.MkdirTemp(s.dir, "fenceproxy-bench-"); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(s.dir) }() // the measurement is done either way
	parts := []struct {
		name string
		run  func(context.Context, settings, *report) error
	}{
		{"admit", benchAdmit},
		{"raise", benchRaise},
		{"hop", benchHop},
		{"peers", benchPeers},
		{"keyed", benchKeyed},
	}
	r := newReport(out)
	for _, p := range parts {
		if s.only != "" && s.only != p.name {
			continue
		}
		if err := p.run(ctx, s, r); err != nil {
			return fmt.Errorf("measure %s: %w", p.name, err)
		}
	}
	return r.print()
}
