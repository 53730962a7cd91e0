package control

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

const (
	// storeRetry is what a caller is told to wait when the store is not
	// available: it is repaired by people.
	storeRetry = 5 * time.Second
	// leastRetry is the shortest Retry-After, which has no fractions.
	leastRetry = time.Second
)

// subject is what a refused call was about.
type subject struct {
	job string
	// generation is the caller's, zero if it named none.
	generation tokens.Generation
}

// refuse turns an error of the Authority into the problem that answers it.
func (s *server) refuse(r *http.Request, sub subject, err error) *wire.Problem {
	code, ok := wire.ForError(err)
	switch {
	case ok && code == wire.CodeStoreUnavailable:
		s.Logger.WarnContext(r.Context(), "store unavailable", "path", r.URL.Path, "job_id", sub.job, "error", err, "trace_id", traceOf(r).id)
	case !ok && r.Context().Err() != nil:
		code = wire.CodeOverloaded
	case !ok:
		s.Logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "job_id", sub.job, "error", err, "trace_id", traceOf(r).id)
	}
	var ref *tokens.Refusal
	if !errors.As(err, &ref) {
		ref = &tokens.Refusal{Err: err}
	}
	p := wire.NewProblem(code, "")
	p.JobID, p.Generation, p.Floor = sub.job, sub.generation, ref.Floor
	switch code {
	case wire.CodeLeaseHeld:
		held(&p, ref)
	case wire.CodeLeaseLost:
		lost(&p, ref)
	case wire.CodeGenerationMismatch:
		p.Detail = fmt.Sprintf("generation %d was expected, but %d is the current one of job %q%s; nothing was changed, look at the job again before you repeat this",
			sub.generation, ref.HolderGeneration, sub.job, heldBy(ref.Holder))
		p.Generation, p.Owner = ref.HolderGeneration, ref.Holder
	case wire.CodeJobCompleted:
		p.Result = ref.Result
		p.Detail = fmt.Sprintf("job %q is completed, so nobody can claim it; \"fenceproxy job reopen\" lets it run again", sub.job)
	case wire.CodeJobNotFound:
		p.Detail = fmt.Sprintf("job %q was never claimed, written to or fenced here; check its spelling, ids are compared byte for byte", sub.job)
	case wire.CodeWriteNotFound:
		p.Detail = fmt.Sprintf("job %q has no write under this key; \"fenceproxy write list --job %s\" shows what it has", sub.job, sub.job)
	case wire.CodeWriteSettled:
		p.Detail = fmt.Sprintf("the write is %s already, so there is nothing to resolve", ref.Write.State)
	case wire.CodeWriteInProgress:
		p.RetryAfter = leastRetry
		p.Detail = "the write is in flight; its outcome is recorded when the upstream answers"
	case wire.CodeGenerationsExhausted:
		p.Detail = fmt.Sprintf("job %q has used the highest generation, %d; go on under another job id", sub.job, tokens.MaxGeneration)
	case wire.CodeStoreUnavailable:
		p.RetryAfter = storeRetry
		p.Detail = "the store can not be read or written, so whether this took effect is not known; repeat it later with the same values, " + wire.PathReady + " says what is wrong"
	case wire.CodeOverloaded:
		p.RetryAfter = leastRetry
		p.Detail = "the request was broken off before it was answered; repeat it with the same values"
	default:
		return internal()
	}
	return &p
}

func held(p *wire.Problem, ref *tokens.Refusal) {
	left := max(0, ref.ExpiresIn)
	p.Owner, p.Generation, p.ExpiresIn = ref.Holder, ref.HolderGeneration, &left
	p.RetryAfter = max(leastRetry, milliseconds(left))
	if ref.Holder == "" {
		p.Detail = fmt.Sprintf("other claims of job %q are in front; ask again with wait_ms to stand in line", p.JobID)
		return
	}
	p.Detail = fmt.Sprintf("job %q is held by %q with generation %d for another %d ms, and longer if it renews; ask again later, or with wait_ms to stand in line",
		p.JobID, ref.Holder, ref.HolderGeneration, left)
}

// lost says how the lease was lost. The floor, not this answer, is what stops the old
// holder's writes; it may stop working as soon as it reads this.
func lost(p *wire.Problem, ref *tokens.Refusal) {
	p.Reason = string(ref.Ended)
	why := ""
	switch ref.Ended {
	case tokens.Superseded:
		why = "was superseded: another claim took the job over after the lease had run out"
	case tokens.Released:
		why = "was released"
	case tokens.Completed:
		why = "was completed"
	case tokens.Revoked:
		why = "was revoked by an operator"
	default:
		p.Reason = "unknown"
		p.Detail = fmt.Sprintf("job %q has no current lease with generation %d and this owner and lease_id; send the three as the claim was answered, or claim anew", p.JobID, p.Generation)
		return
	}
	p.Detail = fmt.Sprintf("generation %d of job %q %s; its writes are refused from now on, stop the work or claim anew", p.Generation, p.JobID, why)
}

func heldBy(owner string) string {
	if owner == "" {
		return ""
	}
	return fmt.Sprintf(", held by %q", owner)
}
