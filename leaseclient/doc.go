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
// # Short leases
//
// A renewal that hangs is given up after a third of the time that is left, but not before 1 s (or the time that is left, if
// that is less). The next is made at most 100 ms after the first failure, and 200 ms after the second or a third of what is
// left then. Of a lease of 30 s 17 s are left when the renewal is due, and two that hang leave some 7 s for the third.
// When less than 3 s are left each costs 1 s, and no pause is shorter than 50 ms. So, at the latest moment of a renewal
// and with an answer to the last one in up to 100 ms:
//
//	two that hang in a row lose nothing if ttl*2/3 - margin is more than 2.15 s and the time of the answer
//	one that hangs loses nothing        if ttl*2/3 - margin is more than 1.05 s and the time of the answer
//
// With the default margin, which is 1 s for a ttl from 3 s to 10 s, two are borne above a ttl of 4.73 s, and one above
// 3.08 s; with the largest margin, a third of the ttl, above 6.45 s and 3.15 s. With an answer in 100 ms these are 4.88 s
// and 3.23 s, 6.75 s and 3.45 s. So the smallest ttl in whole seconds that bears two is 5 s, or 7 s with the largest
// margin. The time of a claim's answer comes off its first renewal. Renewals that fail at once, as when nobody listens,
// cost next to no time.
//
// # Secrets
//
// The lease id proves a claim to the proxy. This package never logs or prints it; it is in the headers that
// [Lease.Transport] and [Lease.Header] set, and nowhere else. Use TLS wherever others can listen.
package leaseclient
