package leaseclient

import (
	"time"

	"github.com/fenceproxy/fenceproxy/internal/wire"
	"github.com/fenceproxy/fenceproxy/tokens"
)

// Predecessor is what the server knew of the generation before a lease when it was claimed: what the old holder did, and
// what nobody knows.
type Predecessor struct {
	Generation tokens.Generation
	Owner      string
	// Ended says how it ended. Superseded means that its holder may still be running.
	Ended tokens.Ended
	// InFlight counts its writes whose outcome was still open. Writes of the new lease wait for them by themselves.
	InFlight int
	// Applied, Declined and Unknown count its settled writes.
	Applied, Declined, Unknown int64
	// Unresolved are the keyed writes whose outcome nobody knows. Look at the upstream before the step is repeated; the
	// proxy refuses the key until an operator has resolved it, unless the route forwards unknown ones again.
	Unresolved []UnresolvedWrite
}

// UnresolvedWrite is a write that may or may not have been applied.
type UnresolvedWrite struct {
	Key, Method, Path, Route string
	Generation               tokens.Generation
	// State is tokens.WriteInFlight or tokens.WriteUnknown.
	State tokens.WriteState
	// Started is by the server's clock; zero if it could not be read.
	Started time.Time
}

func predecessorOf(p *wire.Predecessor) *Predecessor {
	if p == nil {
		return nil
	}
	out := &Predecessor{
		Generation: p.Generation, Owner: p.Owner, Ended: p.Ended, InFlight: p.InFlight,
		Applied: p.Writes.Applied, Declined: p.Writes.Declined, Unknown: p.Writes.Unknown,
	}
	for _, u := range p.Unresolved {
		started, _ := time.Parse(time.RFC3339, u.Started) // for people only
		out.Unresolved = append(out.Unresolved, UnresolvedWrite{
			Key: u.Key, Method: u.Method, Path: u.Path, Route: u.Route, Generation: u.Generation, State: u.State, Started: started,
		})
	}
	return out
}
