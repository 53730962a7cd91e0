package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/leaseclient"
)

const (
	proxyEnv     = "FENCEPROXY_PROXY"
	defaultProxy = "http://127.0.0.1:8080"

	// Exit codes of run beside those of the command.
	exitHeld      = 75 // EX_TEMPFAIL of sysexits.h: try again later
	exitLost      = 79
	exitOwn       = 125 // 125 to 127 as env(1), timeout(1) and the shells have them
	exitNoRunning = 126
	exitNotFound  = 127

	// defaultGrace is between TERM and KILL, if the ttl leaves room for it.
	defaultGrace = 5 * time.Second
)

// runOptions are what the command line of run says.
type runOptions struct {
	credentials
	job, control, proxy, onLost string
	ttl, wait, grace            time.Duration
	command                     []string
}

// newRunCommand returns "run": a program that knows nothing of leases, under one.
func newRunCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run --job ID [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a program as the holder of a job's lease",
		Long: `Claim a job, run a program while the lease is renewed, and complete the job when the program exits with 0;
release it otherwise. The program is started without a shell and finds in its environment:

  FENCE_JOB_ID, FENCE_GENERATION, FENCE_LEASE   what its writes have to carry
  FENCE_PROXY_URL                               a forwarder on loopback that adds just that to every request, and
                                                sends it to the proxy: curl "$FENCE_PROXY_URL/charge" -d amount=1

The program has a process group of its own. If no renewal succeeds the group gets TERM while --grace is left of the
lease, and KILL before anybody else can have the job, whatever the network does; a program that was told to stop in
this way is not told otherwise again. What the program leaves running in its group is ended too before the job is
given back. INT, TERM, HUP, QUIT and WINCH are passed on to the group, USR1 and USR2 to the program; a second INT kills.
An exit with 0 after such a signal completes the job as well: exit with something else if it is not done.

As with timeout(1), the group is in the background of a terminal: it can not read from it. A program that leaves its
group (setsid), or that goes on while this one is stopped, is not ended in time; the proxy refuses its writes. Whoever
may connect to ports of this machine's loopback can write through the forwarder while it is there.

The exit code is the program's, 128 and the number if a signal ended it; 75 if the job is held by somebody else or
completed, 79 if the lease was lost, 125 if this command itself failed, 126 if the program can not be started, and
127 if it is not found.`,
		Example: `  fenceproxy run --job nightly-2024-06-01 -- ./report.sh
  fenceproxy run --job invoice-42 --wait 10m -- sh -c 'curl -sf "$FENCE_PROXY_URL/charge" -d amount=1'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.command = args
			w := &wrapping{runOptions: o, stdin: cmd.InOrStdin(), stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}
			if err := w.check(cmd.Flags().Changed("grace")); err != nil {
				return w.fail(exitOwn, err)
			}
			return w.run(cmd.Context())
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return (&wrapping{stderr: cmd.ErrOrStderr()}).fail(exitOwn, err)
	})
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the program's name is the program's
	f.StringVar(&o.job, "job", "", "the job")
	f.DurationVar(&o.ttl, "ttl", 30*time.Second, "how long the lease lasts without a renewal")
	f.DurationVar(&o.wait, "wait", 0, "how long to wait for the lease to fall free, first come first served")
	f.DurationVar(&o.grace, "grace", defaultGrace, "how long before the end of the lease the program gets TERM; shortened so that a lost renewal costs nothing")
	f.StringVar(&o.onLost, "on-lost", "", "run this line by /bin/sh after the lease was lost and the program has ended, for at most "+onLostLimit.String())
	f.StringVar(&o.control, "control", fromEnv(controlEnv, defaultControl), "URL of the control listener; $"+controlEnv+" sets the default")
	o.credentials.add(f)
	f.StringVar(&o.proxy, "proxy", fromEnv(proxyEnv, defaultProxy), "URL of the data listener; $"+proxyEnv+" sets the default")
	return cmd
}

func fromEnv(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// wrapping is one run of a program under a lease.
type wrapping struct {
	runOptions
	stdin          io.Reader
	stdout, stderr io.Writer
}

// check looks at what can be wrong before anything is claimed, and shortens the grace.
func (w *wrapping) check(graceGiven bool) error {
	switch {
	case w.job == "":
		return errors.New("--job is missing: which job is it?")
	case len(w.command) == 0:
		return errors.New("no command to run: name it after --")
	case w.wait < 0 || w.grace < 0:
		return errors.New("--wait and --grace must not be negative")
	}
	if _, err := proxyURL(w.proxy); err != nil {
		return err
	}
	if most := mostGrace(w.ttl); w.grace > most {
		if graceGiven {
			w.say("--grace is shortened to %v, or with the ttl %v one lost renewal would end the program", most, w.ttl)
		}
		w.grace = most
	}
	return nil
}

// margin is how long before its end the lease counts as over: all processes are dead by then. It is what leaseclient
// takes by itself.
func margin(ttl time.Duration) time.Duration { return min(max(time.Second, ttl/10), ttl/3) }

// mostGrace is the longest grace. The group gets TERM three fifths of the ttl after the last good renewal at the earliest:
// the next one is due after a third, and if it hangs leaseclient has given it up by then and has made another.
func mostGrace(ttl time.Duration) time.Duration { return max(0, ttl*2/5-margin(ttl)) }

func proxyURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("--proxy is not the URL of a listener, such as %s", defaultProxy)
	}
	return u, nil
}

func (w *wrapping) say(format string, args ...any) {
	fmt.Fprintf(w.stderr, "fenceproxy run: "+format+"\n", args...)
}

// fail reports an error and makes it an exit code.
func (w *wrapping) fail(code int, err error) error {
	w.say("%v", err)
	return exitCode(code)
}

// startFailure is the exit code of a program that does not start.
func startFailure(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound
	}
	return exitNoRunning
}

// claimFailure is the exit code of a claim that was not granted.
func claimFailure(err error) int {
	if errors.Is(err, leaseclient.ErrHeld) || errors.Is(err, leaseclient.ErrCompleted) {
		return exitHeld
	}
	return exitOwn
}

// environment is what the program learns of its lease. The lease id is here and in no argument, where ps shows it.
func environment(l *leaseclient.Lease, forwarder string) []string {
	return append(inherited(),
		"FENCE_JOB_ID="+l.JobID(), fmt.Sprintf("FENCE_GENERATION=%d", l.Generation()),
		"FENCE_LEASE="+leaseID(l), "FENCE_PROXY_URL="+forwarder)
}

// inherited is the environment of a program under run: without the token, which is for claims of any of the caller's jobs.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, tokenEnv+"=") })
}

// giveUp is a context for the calls that end a lease. They are not cut short by the end of ctx.
func giveUp(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), after)
}
