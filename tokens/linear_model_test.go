package tokens_test

import (
	"errors"
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/fenceproxy/fenceproxy/tokens"
)

// opKind is what a client of the history test asks for.
type opKind uint8

const (
	opClaim opKind = iota
	opRenew
	opRelease
	opRevoke
	opAdmit
)

func (k opKind) String() string {
	return []string{"claim", "renew", "release", "revoke", "admit"}[k]
}

// input of one operation; g is zero for a claim and a revocation.
type input struct {
	kind opKind
	g    tokens.Generation
}

// output of one operation: err is a sentinel, nil for success; unknown tells that it may
// or may not have taken effect; g is what a claim was granted.
type output struct {
	g       tokens.Generation
	err     error
	unknown bool
}

// answer classifies an error. ok is false if the operation certainly had no effect for
// a reason that says nothing about the job.
func answer(g tokens.Generation, err error) (out output, ok bool) {
	for _, s := range []error{tokens.ErrLeaseHeld, tokens.ErrLeaseLost, tokens.ErrStaleGeneration, tokens.ErrUnissuedGeneration, tokens.ErrJobNotFound} {
		if errors.Is(err, s) {
			return output{err: s}, true
		}
	}
	switch {
	case err == nil:
		return output{g: g}, true
	case errors.Is(err, tokens.ErrRefused):
		return output{}, false
	default:
		return output{unknown: true}, true
	}
}

// jobState is a job as the history test sees it. No lease runs out in it.
type jobState struct {
	floor, issued, lease tokens.Generation
	// released has a bit for each generation that was released by its holder.
	released [8]uint64
}

func (s jobState) wasReleased(g tokens.Generation) bool {
	return g/64 < 8 && s.released[g/64]&(1<<(g%64)) != 0
}

// after is the state once the operation took effect, and what it answers.
func (s jobState) after(in input) (jobState, output) {
	switch in.kind {
	case opClaim:
		if s.lease != 0 {
			return s, output{err: tokens.ErrLeaseHeld}
		}
		s.issued = max(s.issued+1, s.floor)
		s.floor, s.lease = s.issued, s.issued
		return s, output{g: s.issued}
	case opRenew:
		if s.lease == 0 || s.lease != in.g {
			return s, output{err: tokens.ErrLeaseLost}
		}
	case opRelease:
		if s.lease == 0 || s.lease != in.g {
			if s.wasReleased(in.g) {
				return s, output{}
			}
			return s, output{err: tokens.ErrLeaseLost}
		}
		s.released[in.g/64] |= 1 << (in.g % 64)
		s.floor, s.lease = in.g+1, 0
	case opRevoke:
		if s.floor == 0 {
			return s, output{err: tokens.ErrJobNotFound}
		}
		if s.lease != 0 {
			s.floor, s.lease = s.lease+1, 0
		}
	case opAdmit:
		if in.g < s.floor {
			return s, output{err: tokens.ErrStaleGeneration}
		}
		if in.g > s.issued {
			return s, output{err: tokens.ErrUnissuedGeneration}
		}
	}
	return s, output{}
}

// jobModel is the sequential specification of one job.
func jobModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{jobState{}} },
		Step: func(state, in, out any) []any {
			s, i, got := state.(jobState), in.(input), out.(output)
			next, want := s.after(i)
			switch {
			case got.unknown:
				return []any{s, next}
			case got == want:
				return []any{next}
			case i.kind == opRelease && errors.Is(got.err, tokens.ErrLeaseLost) && s.wasReleased(i.g):
				return []any{s} // a record remembers only the last few
			}
			return nil
		},
		DescribeOperation: func(in, out any) string {
			i, o := in.(input), out.(output)
			return fmt.Sprintf("%s %d -> %d %v unknown=%v", i.kind, i.g, o.g, o.err, o.unknown)
		},
	}
	return m.ToModel()
}
