package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// newLeaseCommand returns "lease": the lease API from a shell.
func newLeaseCommand() *cobra.Command {
	var flags apiFlags
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "Claim a job, and renew, release or complete its lease",
		Long: `Claim a job, and renew, release or complete its lease. Most programs are better off with "fenceproxy run", which
renews by itself.

The lease id is a secret. It is read from $FENCE_LEASE or from --lease-file, never from an argument, where ps shows it.
The job, the generation and the owner default to $FENCE_JOB_ID, $FENCE_GENERATION and $FENCE_OWNER.`,
		Example: `  export FENCE_JOB_ID=invoice-42
  export FENCE_GENERATION=$(fenceproxy lease claim --lease-file lease --json | jq .generation)
  fenceproxy lease renew --lease-file lease
  fenceproxy lease complete --lease-file lease --result '{"rows": 7}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags.add(cmd)
	cmd.AddCommand(newLeaseClaim(&flags), newLeaseRenew(&flags), newLeaseRelease(&flags), newLeaseComplete(&flags))
	return cmd
}

func newLeaseClaim(flags *apiFlags) *cobra.Command {
	var (
		owner, file       string
		ttl, wait, settle time.Duration
	)
	cmd := &cobra.Command{
		Use:   "claim [JOB]",
		Short: "Take the lease of a job",
		Long: `Take the lease of a job. With --lease-file the lease id is written there, for its owner's eyes only, and shown
nowhere; without, it is printed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := jobOf(args)
			if err != nil {
				return err
			}
			c, err := flags.client()
			if err != nil {
				return err
			}
			defer c.close()
			c.http.Timeout = clientTimeout + wait + settle
			q := wire.ClaimRequest{JobID: job, Owner: ownerOr(owner), TTL: ttl.Milliseconds(), ClaimID: rand.Text(),
				Wait: wait.Milliseconds(), Settle: settle.Milliseconds()}
			var got wire.ClaimResponse
			body, err := c.post(cmd.Context(), wire.PathClaim, q, &got)
			if err != nil {
				return err
			}
			if file != "" {
				if err := writeSecret(file, got.LeaseID); err != nil {
					_, gone := c.post(cmd.Context(), wire.PathRelease, wire.ReleaseRequest{JobID: got.JobID, Owner: got.Owner,
						Generation: got.Generation, LeaseID: got.LeaseID}, &wire.EndResponse{})
					return errors.Join(err, gone)
				}
				got.LeaseID = ""
				if body, err = without(body, "lease_id"); err != nil {
					return err
				}
			}
			if flags.json {
				return put(cmd.OutOrStdout(), string(body))
			}
			return printClaim(cmd.OutOrStdout(), got, file)
		},
	}
	f := cmd.Flags()
	f.StringVar(&owner, "owner", "", "the name under which others see who holds the job; a label, not a proof")
	f.StringVar(&file, "lease-file", "", "write the lease id to this file instead of printing it")
	f.DurationVar(&ttl, "ttl", 30*time.Second, "how long the lease lasts without a renewal")
	f.DurationVar(&wait, "wait", 0, "how long to wait for the lease to fall free, first come first served")
	f.DurationVar(&settle, "settle", 0, "how long to wait for writes of older generations, so that the report on them is final")
	return cmd
}

// leaseFlags name a lease that is held.
type leaseFlags struct{ owner, generation, file string }

func (f *leaseFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.owner, "owner", "", "the owner of the claim")
	cmd.Flags().StringVar(&f.generation, "generation", os.Getenv("FENCE_GENERATION"), "the generation of the claim")
	cmd.Flags().StringVar(&f.file, "lease-file", "", "read the lease id from this file, - for the standard input, instead of $FENCE_LEASE")
}

// lease reads which lease is meant.
func (f *leaseFlags) lease(cmd *cobra.Command, args []string) (q wire.ReleaseRequest, err error) {
	if q.JobID, err = jobOf(args); err != nil {
		return q, err
	}
	if f.generation == "" {
		return q, errors.New("which generation? Name it by --generation or $FENCE_GENERATION")
	}
	if q.Generation, err = tokens.ParseGeneration(f.generation); err != nil {
		return q, fmt.Errorf("read --generation: %w", err)
	}
	q.Owner = ownerOr(f.owner)
	q.LeaseID, err = readSecret(f.file, cmd.InOrStdin())
	return q, err
}

func newLeaseRenew(flags *apiFlags) *cobra.Command {
	var (
		lease leaseFlags
		ttl   time.Duration
	)
	cmd := &cobra.Command{
		Use:   "renew [JOB]",
		Short: "Prolong a lease",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lease.lease(cmd, args)
			if err != nil {
				return err
			}
			q := wire.RenewRequest{JobID: l.JobID, Owner: l.Owner, Generation: l.Generation, LeaseID: l.LeaseID}
			if ttl != 0 {
				millis := ttl.Milliseconds()
				q.TTL = &millis
			}
			var got wire.RenewResponse
			return askLease(cmd, flags, 0, wire.PathRenew, q, &got, func(w io.Writer) error {
				lapsed := ""
				if got.Lapsed {
					lapsed = "; it had run out, and nobody had taken it"
				}
				return put(w, fmt.Sprintf("generation %d of job %s: %s, until %s%s\n", l.Generation, l.JobID, remaining(got.ExpiresIn), got.LeaseUntil, lapsed))
			})
		},
	}
	lease.add(cmd)
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "another ttl than the lease has")
	return cmd
}

func newLeaseRelease(flags *apiFlags) *cobra.Command {
	var (
		lease leaseFlags
		wait  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "release [JOB]",
		Short: "Give a job back",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := lease.lease(cmd, args)
			if err != nil {
				return err
			}
			q.Wait = wait.Milliseconds()
			var got wire.EndResponse
			return askLease(cmd, flags, wait, wire.PathRelease, q, &got, sayEnd("released", &got))
		},
	}
	lease.add(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for writes in flight")
	return cmd
}

func newLeaseComplete(flags *apiFlags) *cobra.Command {
	var (
		lease  leaseFlags
		result string
		wait   time.Duration
	)
	cmd := &cobra.Command{
		Use:   "complete [JOB]",
		Short: "Mark a job as done: claims of it are refused until it is reopened",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if result != "" && !json.Valid([]byte(result)) {
				return fmt.Errorf("--result %q is no JSON; a text needs quotes of its own: '\"done\"'", result)
			}
			l, err := lease.lease(cmd, args)
			if err != nil {
				return err
			}
			q := wire.CompleteRequest{JobID: l.JobID, Owner: l.Owner, Generation: l.Generation, LeaseID: l.LeaseID,
				Result: json.RawMessage(result), Wait: wait.Milliseconds()}
			var got wire.EndResponse
			return askLease(cmd, flags, wait, wire.PathComplete, q, &got, sayEnd("completed", &got))
		},
	}
	lease.add(cmd)
	cmd.Flags().StringVar(&result, "result", "", "what later claims are told, as JSON")
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for writes in flight")
	return cmd
}

func sayEnd(how string, got *wire.EndResponse) func(io.Writer) error {
	return func(w io.Writer) error {
		return put(w, fmt.Sprintf("generation %d of job %s is %s, the floor is %d%s\n", got.Generation, got.JobID, how, got.Floor,
			stillInFlight(wire.JobView{InFlight: got.InFlight})))
	}
}

// askLease posts and prints the answer.
func askLease(cmd *cobra.Command, flags *apiFlags, wait time.Duration, path string, q, out any, say func(io.Writer) error) error {
	c, err := flags.client()
	if err != nil {
		return err
	}
	defer c.close()
	c.http.Timeout = clientTimeout + wait
	body, err := c.post(cmd.Context(), path, q, out)
	if err != nil {
		return err
	}
	if flags.json {
		return put(cmd.OutOrStdout(), string(body))
	}
	return say(cmd.OutOrStdout())
}

func jobOf(args []string) (string, error) {
	if len(args) == 1 {
		return args[0], nil
	}
	if job := os.Getenv("FENCE_JOB_ID"); job != "" {
		return job, nil
	}
	return "", errors.New("which job? Name it as the argument or by $FENCE_JOB_ID")
}

// ownerOr returns the same label for all commands of one user on one machine.
func ownerOr(owner string) string {
	if owner != "" {
		return owner
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fromEnv("FENCE_OWNER", fromEnv("USER", "fenceproxy")+"@"+host)
}

// maxSecret bounds what is read as a lease id, in bytes.
const maxSecret = 4 << 10

func readSecret(file string, stdin io.Reader) (string, error) {
	var (
		raw []byte
		err error
	)
	switch file {
	case "":
		raw = []byte(os.Getenv("FENCE_LEASE"))
	case "-":
		raw, err = io.ReadAll(io.LimitReader(stdin, maxSecret))
	default:
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return "", fmt.Errorf("read lease id: %w", err)
	}
	if id := strings.TrimSpace(string(raw)); id != "" {
		return id, nil
	}
	return "", errors.New("no lease id: set $FENCE_LEASE, or name a file by --lease-file")
}

// writeSecret writes a new file, or replaces one, that only its owner can read.
func writeSecret(file, text string) error {
	tmp := file + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write lease id: %w", err)
	}
	_, err = f.WriteString(text + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, file)
	}
	if err != nil {
		_ = os.Remove(tmp) // the error above is the one that matters
		return fmt.Errorf("write lease id: %w", err)
	}
	return nil
}

// without takes a member out of a JSON object and leaves the others as they came.
func without(object []byte, name string) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	delete(members, name)
	out, err := json.Marshal(members)
	return append(out, '\n'), err
}
