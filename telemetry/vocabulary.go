package telemetry

import "slices"

// other is the label value for anything that is not on a fixed list, so that no caller can create series.
const other = "other"

// Decision is what the proxy did with a write. The words are those of the Fence-Decision response header.
type Decision uint8

// The decisions. A write that was let through is Forwarded whatever the upstream answered.
const (
	Forwarded Decision = iota
	Replayed
	Refused
)

// String returns the decision's label value.
func (d Decision) String() string { return word(decisions, int(d)) }

// Outcome is what became of an attempt. The words are those of the Fence-Outcome response header.
type Outcome uint8

// The outcomes of an attempt.
const (
	Applied  Outcome = iota // the upstream did it
	Declined                // the upstream answered that it did not do it
	NotSent                 // no byte reached the upstream
	Unknown                 // nobody can tell
)

// String returns the outcome's label value.
func (o Outcome) String() string { return word(outcomes, int(o)) }

// The fixed lists. Each is read only.
var (
	decisions = []string{"forwarded", "replayed", "refused"}
	outcomes  = []string{"applied", "declined", "not-sent", "unknown"}

	leaseOperations = []string{"claim", "renew", "complete", "release", "revoke", "fence", "reopen", "resolve", other}
	leaseResults    = []string{
		"granted", "repeated", "held", "completed", // answers to a claim
		"ok", "lapsed", "lost", // answers to a holder
		"invalid", "unauthenticated", "forbidden", "not-found", "conflict", "unavailable", // answers to anyone
		other,
	}

	engines         = []string{"badger", "postgres", "etcd", "memory", other}
	storeOperations = []string{
		"load", "commit", "list", "sweep", "watch", "heartbeat", "backup", "restore", "probe", other,
	}
)

// Bucket bounds, in seconds unless said otherwise. They start where the fast path is (microseconds in memory, a tenth of
// a millisecond for an fsync) and end beyond the default limits (timeout 60s, takeover.wait 10s).
var (
	requestBuckets = []float64{
		0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
	}
	admissionBuckets = []float64{
		0.000001, 0.00001, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 10,
	}
	takeoverBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	storeBuckets    = []float64{0.00001, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5}
	batchBuckets    = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024} // commits in one batch
)

// word names the i-th value of a list; a value beyond it is a programming error that must not take a request down.
func word(list []string, i int) string {
	if i >= len(list) {
		return other
	}
	return list[i]
}

// known returns value if it is on the list, and other if not. The lists are short enough for a scan to beat a map.
func known(list []string, value string) string {
	if slices.Contains(list, value) {
		return value
	}
	return other
}
