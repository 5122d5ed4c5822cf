// Package bucket is the leaky bucket: the limits and the slots they grant, and the JetStream queue behind every key.
//
// # Slots
//
// A Store grants slots: the times at which calls may start, reserved under the key's own rate and all limits shared by
// an api at once, all of them or none. Memory does so in this process, redisstore for many. The arithmetic is GCRA in
// integer microseconds (gcra.go); how a rate becomes an interval that no window of arrivals can break is in pace.go;
// windows, quotas and money are in quota.go and sliding.go; how a restart goes on without ever having counted too
// little is in snapshot.go. Check and Pace (checker.go) hold recorded arrivals against the limits, exactly, and know
// nothing of the rest.
//
// # The queue
//
// The queue is the stream. One stream per (api, partition), one subject per key; a message is an unfinished job; a
// finished job is deleted, and recovery is reading the stream again. Besides jobs a stream holds markers: intents
// (calls about to start), retries (attempts used), and its owner's epoch.
//
//	weir.q.<api>.<partition>.j.<key>    jobs
//	weir.q.<api>.<partition>.i.<id>     intents, several jobs in one
//	weir.q.<api>.<partition>.r.<seq>-…  retry marks
//	weir.o.<api>.<partition>            the owner's epoch: intents of an earlier owner are refused by the stream
//
// A Partition has three parts that work side by side. The intake stores what waits in group commits (commit.go): one
// group is under way at a time, so that jobs of a key are stored in the order they came, and whatever comes meanwhile
// is the next group. The reader delivers the stream in order to the dispatcher. The sweeper deletes what is finished,
// one purge for all where nothing unfinished stands before it.
//
// # Capacity
//
// Where every key has the same capacity the stream itself refuses what does not fit (discard new per subject): exact,
// whoever publishes. A key with a smaller one is counted (count.go): its number of messages is read, and the job
// published on the condition that the key's last message is still the same. The stream's own limit is never lowered:
// JetStream answers that by deleting the oldest messages of every key that is deeper.
//
// # Who owns a partition
//
// Replicas find each other in a Registry, a key-value bucket: a Membership is one replica's lease, and its claims
// (claim.go) hang on it. Every write there names the revision that it replaces. Lease is the plainer right of one process,
// for what only one may do.
//
// # What must hold
//
//   - A slot granted is within every limit, whatever was granted before, in any window.
//   - Every error path grants less, never more.
//   - The book of a partition (book.go) counts a job from before it is stored until its message is deleted, so that it
//     may count too much for a moment, never too little.
//   - At or below the sequence of a purge only finished messages stand.
package bucket
