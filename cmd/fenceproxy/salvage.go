package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/tokens"
	"github.com/fenceproxy/fenceproxy/tokens/badgerstore"
)

// newSalvageCommand returns "salvage", the way out that the embedded store names when
// it refuses to open.
func newSalvageCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "salvage --data DIR",
		Short: "Rebuild a damaged data directory from what is readable in it",
		Long: `salvage replaces the embedded store in DIR by one that holds every job that can still
be read, in a new epoch: what was lost may have been a higher floor, so no generation
that was issued before is admitted any more, and every holder has to claim again. Jobs
whose generations come from an outside issuer need generations above the new epoch, too.

The old files are kept as they are. The proxy must be stopped. An older copy of the
directory must be salvaged as well before it is used: floors may have risen since.`,
		Example: "  fenceproxy salvage --data /var/lib/fenceproxy",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := badgerstore.Salvage(badgerstore.Options{Dir: dir})
			if err != nil {
				return err
			}
			return printSalvage(cmd.OutOrStdout(), dir, report)
		},
	}
	cmd.Flags().StringVar(&dir, "data", "", "the data directory")
	if err := cmd.MarkFlagRequired("data"); err != nil {
		panic(err) // the flag is defined one line above
	}
	return cmd
}

// printSalvage says what was saved, what was lost, and what to do now.
func printSalvage(w io.Writer, dir string, r badgerstore.SalvageReport) error {
	base := tokens.Generation(r.Epoch) * tokens.EpochSize
	lost := "none of those that were acknowledged"
	switch {
	case r.Acknowledged == 0:
		lost = "unknown: the sequence file could not be read"
	case r.Found < r.Acknowledged:
		lost = fmt.Sprintf("those after change %d, up to %d that was acknowledged last", r.Found, r.Acknowledged)
	case len(r.Unreadable) > 0:
		lost = "unknown: not all files could be read to their end"
	}
	unreadable := "nothing"
	if len(r.Unreadable) > 0 {
		unreadable = strings.Join(r.Unreadable, "; ")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"data directory", dir},
		{"jobs kept", fmt.Sprint(r.Jobs)},
		{"jobs dropped", fmt.Sprintf("%d (their record makes no sense; their old generations are refused like all others)", r.Dropped)},
		{"writes kept", fmt.Sprintf("%d, of which %d are blocked as unknown because their record may be out of date", r.Writes, r.Blocked)},
		{"lost changes", lost},
		{"unreadable", unreadable},
		{"epoch", fmt.Sprintf("%d: every generation up to %d is refused, the next claim of a job gets %d or higher", r.Epoch, base, base+1)},
		{"old files", r.Kept + " (delete them when nobody wants to look at them any more)"},
		{"what now", "start the proxy; every worker has to claim again"},
	} {
		if _, err := fmt.Fprintf(t, "%s\t%s\n", row[0], row[1]); err != nil {
			return fmt.Errorf("print report: %w", err)
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print report: %w", err)
	}
	return nil
}
