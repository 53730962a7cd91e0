package main

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// newJobCommand returns "job", the operator's API from a shell.
func newJobCommand() *cobra.Command {
	var flags apiFlags
	cmd := &cobra.Command{
		Use:   "job",
		Short: "Look at jobs, and overrule their holders",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags.add(cmd)
	cmd.AddCommand(newJobList(&flags), newJobShow(&flags), newJobRevoke(&flags), newJobFence(&flags), newJobReopen(&flags))
	return cmd
}

func newJobList(flags *apiFlags) *cobra.Command {
	var (
		prefix, state, cursor string
		limit                 int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs in byte order of their ids",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"limit": {strconv.Itoa(limit)}}
			for name, value := range map[string]string{"prefix": prefix, "state": state, "cursor": cursor} {
				if value != "" {
					query.Set(name, value)
				}
			}
			c, err := flags.client()
			if err != nil {
				return err
			}
			defer c.close()
			var page wire.JobsResponse
			body, err := c.get(cmd.Context(), wire.PathJobs, query, &page)
			if err != nil {
				return err
			}
			if flags.json {
				return put(cmd.OutOrStdout(), string(body))
			}
			if err := printJobs(cmd.OutOrStdout(), page.Jobs); err != nil {
				return err
			}
			if page.Cursor != "" {
				return put(cmd.ErrOrStderr(), fmt.Sprintf("there are more: --cursor '%s'\n", page.Cursor))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only jobs whose id begins so")
	cmd.Flags().StringVar(&state, "state", "", fmt.Sprintf("only jobs in this state, one of %v", tokens.States()))
	cmd.Flags().IntVar(&limit, "limit", wire.DefaultPage, fmt.Sprintf("jobs on a page, at most %d", wire.MaxPage))
	cmd.Flags().StringVar(&cursor, "cursor", "", "go on behind this job")
	return cmd
}

func newJobShow(flags *apiFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show one job: its floor, its holder, and how its generations ended",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.client()
			if err != nil {
				return err
			}
			defer c.close()
			var v wire.JobView
			body, err := c.get(cmd.Context(), wire.PathJob, url.Values{"id": args}, &v)
			if err != nil {
				return err
			}
			if flags.json {
				return put(cmd.OutOrStdout(), string(body))
			}
			return printJob(cmd.OutOrStdout(), v)
		},
	}
}

func newJobRevoke(flags *apiFlags) *cobra.Command {
	var expect, reason string
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Kill the current generation of a job, whoever holds it",
		Long: "Kill the current generation of a job, whoever holds it. Its writes are refused from then on, and the job can be\n" +
			"claimed at once. Without --expect the generation is looked up first, and nothing happens if somebody claims\n" +
			"the job in between.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := wire.RevokeRequest{JobID: args[0], Reason: reason}
			if cmd.Flags().Changed("expect") {
				g, err := tokens.ParseGeneration(expect)
				if err != nil {
					return fmt.Errorf("read --expect: %w", err)
				}
				q.Expected = g
			} else {
				g, err := lookUpGeneration(cmd, flags, args[0])
				if err != nil {
					return err
				}
				q.Expected = g
			}
			return change(cmd, flags, wire.PathRevoke, q, func(v wire.JobView) string {
				return fmt.Sprintf("generation %d of job %s is dead, the floor is %d%s\n", v.Generation, v.JobID, v.Floor, stillInFlight(v))
			})
		},
	}
	cmd.Flags().StringVar(&expect, "expect", "", "the generation that you mean; refused if another one is current")
	addReason(cmd, &reason)
	return cmd
}

func lookUpGeneration(cmd *cobra.Command, flags *apiFlags, id string) (tokens.Generation, error) {
	c, err := flags.client()
	if err != nil {
		return 0, err
	}
	defer c.close()
	var v wire.JobView
	_, err = c.get(cmd.Context(), wire.PathJob, url.Values{"id": {id}}, &v)
	return v.Generation, err
}

func newJobFence(flags *apiFlags) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "fence ID FLOOR",
		Short: "Raise the floor of a job, so that every lower generation is refused",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			floor, err := tokens.ParseGeneration(args[1])
			if err != nil {
				return fmt.Errorf("read FLOOR: %w", err)
			}
			q := wire.FenceRequest{JobID: args[0], Floor: floor, Reason: reason}
			return change(cmd, flags, wire.PathFence, q, func(v wire.JobView) string {
				return fmt.Sprintf("the floor of job %s is %d%s\n", v.JobID, v.Floor, stillInFlight(v))
			})
		},
	}
	addReason(cmd, &reason)
	return cmd
}

func newJobReopen(flags *apiFlags) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "reopen ID",
		Short: "Let a completed job be claimed again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := wire.ReopenRequest{JobID: args[0], Reason: reason}
			return change(cmd, flags, wire.PathReopen, q, func(v wire.JobView) string {
				return fmt.Sprintf("job %s is %s, the next claim gets generation %d or higher\n", v.JobID, v.State, max(v.Floor, v.Generation+1))
			})
		},
	}
	addReason(cmd, &reason)
	return cmd
}

func addReason(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for the audit log")
}

// change posts an operator's action and says what the job is like afterwards.
func change(cmd *cobra.Command, flags *apiFlags, path string, q any, say func(wire.JobView) string) error {
	c, err := flags.client()
	if err != nil {
		return err
	}
	defer c.close()
	var v wire.JobView
	body, err := c.post(cmd.Context(), path, q, &v)
	if err != nil {
		return err
	}
	if flags.json {
		return put(cmd.OutOrStdout(), string(body))
	}
	return put(cmd.OutOrStdout(), say(v))
}
