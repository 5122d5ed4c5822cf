// Package ledger is the account of calls: one Record for each call in the stream WEIR_CALLS, whatever came of it.
//
// Everything is read in one way (portion, in read.go): a part of a stream, up to the last message that the stream's leader had when
// the reading began. Read gives records for reports and checks, ReadCharges those that an account of the limits lacks. A Tail
// reads the ledger's end when a partition is taken over, and keeps what was read: for jobs that have ended though their deletion
// was lost, for the pace of every key, and for ids that a producer may send again. LookUp, Newest and At read what lies before. A
// Follower reads the ledger as it grows, so that an intake knows the ids of jobs that ended in other replicas.
//
// # How far it reaches
//
// The ledger has a beginning: records go with their age, and the oldest where it is full. Of the last ten minutes the newest
// 500,000 records are kept whole in memory; of all before, as far back as dedupe, only the ids of jobs that ended. How far
// back a reading got is noted (tail.go); what may lie before is looked up when it matters, so that a bound costs round
// trips, not promises: a key's pace before its first call, if the key may owe more than that time; and what came of a call
// whose intent is older. The ids are read once by a process.
//
// Where the ledger itself has let go of records (62 days, 8 GiB, an eighth of the store), a key that it does not know counts
// as called just before it begins, and a slow key that is new waits as well. Ids have no such way out: a partition is sure
// of 2,097,152 of them (queue.SureIDs), and where dedupe asks for more, or reaches back further than the ledger, the
// configuration's check or the log says so.
//
// The package writes nothing: a record is written by the dispatcher, after the result and before the job's deletion. It
// knows nothing of the schedule.
//
// # What must hold
//
//   - Whatever is not known to have been read counts as unknown, never as not called.
//   - A record that is torn, or names another api or key than its subject, is none: it is left out, or the reading fails with
//     ErrUnreadable where a call that is not counted would cost money.
//   - A record is stored once: its message id is made of its job and the number of the call.
package ledger
