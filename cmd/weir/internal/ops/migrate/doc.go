// Package migrate moves all of weir from one NATS server to another. It also keeps workers from starting on a server
// whose jobs are on another one.
//
// It moves each stream as a JetStream snapshot, whole or not at all. The sequences stay, because letters, marks,
// results and the ledger refer to jobs by sequence. A note at each end says that a move is under way, and whether it is
// done.
//
//  1. The notes are written. From then on no weir starts at either end (RefuseElsewhere), and a running weir ends
//     (Watch). A replica that begins a lease looks for the note after it has written the lease (CheckStillHere).
//  2. If a replica dispatched at the source and is now silent, its lease is ended for good.
//  3. Every stream is copied, and compared with the source, which must not have changed.
//  4. The notes say that the move is done, and the source's streams are sealed.
//
// At no moment can weir call the jobs at both ends. A move may be interrupted at any time. The same command then
// continues the move. As long as the move is not done, a command can also take it back. The source keeps all its data.
//
// The package does not know what is in the streams.
package migrate
