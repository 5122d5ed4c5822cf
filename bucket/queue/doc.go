// Package queue is the queue behind every key: one JetStream stream for each partition of an api.
//
// The queue is the stream. A message is an unfinished job, under one subject per key; a finished job is deleted; recovery
// is reading the stream again. Besides jobs a stream holds markers: intents (calls about to start), retries (attempts
// used, holds), and its owner's epoch.
//
//	weir.q.<api>.<partition>.j.<key>    jobs
//	weir.q.<api>.<partition>.i.<id>     intents, several jobs in one
//	weir.q.<api>.<partition>.r.<seq>-…  retry marks
//	weir.o.<api>.<partition>            the owner's epoch: the stream refuses intents of an earlier owner
//
// A Partition has three parts that work side by side. The intake stores what waits in groups: one group is under way at a
// time, so that jobs of a key are stored in the order they came, and whatever comes meanwhile is the next group. The reader
// delivers the stream in order to the dispatcher. The sweeper deletes what is finished, one purge for all where nothing
// unfinished stands before it.
//
// # Capacity
//
// Where every key has the same capacity the stream itself refuses what does not fit (discard new per subject): exact,
// whoever publishes. A key with a smaller one is counted (count.go): its number of messages is read, and the job is
// published on the condition that the key's last message is still the same. The stream's own limit is never lowered:
// JetStream answers that by deleting the oldest messages of every key that is deeper.
//
// # Ids
//
// JetStream forgets the id of a deleted message when its server restarts. Ids of finished jobs come back from the ledger
// (finishedids.go), and dedupe.go judges whether a message with a known id is the same job.
//
// What is remembered of an end is when its job was accepted, not until when that matters: whether a copy is the same job
// follows from what dedupe was when the stream took the copy, and all values there were are known, with the times of their
// versions. A stream's own value changes some time after its version is stored. A copy that comes in between, with an age
// between the two values, is neither dropped nor called but becomes a letter.
//
// # Memory
//
// What is held of jobs has one set of bounds in bytes over all apis (holdings.go), in shares of what the process may hold:
// an eighth for jobs on their way into their streams; a sixteenth and at most 32 MB for messages kept ahead of their calls; an
// eighth for jobs near their call, with as much of their answers as is kept. Room for a job near its call is taken at once and
// before it is loaded, first come, first served; a job that is larger than all the room is called alone. As many keys as fit
// into three quarters are let in. What the server inside caches is not counted: it holds blocks weakly and loses them to the
// collector.
//
// # A stream that was reset
//
// Every ten seconds the stream's leader is asked for the first message behind what was read; the same one missing twice has
// the reader set up anew, where it was. What this process stored itself, or the server says is left, is missed sooner
// (silence.go). A server that lost its last writes gives their sequences to new jobs, which a reader that is past them
// would never be given (streamreset.go). Then the partition is let go of and read anew; what had ended, and is there again,
// the owner knows. Until a connection that was lost has been looked at so, nothing is deleted: the sequence may
// be another job's by then.
//
// # What was lost
//
// Before a new owner reads its stream, it asks how many messages stand in it. Where it is given fewer, Partition.Damage finds out which are
// missing, by key (damage.go).
//
// # What was taken out by hand
//
// Every three seconds an owner holds what its stream says of itself against what it read and has not finished (removal.go): a purge, deleted
// messages, and a stream that was deleted and is made again. Only owners delete, so a message that is missing was taken out by hand. The
// owner's memory still has which jobs waited, by key and sequence. A stream is made again to begin behind every sequence that was known, so that none
// is given twice: a late delete finds nothing, and a record of an earlier job is nobody else's.
//
// The owner's epoch may be among what is gone. Then the stream refuses every intent, and no call begins. The owner stores its epoch again
// (Markers.Renew) on the condition that none stands, while it has the right to the partition. If it had lost that right meanwhile, one of two
// owners' epochs is refused, and the other stands. The owner with the right then takes the partition over and stores its own epoch, and
// the stream refuses intents of the former.
//
// Not seen are jobs that another process stored and that were taken out before they were read; and what was taken out while no weir ran.
//
// The package knows nothing of HTTP, letters or the schedule; it asks a Forecaster when a job's call may start.
//
// # What must hold
//
//   - The book of a partition (book.go) counts a job from before it is stored until its message is deleted. It may count
//     too much for a moment, never too little.
//   - At or below the sequence of a purge only finished messages stand.
//   - An intent is stored only while its owner's epoch is the partition's newest.
package queue
