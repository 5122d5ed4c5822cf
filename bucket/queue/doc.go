// Package queue is the queue behind every key: one JetStream stream for each partition of an api.
//
// The queue is the stream. Each unfinished job is one message; each key has one subject. The owner deletes finished
// jobs, and recovers by reading the stream again. A stream also holds markers: intents (calls about to start), marks
// (attempts, holds, ends, operations), and its owner's epoch.
//
//	weir.q.<api>.<partition>.j.<key>    jobs
//	weir.q.<api>.<partition>.i.<id>     intents, several jobs in one
//	weir.q.<api>.<partition>.r.<seq>-…  marks
//	weir.o.<api>.<partition>            the owner's epoch: the stream refuses intents of an earlier owner
//
// A Partition has three parts that work in parallel. The intake stores waiting jobs in groups. One group is under way
// at a time, so that jobs of a key are stored in the order they came. The jobs that come meanwhile form the next group.
// The reader delivers the stream in order to the dispatcher. The sweeper deletes finished messages, with one purge if
// no unfinished message comes before them.
//
// # Parts and locks
//
//	source     the stream on its servers, and the requests to it; it never changes
//	contents   what this process knows of the stream's messages; its lock guards its parts: the book of unfinished jobs,
//	           the messages that were read and not deleted, the position of the reader, the appointments
//	intake     the jobs that wait to be stored, under a lock of its own, which is taken before that of the contents
//	reading    one call of Read; its goroutine and its watchdog use it
//	sweeper    the exchange of deletes, for its goroutine alone
//
// A step that concerns several parts of the contents is one method of contents: for example the stream's answer to a
// put, which settles a ticket of the book, notes an appointment, and tells the reader what to expect.
//
// # Capacity
//
// If every key has the same capacity, the stream itself refuses what does not fit (discard new per subject). That is
// exact for any publisher. A key with a smaller capacity is counted (count.go): the intake reads its number of
// messages, and publishes the job on the condition that the key's last message is still the same. The stream's own
// limit is never lowered: JetStream would delete the oldest messages of every key that has more jobs than the new
// limit.
//
// # Ids
//
// Beside the sequence of each job that it delivers, the reader keeps 32 bits of a hash of the job's id (find.go). So a
// search for an id loads only jobs that have it, however many wait.
//
// JetStream forgets the id of a deleted message when its server restarts. Ids of finished jobs come back from the
// ledger (finishedids.go), and dedupe.go judges whether a message with a known id is the same job.
//
// For an ended job the queue remembers when the job was accepted, not for how long its id is known. The value of dedupe
// at the time when the stream took a copy decides whether the copy is the same job. The queue knows all former values,
// with the times of their versions. A stream gets a new value some time after the version with it is stored. A copy
// that comes in between, and whose age lies between the two values, is neither dropped nor called but becomes a letter.
//
// # Memory
//
// One set of bounds, in bytes over all apis, limits how much memory jobs take (holdings.go). Each bound is a share of
// the memory that the process may use. Jobs on their way into their streams get an eighth. Messages kept ahead of their
// calls get a sixteenth, at most 32 MiB. Jobs near their call get an eighth, the kept part of their answers included. A
// job near its call takes all its room before it is loaded; jobs are served in the order they ask. A job that is larger
// than the whole room is called alone. The intake accepts as many keys as fit into three quarters of the memory. The
// cache of the embedded server is not counted: it holds blocks weakly, and the garbage collector frees them.
//
// # A stream that was reset
//
// Every ten seconds the reader asks the stream's leader for the first message behind the last one that it read. If the
// same message is missing twice, the reader is restarted from its last message. The reader notices sooner if the
// missing message was stored by this process, or if the server reported that it has more (silence.go).
//
// A server that lost its last writes gives their sequences to new jobs. A reader that is past these sequences would
// never receive the new jobs (streamreset.go). Then the owner drops the partition and reads it again; it knows which
// jobs had ended, and does not call them again. After a lost connection the sweeper deletes nothing until the reader
// has looked for such a reset, because another job may have the sequence by then.
//
// # What was lost
//
// Before a new owner reads its stream, it asks how many messages the stream holds. If it receives fewer,
// Partition.Damage finds out which messages are missing, by key (damage.go).
//
// # What was taken out by hand
//
// Every three seconds an owner compares the state of its stream with the messages that it read and has not finished
// (removal.go). It finds a purge, deleted messages, and a stream that was deleted and made again. Only owners delete,
// so a message that is missing was taken out by hand. The owner still holds in memory which jobs waited, by key and
// sequence. A stream that is made again begins after every known sequence, so that no sequence is used twice: a late
// delete finds nothing, and no new job gets the records of an earlier one.
//
// The owner's epoch may be among the deleted messages. Then the stream refuses every intent, and no call begins. While
// the owner has the right to the partition, it stores its epoch again (Markers.Renew), on the condition that the stream
// has no epoch. If the owner loses that right meanwhile, the stream takes only one of the two owners' epochs. The owner
// with the right then takes the partition over and stores its own epoch, and the stream refuses intents of the former
// owner.
//
// The owner does not notice the loss of jobs that another process stored and that were deleted before they were read.
// By a note of the former owner, the next owner finds jobs that were deleted while weir was stopped
// (dispatcher/takeover/inventory.go).
//
// The package knows nothing of HTTP, letters or the schedule; it asks a Forecaster when a job's call may start.
//
// # What must hold
//
//   - The book of a partition (book.go) counts a job that this process stores from before it is stored, and any other
//     job from when it is read, until its message is deleted.
//   - At or below the sequence of a purge all messages are finished.
//   - An intent is stored only while its owner's epoch is the partition's newest.
package queue
