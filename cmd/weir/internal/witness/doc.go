// Package witness tells a store that was put back from a backup from the one that weir left.
//
// A store that is restored is whole and consistent with itself: nothing in it says that time has passed since, and that jobs which wait in
// it were called. So what tells it must stand elsewhere, or must be what a copy does not keep.
//
//   - The data directory of the server inside has a file that notes its own inode and time of birth (directory.go). A copy of it, by cp,
//     tar or rsync, has others; the same directory under another name or mounted elsewhere has not. It is written anew at every start, so
//     that a copy over it is another file too.
//   - Every start counts up a generation in NATS (lineage.go), and notes it elsewhere: in WEIR_STATE_DIR and in Redis. A store whose
//     generation is behind a note is older than the note.
//   - Beside that is noted how far the streams had come (marks.go): a backup of the present generation ends before that. A note is taken
//     later than the servers sync, so that a power cut is not taken for a restore.
//
// What a start does that finds a restored store is an Order in NATS (order.go): which jobs were in the backup, and since when what was called
// is not known. It is written before anything else, so that every later start goes by it, whatever died meanwhile.
//
// What always holds: what was found is told as it is, and nothing is decided here. Where nothing can be told, that is said.
//
// A snapshot of a whole volume that is put back keeps inodes and times of birth: only notes on another volume, or in Redis, tell of it.
package witness
