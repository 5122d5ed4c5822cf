// Package restoreguard tells a store that was restored from a backup from the store that weir left.
//
// A restored store is complete and consistent: nothing in it says that time has passed since the backup, or that jobs
// waiting in it were called. So the evidence must be outside the store, or must be something that a copy does not keep.
//
//   - The data directory of the embedded server has a file that holds its own inode and time of birth (directory.go). A
//     copy of the file, by cp, tar or rsync, has another inode and time of birth. The same directory under another
//     name, or mounted elsewhere, keeps them. Every start makes a new file, so a copy written into an older file of the
//     same directory is detected too.
//   - Every start counts up a generation in NATS (lineage.go), and notes it outside the store: in WEIR_STATE_DIR and in
//     Redis. If a store's generation is lower than that in a note, the store is older than the note.
//   - The notes also hold the last sequences of the streams (marks.go). A backup of the present generation ends before
//     these sequences. A note is written only when the server has synced the messages that the note is about, so a power
//     cut does not look like a restored backup.
//
// A start that finds a restored store follows an Order in NATS (order.go). The order says which jobs were in the
// backup, and from when on it is unknown which calls were made. The order is written before any call is made. So
// even if the process dies meanwhile, every later start follows it.
//
// Invariant: the package reports what it finds and decides nothing. If it cannot tell whether a store was restored, it
// says so.
//
// A restored snapshot of a whole volume keeps inodes and times of birth. Only notes on another volume or in Redis
// reveal such a restoration.
package restoreguard
