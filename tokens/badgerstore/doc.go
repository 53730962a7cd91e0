// Package badgerstore is the embedded engine: one process, one directory, no
// server. It implements [tokens.Store] over Badger.
//
// What it adds to Badger, and why:
//
//   - One committer goroutine. Badger syncs once per transaction; the committer
//     carries everything that queued during the previous sync in the next
//     transaction, so a sync serves many jobs.
//   - A sequence number. Badger replays its log up to the first damaged record and
//     silently drops the rest. Every batch is committed at the next sequence
//     number (as Badger's own version), and goes into a small synced file beside
//     the store at the same time; both have it before it is acknowledged. A
//     directory that holds less than that file remembers, or has a hole, is refused
//     before Badger may touch it. If just the last batch is missing, because the
//     process died or because the end of the log is damaged, it is committed again
//     from the file, which holds the last two.
//   - A watch on free space. Badger writes through sparse memory maps, and a full
//     disk kills the process with SIGBUS.
//   - Keyed writes with two indexes, of the open ones and by expiry, changed in the
//     transaction that changes the write. Badger's own expiry is never used: it
//     follows the wall clock.
//   - A compaction that gives the space of purged writes back; see [Store.Compact].
//   - A clock that never runs backwards.
//
// After a commit or sync that failed, or that did not end in time, the store takes
// no more writes until the process is restarted: what a failed fsync left behind
// can not be known, and must not be tried again.
//
// The directory holds:
//
//	holder     locked by the process that has the directory open, and names it
//	sequence   the last two batches and their numbers, in two checksummed slots
//	store/     Badger's files
//	damaged-N/ what a salvage replaced
//
// Not promised: flock is local on network file systems, so the directory must be on
// a local disk.
package badgerstore
