package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
)

func stillInFlight(v wire.JobView) string {
	if v.InFlight == 0 {
		return ""
	}
	return fmt.Sprintf("; %d writes are still in flight", v.InFlight)
}

func printJobs(w io.Writer, jobs []wire.JobView) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "JOB\tSTATE\tGENERATION\tFLOOR\tIN FLIGHT\tOWNER\tLEASE") // Flush reports the error
	for _, v := range jobs {
		owner, lease := "-", "-"
		if v.Lease != nil {
			owner, lease = v.Lease.Owner, remaining(v.Lease.ExpiresIn)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n", v.JobID, v.State, v.Generation, v.Floor, v.InFlight, owner, lease)
	}
	return written(t.Flush())
}

func printJob(w io.Writer, v wire.JobView) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, value any) { _, _ = fmt.Fprintf(t, "%s\t%v\n", name, value) } // Flush reports the error
	line("job", v.JobID)
	if v.Namespace != "" {
		line("namespace", v.Namespace)
	}
	line("state", v.State)
	line("generation", v.Generation)
	line("floor", v.Floor)
	if v.RaisedAt != "" {
		line("floor raised", v.RaisedAt)
	}
	if v.RaisedBy != "" {
		line("raised by trace", v.RaisedBy)
	}
	line("in flight", v.InFlight)
	if l := v.Lease; l != nil {
		line("owner", l.Owner)
		line("lease", fmt.Sprintf("%s (until %s, ttl %v)", remaining(l.ExpiresIn), l.LeaseUntil, milliseconds(l.TTL)))
		line("granted", l.Granted)
		if l.Renewed != "" {
			line("renewed", l.Renewed)
		}
	}
	for _, p := range v.Past {
		by := ""
		if p.Owner != "" {
			by = ", owner " + p.Owner
		}
		line("before", fmt.Sprintf("generation %d %s%s", p.Generation, p.Ended, by))
	}
	if len(v.Result) > 0 {
		line("result", string(v.Result))
	}
	return written(t.Flush())
}

func remaining(millis int64) string {
	d := milliseconds(millis)
	if d <= 0 {
		return fmt.Sprintf("ran out %v ago", (-d).Round(time.Second))
	}
	return fmt.Sprintf("%v left", max(time.Second, d.Round(time.Second)))
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func put(w io.Writer, s string) error {
	_, err := io.WriteString(w, s)
	return written(err)
}

func written(err error) error {
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}
