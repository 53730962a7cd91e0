// Package tokens is the domain of fenceproxy: jobs, generations, floors,
// leases and attempts, the rules that judge them, and the one loop that applies
// the rules to a store.
//
// Three layers, each of which can be read alone:
//
//   - The rules (rules.go, judge.go) are pure functions from a record, a
//     request and a time to a new record and an answer. No I/O, no clock, no
//     goroutine.
//   - [Store] is everything that an engine has to do. It has no opinion on
//     meaning.
//   - [Authority] is the only loop that reads, decides and commits, and the only
//     keeper of attempts: writes that were admitted and whose outcome is not yet
//     known.
//
// The promise, per job: once the floor has risen no older write is admitted, and
// the first write of the newer generation is let go only when every older
// attempt has been settled. A lease is temporary ownership; it is never a promise
// that something happens exactly once.
package tokens
