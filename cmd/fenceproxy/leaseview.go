package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

func printClaim(w io.Writer, v wire.ClaimResponse, file string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, value any) { _, _ = fmt.Fprintf(t, "%s\t%v\n", name, value) } // Flush reports the error
	line("job", v.JobID)
	line("owner", v.Owner)
	line("generation", v.Generation)
	line("lease", fmt.Sprintf("%s (until %s, ttl %v)", remaining(v.ExpiresIn), v.LeaseUntil, milliseconds(v.TTL)))
	if file == "" {
		line("lease id", v.LeaseID)
	} else {
		line("lease id", "in "+file)
	}
	if p := v.Predecessor; p != nil {
		line("before", fmt.Sprintf("generation %d %s, owner %s: %d writes applied, %d declined, %d unknown, %d in flight",
			p.Generation, p.Ended, p.Owner, p.Writes.Applied, p.Writes.Declined, p.Writes.Unknown, p.InFlight))
		for _, u := range p.Unresolved {
			line("unresolved", fmt.Sprintf("key %s: %s %s, %s since %s", u.Key, u.Method, u.Path, u.State, u.Started))
		}
	}
	return written(t.Flush())
}
