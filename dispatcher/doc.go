// Package dispatcher owns the partitions of every api, makes their calls when the schedule says so, and brings every job to exactly one
// end.
//
// # The way of a job
//
// job.go has it on one screen. An apiWorker works the partitions of one api: a thin shell around a schedule (dispatcher/schedule), which
// decides which call may start when. A job that is near its call gets a goroutine of its own, which
//
//  1. prepares it: its message is loaded, a connection to the api is open, its intent is stored,
//  2. waits for its slot, which the schedule asks for only now,
//  3. calls, from the slot on and at most four fifths of the api's jitter later, or not at all,
//  4. settles: stores the result and then the ledger's record; or the record and then the letter, which can be written again from it. Last
//     the job's message is deleted. Each happens when the one before is durable. A crash between two of these repeats what follows, and
//     message ids keep it from being kept twice. A reply to the producer is sent between the result and the record.
//
// What is left to do in the slot is to send. A slot that was missed is given back, or lost.
//
// The worker's lock guards its schedule and its partitions; nothing is waited for under it. Of a job the lock guards what the schedule
// decides by (schedule.Job), and the rest belongs to the goroutine that brings the job on its way (job.go).
//
// httpcall.Judge reads what happened as done, retry, pushback, denied or dead, and the schedule is told what the end of a call says of
// those to come. A time in a header is judged by the answer's Date, a number by its size: seconds to wait, or an epoch in s, ms, µs or
// ns. A hold that no job's retry mark speaks of has a mark of its own in the partition (holdmark.go).
//
// A store of slots on another machine is asked in the background, one round at a time, while calls start. Ends of grants are told until
// they are heard (grantends.go).
//
// # Where a thing happens
//
//	the worker of an api     dispatcher.go, apiworker.go, terms.go, limiter.go, grantends.go, metrics.go, spending.go
//	a job's way              job.go, preparation.go, intent.go, jobmemory.go, messagecache.go, flight.go, spans.go
//	what comes of its call   settle.go, settlement.go, jobend.go
//	a partition taken over   host.go, contact.go, partition.go, takeover.go, tailload.go, replay.go
//	a key found there        pace.go, orphanedcalls.go
//	a job found there        found.go; what is known of it: history.go, evidence.go, flight.go, doubt.go, duplicate.go; what it may be:
//	                         lostcall.go, loneresult.go; and resultbar.go, unrecorded.go
//	what holds calls         holdmark.go, pause.go
//	what operators ask       inspect.go, cancel.go, reconcile.go and inquiry.go
//	what went wrong          crash.go, damage.go, missing.go, removal.go, restored.go
//
// # Ownership
//
// A worker works those partitions of its api that this replica owns. Where others may own them (Options.Registry) the package
// ownership decides who takes which; its doc.go has the argument why no two replicas start calls of a partition at the same
// time. host.go is what an ownership.Manager asks of a Dispatcher. The struct partition is one tenure of a partition: when the replica
// takes the same one over again, that is another value. It is opened and closed while the worker runs (takeover.go). Closing lets its
// calls end and stores what came of them, so that the next owner need not guess. Or it is lost, and then nothing about it is stored any
// more.
//
// An outcome waits while the right to its partition is in doubt, and is dropped where the right is lost: the successor has found
// the intent and has parked the job as unknown by then. The right is asked again before anything is sent once more. What was
// sent in time, over a connection that then stalled, may still arrive: resultbar.go keeps such a result out. Calls of a lost
// partition run on to their end. They count as calls in flight of its next owner (orphanedcalls.go): a process that is known to have
// ended has none, since the kernel closes its connections, as a timeout does to a call, and a restart of a single weir
// relies on that.
//
// # Recovery
//
// Opening a partition reads its stream: the markers first, since they stand behind their jobs. The markers and the ledger's end name,
// for every key, the last of its jobs that was ever near a call. A key's calls start when its jobs have been read up to that one, while
// the rest of a long queue is still being read (replay.go). Every job found is one of four: never called; called, and known to need
// another call; finished, with only its record or its deletion lost; or called with an unknown outcome. found.go has its way on one
// screen. The last is a lost call (lostcall.go). Its record is stored, as that of a call that may have been made. Then its job is called
// again with the same idempotency key, or becomes a letter unknown where there is none. A key's pace goes on from the ledger; after a
// lost call, or one of which only the result is stored, it waits one interval, unless its process noted the pace.
//
// Every call has an intent: of a job without one nothing was begun.
//
//	found in the stream      and                                                becomes
//	a job                    nothing else                                       waiting, in its place
//	a job                    a final record in the ledger                       deleted: only its deletion was lost
//	a job, a retry mark                                                         waits for its time, with its attempts
//	a job, the mark of an    nothing else                                       the letter that was being written: expired,
//	  end                                                                         invalid, cancelled, over budget
//	                         an intent behind the mark, or of a later owner     as with an intent alone: the mark was late
//	a job, an intent         a result                                           finished: its record is written, then it is deleted
//	                         no outcome; its process has ended, and noted that  waiting, as if there were no intent
//	                           the call had not begun
//	                         no outcome; its process has ended, and noted what  as that call's settling would have gone: a result, a
//	                           the call came to                                   record and a mark, or a record and a letter
//	                         no outcome; its call carried no idempotency key    a record, and a letter unknown
//	                         no outcome; the api takes keys as it did then      a record, and called again with the same key
//	                         no outcome; the api takes other keys now, or none  a record, and a letter unknown
//	a job                    a result, and no record                            finished, likewise
//
//	a job of a backup that   no end in the backup, the api takes no keys        a letter unknown
//	  was put back           no end in the backup, the api takes keys           waiting; it may have been called (restored.go)
//
// What was noted is in the flight recorder (dispatcher/recorder): flight.go writes to it and reads what ended processes left. Calls that
// nobody settled are looked for there first; the pace of their keys goes on from what was noted, too.
//
// What the stream counts and does not give is lost, and is told (damage.go): a letter unknown for a job, the log and a counter for what
// has no name. So is a message that is found missing later (missing.go), and what somebody took out of the stream by hand (removal.go):
// jobs that waited become letters unknown, calls that run go on and are stored, and nothing that memory knows of limits is forgotten.
//
// # Changes of configuration
//
// An api's configuration and its connections are its terms (terms.go), replaced as a whole by the worker's loop while no
// round of asks is under way: costs and limits never belong to different terms. Jobs that wait get the new rules at
// once, also those that were ready; slots that were granted, and calls that run, keep theirs. What a key owed at the
// former rate the store carries over in units.
//
// What became of a call, and what may follow it, is judged by the terms it was made by, however others came since: by a
// change while it ran, in the file of the next start, or with another replica. Stored with the call are, in intents:
//
//	idempotency   the identity of its key (httpcall/identity.go): header, form, place. Also in retry marks, records and letters. A
//	              job one of whose calls may have been processed is called again under the same identity or not at all.
//	timeout       how long calls of an owner that was lost may run (orphanedcalls.go)
//	price         what a lost call cost, for the ledger
//
// and in records and marks the outcome, charges, attempts and times: nothing is judged a second time by another retry.on,
// another reject, another results.max_body or other limits of attempts. The present terms are good enough for the rest:
//
//	rate, burst, overrides, jitter, headroom   after a lost call a key waits until a full bucket of the present rate has
//	              drained, from when it was found: no window of the present rate has room for more. A rate that was lowered
//	              while nothing ran counts from when it is in force
//	in_flight     lost calls that may still run are counted one by one, against the present number
//	limits of all keys, budgets   are counted by their store, ahead of calls; one that is new counts from
//	              when it is in force. A lost call's units in the ledger are those of its job by the present limits
//	retry.hold    what a pushback held before, the key or the api, may be the other now: the api says so again, and charges nothing
//	retry.attempts, min, max, breaker   say only when a job is called again that may be
//	headers       credentials change at any time, and are no part of a key's identity: who moves to another account of the
//	              same api should drain it before
//	methods, forward_headers   a waiting job that they forbid now becomes a letter invalid when it is made ready
//	max_body      binds at the door only: what waits is called. results.max_body binds from the next answer on
//	dedupe        see duplicate.go: a copy in doubt becomes a letter, also on an idempotent api
//
// # What must hold
//
//	I1  no HTTP call without a grant, and none outside its slot
//	I2  calls of a key start in the order its jobs were accepted, retries excepted
//	I3  a job is deleted only after its result or its letter, and its record, are durable
//	I4  waiting, holds and pushback never use up an attempt, nor do tries of an open breaker of which nothing is sent
//	I5  calls, staged jobs, cached messages and finished jobs not yet deleted are bounded
//	I6  without slots to be had calls hold; intake goes on
//	I7  Run returns only when every goroutine it started has
//
// HTTP/1.1 only, one call per connection: it is then certain what was sent, and net/http resends nothing by itself
// (httpcall/call.go and httpcall/connections.go say how it is kept from it).
package dispatcher
