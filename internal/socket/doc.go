// Package socket reads and writes TCP connections without announcing each call to Go's
// scheduler.
//
// Package net announces every call of the kernel, for it might block: the runtime watches
// the thread, and if that is in the kernel for 20 us it hands the thread's work to another
// one. But a read or a write of a socket in Go does not block, it says EAGAIN. If it takes
// long, that is because the processor does something else, which happens all the time where
// the proxy is busy: then watching, handing over and waking cost a fifth of a write.
//
// Everything else is package net's: waiting until there is something to read, deadlines,
// closing. Other systems than Linux on amd64 and arm64, and the race detector, which has to see the calls, have
// all of it from there.
package socket
