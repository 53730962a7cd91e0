package main

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// newWriteCommand returns "write": what is known of keyed writes.
func newWriteCommand() *cobra.Command {
	var flags apiFlags
	cmd := &cobra.Command{
		Use:   "write",
		Short: "Look at keyed writes, and say what became of unknown ones",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags.add(cmd)
	cmd.AddCommand(newWriteList(&flags), newWriteResolve(&flags))
	return cmd
}

func newWriteList(flags *apiFlags) *cobra.Command {
	var (
		job, state string
		limit      int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List keyed writes",
		Example: `  fenceproxy write list --state unknown
  fenceproxy write list --job invoice-42`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"limit": {strconv.Itoa(limit)}}
			for name, value := range map[string]string{"job_id": job, "state": state} {
				if value != "" {
					query.Set(name, value)
				}
			}
			c, err := flags.client()
			if err != nil {
				return err
			}
			defer c.close()
			var page wire.WritesResponse
			body, err := c.get(cmd.Context(), wire.PathWrites, query, &page)
			if err != nil {
				return err
			}
			if flags.json {
				return put(cmd.OutOrStdout(), string(body))
			}
			return printWrites(cmd.OutOrStdout(), page.Writes)
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "only the writes of this job")
	cmd.Flags().StringVar(&state, "state", "", fmt.Sprintf("only writes in this state, one of %v", tokens.WriteStates()))
	cmd.Flags().IntVar(&limit, "limit", wire.DefaultPage, fmt.Sprintf("writes to show, at most %d", wire.MaxPage))
	return cmd
}

func newWriteResolve(flags *apiFlags) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "resolve JOB KEY applied|not-applied",
		Short: "Say what became of a write whose outcome is unknown",
		Long: `Say what became of a write whose outcome is unknown. Find out first, at the upstream: after
"not-applied" the next write under the key is sent again, after "applied" it never is.`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.client()
			if err != nil {
				return err
			}
			defer c.close()
			q := wire.ResolveRequest{JobID: args[0], Key: args[1], Outcome: tokens.Verdict(args[2]), Reason: reason}
			var w wire.Write
			body, err := c.post(cmd.Context(), wire.PathResolve, q, &w)
			if err != nil {
				return err
			}
			if flags.json {
				return put(cmd.OutOrStdout(), string(body))
			}
			return put(cmd.OutOrStdout(), fmt.Sprintf("the write of job %s under key %s is %s now\n", args[0], args[1], w.State))
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	return cmd
}

func printWrites(w io.Writer, writes []wire.Write) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tKEY\tGENERATION\tSTATE\tSTATUS\tREQUEST\tROUTE\tSTARTED")
	for _, v := range writes {
		status := "-"
		if v.Status != 0 {
			status = strconv.Itoa(v.Status)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s %s\t%s\t%s\n", v.JobID, v.Key, v.Generation, v.State, status, v.Method, v.Path, v.Route, v.Started)
	}
	return t.Flush()
}
