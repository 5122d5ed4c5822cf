// Package move takes everything of weir from one NATS server to another, and keeps workers from a server whose jobs are elsewhere.
//
// Streams are moved by JetStream's snapshots, each whole or not at all, with their sequences: letters, marks, results and the
// ledger name jobs by them. A note at each end says that a move is under way, and whether it is done.
//
//  1. The notes are written. From then on no weir starts at either end (RefuseElsewhere), one that runs ends (Watch), and whoever
//     begins a lease looks for the note after writing it (CheckStillHere).
//  2. Who dispatched at the source and is only silent has its lease ended for good.
//  3. Every stream is copied, and compared with the source, which must not have changed.
//  4. The notes say that it is done, and the source's streams are sealed.
//
// What always holds: at no moment can the jobs be called at both ends. A move can be broken off at any time; the same command goes on
// with it, or takes it back while it is not done. The source keeps what it had.
//
// The package does not know what is in the streams.
package move
