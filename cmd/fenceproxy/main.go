// Command fenceproxy is a reverse proxy that refuses the writes of workers which lost
// their lease.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	var refused *apiError
	if asked, _ := cmd.Flags().GetBool("json"); asked && errors.As(err, &refused) { // others have no such flag
		// A script needs what a refusal says, such as for how long the job is held.
		out := json.NewEncoder(stdout)
		out.SetEscapeHTML(false)
		_ = out.Encode(refused.problem) // the exit code says that it failed
	}
	fmt.Fprintln(stderr, "fenceproxy: "+err.Error())
	return 1
}

// exitCode is an error that was already reported and only sets the exit code.
type exitCode int

// Error implements error.
func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "fenceproxy",
		Short: "A reverse proxy that refuses the writes of workers which lost their lease",
		Long: `fenceproxy stands in front of an HTTP API and checks job and generation of each
write against a durable floor: stale writes are refused before anything reaches the
API, and a newer generation waits for, or cuts, what the older one still has under way.

A lease is temporary ownership, never exactly-once.`,
		Example: `  fenceproxy demo --once
  fenceproxy serve --upstream http://127.0.0.1:9000
  fenceproxy job show invoice-42`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newServeCommand(), newDemoCommand(), newJobCommand(), newWriteCommand(), newLeaseCommand(), newRunCommand(), newSalvageCommand(), newCheckConfigCommand(), newTokenCommand(),
		newVersionCommand())
	return root
}
