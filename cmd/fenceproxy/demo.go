package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/config"
	"github.com/fenceproxy/fenceproxy/telemetry"
)

// demoTimeout bounds the story, which takes about four seconds: a proxy that hangs must
// not hang the demo.
const demoTimeout = 30 * time.Second

func newDemoCommand() *cobra.Command {
	var once, verbose bool
	cmd := &cobra.Command{
		Use:   "demo [--once]",
		Short: "Watch stale writes being refused, and what they do without a fence",
		Long: `demo starts a payment API that does what anybody asks, and this proxy in front of it,
both on free ports of the loopback interface. It plays three takeovers over real HTTP,
sends each write to a second, unfenced copy of the API too, and compares what the two
were made to do. Then it serves on, for you to try, until it is interrupted.

Its data is in a temporary directory, which is removed at the end. FENCEPROXY_ variables
have no effect on it.`,
		Example: `  fenceproxy demo
  fenceproxy demo --once`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), once, verbose)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "end after the story; exit code 1 if the API's record is not the expected one")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "show the proxy's own log on standard error")
	return cmd
}

// demo plays the story and, unless once is set, serves on until a signal or the end of
// ctx. A record that is not the expected one is exitCode(1), already explained on errs.
func demo(ctx context.Context, out, errs io.Writer, once, verbose bool) error {
	whole := ctx // the daemon drains after the signal
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal has its default effect
	// "demo | head" must not end the process before it has removed its
	// directory. Broken sockets raise this signal too: it only means something
	// where the output fails.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	defer signal.Stop(pipes)

	show := &stage{w: out, colour: colourful(out, os.Getenv), broken: stop}
	fenced, err := startPaymentAPI()
	if err != nil {
		return err
	}
	defer fenced.close()
	bare, err := startPaymentAPI()
	if err != nil {
		return err
	}
	defer bare.close()
	d, remove, err := demoDaemon(whole, fenced.url(), errs, verbose)
	if err != nil {
		return err
	}
	defer remove()
	failed := d.start()
	defer d.stop()

	proxyURL, controlURL := "http://"+d.dataAddr(), "http://"+d.controlAddr()
	if err := playDemo(ctx, show, fenced, bare, proxyURL, controlURL); err != nil {
		if err := show.failure(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return errors.New("the demo was interrupted")
		}
		var found *demoFaults
		if errors.As(err, &found) {
			fmt.Fprintln(errs, found)
			return exitCode(1)
		}
		return err
	}
	if once {
		return show.failure()
	}
	fenced.watch(func(v visit) { show.visitor("the API behind the fence", v) })
	bare.watch(func(v visit) { show.visitor("the API without a fence", v) })
	printTry(show, tries(proxyURL, controlURL), proxyURL, controlURL, bare.url())
	select {
	case <-ctx.Done():
		return show.failure()
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	}
}

// playDemo plays all scenes, prints both records and the verdict. The error is a
// *demoFaults if the fence did not do what it promises.
func playDemo(ctx context.Context, show *stage, fenced, bare *paymentAPI, proxyURL, controlURL string) error {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	s := &story{stage: show, fenced: fenced, bare: bare, proxyURL: proxyURL, controlURL: controlURL}
	defer s.close()
	defer cancel() // before close, which waits for what is still being sent
	record, err := s.play(ctx)
	if err != nil {
		return fmt.Errorf("play the story: %w", err)
	}
	printLedger(show, record.visits, bare.record())
	if found := judge(record); len(found) > 0 {
		return &demoFaults{found}
	}
	show.verdict("OK: behind the fence nothing was done twice or out of order, and the stale write never got out.")
	return nil
}

// demoDaemon builds the real daemon on free ports and in a temporary directory, which
// remove deletes after the daemon was stopped.
func demoDaemon(ctx context.Context, upstream string, errs io.Writer, verbose bool) (_ *daemon, remove func(), err error) {
	dir, err := os.MkdirTemp("", "fenceproxy-demo-")
	if err != nil {
		return nil, nil, fmt.Errorf("make data directory: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) } // what is left is in the system's temporary directory
	defer func() {
		if err != nil {
			remove()
		}
	}()
	// Not the process's environment: the story holds for the defaults.
	cfg, err := config.ForUpstream(upstream, []string{
		"FENCEPROXY_LISTEN=127.0.0.1:0", "FENCEPROXY_CONTROL_LISTEN=127.0.0.1:0", "FENCEPROXY_STORE_BADGER_DIR=" + dir,
		"FENCEPROXY_DRAIN=2s",
	})
	if err != nil {
		return nil, nil, fmt.Errorf("configure the demo: %w", err)
	}
	// The story provokes an unknown outcome, which is a warning.
	level := new(slog.LevelVar) // info
	if !verbose {
		level.Set(slog.LevelError)
	}
	log, err := telemetry.NewLogger(errs, level, cfg.Log.Format)
	if err != nil {
		return nil, nil, err
	}
	d, err := newDaemon(ctx, cfg, log, level)
	if err != nil {
		return nil, nil, fmt.Errorf("start the proxy: %w", err)
	}
	return d, remove, nil
}
