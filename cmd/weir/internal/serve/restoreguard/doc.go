// Package restoreguard distinguishes a store that was restored from a backup from the one that weir left.
//
// A restored store is whole and consistent with itself: nothing in it says that time has passed since, and that jobs
// waiting in it were called. So the evidence must be kept outside of it, or must be something that a copy does not
// keep.
//
//   - The data directory of the embedded server has a file that notes its own inode and time of birth (directory.go). A copy of it, by cp,
//     tar or rsync, has others; the same directory under another name or mounted elsewhere has the same. It is written anew at every start,
//     so that a copy over it is another file too.
//   - Every start counts up a generation in NATS (lineage.go), and notes it elsewhere: in WEIR_STATE_DIR and in Redis. A store whose
//     generation is behind a note is older than the note.
//   - Beside the generation the ends of the streams are noted (marks.go): a backup of the present generation ends before them. A note is
//     taken later than the servers sync, so that a power cut is not taken for a restore.
//
// A start that finds a restored store follows an Order in NATS (order.go): which jobs were in the backup, and from when
// on it is unknown what was called. The order is written before anything else, so that every later start follows it,
// whatever died meanwhile.
//
// What always holds: the package reports what it finds and decides nothing. It says so if it cannot tell.
//
// A restored snapshot of a whole volume keeps inodes and times of birth: only notes on another volume, or in Redis,
// reveal it.
package restoreguard
