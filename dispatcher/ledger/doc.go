// Package ledger reads the account of calls: one Record for each call, whatever its outcome, in the stream WEIR_CALLS.
//
// A portion (read.go) is a part of a stream. It is read in order, up to the last message that the stream's leader had
// when the reading began. Read gives records for reports and checks. ReadCharges gives those that an account
// of the limits lacks. A Tail reads the ledger's end when a replica takes over a partition, and keeps what it read for
// three purposes: to find jobs that have ended although their deletion was lost, to continue at the pace of every key,
// and to know ids that a producer may send again. LookUp, Newest and At read what lies before the end. A Follower reads
// the ledger as it grows, so that an intake knows the ids of jobs that ended in other replicas.
//
// # How far it reaches
//
// The ledger has a beginning: the server removes records by age, and the oldest ones when the stream is full. In
// memory, a Tail keeps whole records from only the last ten minutes, and of these at most the newest 500,000. Of older
// ones, as far back as dedupe, it keeps only the ids of jobs that ended. It notes how far back a reading got (tail.go).
// A process reads the ids once. Older data is looked up when it is needed, so that a bound costs round trips, not
// promises. If a key's debt may be older than what was read, the key's pace is looked up before its first call. If a
// call's intent is older, the call's outcome is looked up.
//
// The ledger keeps records for 62 days, in 8 GiB, or an eighth of the store if less. A key without a record there
// counts as called just before the ledger begins, so a slow key that is new waits as well. Ids have no such fallback: a
// partition certainly knows 2,097,152 of them (queue.SureIDs). If dedupe asks for more, or reaches back further than
// the ledger, the configuration's check or the log says so.
//
// The package writes nothing: the dispatcher writes a record after the result and before the job's deletion. The
// package knows nothing of the schedule.
//
// # What must hold
//
//   - What is not known to have been read counts as unknown, never as not called.
//   - A torn record, or one that names another api or key than its subject, does not count as a record. A reading
//     leaves it out, or fails with ErrUnreadable if an uncounted call would cost money.
//   - A record is stored once: its message id is made of its job and the number of the call.
package ledger
