// Package leaseclient is what a worker imports to own a job for a while, and to write as its owner through fenceproxy.
//
// A lease is temporary ownership, not a lock, and not "exactly once". The process that holds one can be paused, cut off
// or suspended for longer than its lease lasts, and a successor then works beside it. This package makes that rare and
// makes it known early; it can not make it impossible. What keeps the successor's data safe is the proxy, which refuses
// the writes of every older generation. So three rules hold:
//
//   - Send every write through [Lease.Transport]. A write that goes around the proxy is not fenced.
//   - Do all work under [Lease.Context], or the context that [Client.Run] passes on. It ends before the lease can be
//     granted to anybody else, as far as the clocks of this machine can tell.
//   - Name each write with [WithKey], the same name for the same intent in every generation. A successor that repeats
//     a step which is known to be applied is then answered from memory, and nothing is done twice.
//
// Most programs need [New], [Client.Run] and [Lease.Transport] only.
//
// # How long a lease is believed
//
// The deadline of a lease is the moment before the request was sent that granted or renewed it last, plus what the
// server granted, minus [Config].Margin. It counts from the sending and not from the answer, because an answer that was
// under way for long says nothing about now. Elapsed time is the larger of what the monotonic and the wall clock say:
// the monotonic clock stands still while a machine is suspended (golang/go#24595). So a wall clock that is wrong does no
// harm, and one that is set forward by more than is left of a lease ends it: that can not be told from a suspension.
//
// A lease is [Held], [Uncertain] (a renewal failed; it is tried again until the deadline) or [Lost]. Only the lease
// API's word, the proxy's refusal of a stale generation, or the deadline end it: never one failed call, and never an
// answer of the upstream. Loss needs no answer from the network, happens once, and is final: an answer that comes after
// the deadline revives nothing.
//
// # Secrets
//
// The lease id proves a claim to the proxy. This package never logs or prints it; it is in the headers that
// [Lease.Transport] and [Lease.Header] set, and nowhere else. Use TLS wherever others can listen.
package leaseclient
