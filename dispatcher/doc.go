// Package dispatcher owns the partitions of every api, decides which call may start when, makes it, and brings its job
// to exactly one end.
//
// # The way of a job
//
//	reader ──▶ line ──▶ staged ──▶ ready ──▶ asked ──▶ granted ──▶ calling ──▶ settled ──▶ deleted
//	                  message,               slot       timer      HTTP        result or letter,
//	                  connection, intent                                        then the ledger
//
// A lane is one api: a thin shell around a schedule, which is a plain value. Time comes into the schedule as now, and
// what is to be done comes out as effects; simulation_test.go runs it through ten thousand seeds of virtual time. A
// line is one key's unfinished jobs; a key without jobs has none. There is one timer structure over all lines and no
// goroutine or timer per key: an idle key costs nothing, and work per call is O(log keys).
//
// A job is made ready before a slot is asked for: its message is in memory, a connection to the api is open, and its intent
// is stored. What is left to do in the slot is to send. A call starts from its
// slot on and at most four fifths of the api's jitter later, or not at all: a missed slot is given back, or lost.
// Under a shared limit lines take turns, a call a turn.
//
// # A store on another machine
//
// It is asked in the background, one round at a time, while calls start. Its times are of its clock: offset.go says how
// they become ours, and why taking each answer for itself would let calls come too close (it breaks a limit in one of
// three seeds of the simulation). Slots are asked for two round trips ahead. When it does not answer calls hold, what
// was made ready is taken back, and one line at a time asks again; ends of grants are told until they are heard.
//
// # After the call
//
// judge (httpcall/outcome.go) reads what happened as done, retry, pushback, denied or dead. Then, in this order: the result or the
// letter is stored, the ledger's record is stored, the job's message is deleted. A crash between two of these repeats
// what follows, and message ids keep it from being kept twice.
//
// hear (feedback.go) takes in what the end of a call says of those to come: pushback and headers (httpcall/pushback.go) hold the
// key or the api, a hold ends in a slow start (governor.go, pacing.go), failures in a row open the api's breaker
// (breaker.go), and so does an answer that speaks of weir and not of the job (denial.go). All of them only keep calls from
// being asked for; none of them grants one. A time in a header is judged by the answer's Date, a number by its size: seconds to
// wait, or an epoch in s, ms, µs or ns. Of a window that is used up without a word of when it opens, one call per retry.min
// finds out. A hold that no job's retry mark speaks of has a mark of its own in the partition (holdmark.go).
//
// # Ownership
//
// A lane works those partitions of its api that this replica owns. Where others may own them (Options.Registry) the package
// ownership decides who takes which; its doc.go has the argument why no two replicas start calls of a partition at the same
// time. host.go is what an ownership.Manager asks of a Dispatcher, and takeover.go opens and closes single partitions while
// the lane runs. A part is one tenure of a partition: when the replica takes the partition over once more, that is another
// part. A partition is closed by letting its calls end and storing what came of them, so that its next owner need not
// guess; or it is lost, and then nothing about it is stored any more.
//
// An outcome waits while the right to its partition is in doubt, and is dropped where the right is lost: the successor has found
// the intent and has parked the job as unknown by then. The right is asked again before anything is sent once more. What was
// sent in time, over a connection that then stalled, may still arrive: bar.go keeps such a result out. Calls of a lost
// partition run on to their end. They count as calls in flight of its next owner (leftover.go): a process that is known to have
// ended has none, since the kernel closes its connections, as a timeout does to a call, and a restart of a single weir
// relies on that.
//
// # Recovery
//
// Opening a partition reads its stream: the markers first, since they stand behind their jobs. With the ledger's end they
// tell of every key up to which of its jobs anything is known. Its calls start when its jobs have been read up to there, a long
// queue is read on meanwhile (replay.go). Every job found is one of: never called; called, and known to need another call;
// finished, only its deletion was lost (the ledger's end tells); or called with an outcome that nobody knows. The last
// is a lost call (lost.go): its record is stored, as that of a call that may have been made, and then its job is called again
// with the same idempotency key, or becomes a letter unknown where there is none. A key's pace goes on from the ledger; after a
// lost call it waits one interval. Every call has an intent, and an owner's epoch says so: where it does not, the owner was of
// a version that wrote none for fast idempotent apis. After its death calls may have been made of which nobody knows; keys
// faster than 1/10s wait one interval then, and their jobs are called by the present terms.
//
//	found in the stream      and                                                becomes
//	a job                    nothing else                                       waiting, in its place
//	a job                    a final record in the ledger                       deleted: only its deletion was lost
//	a job, a retry mark                                                         waits for its time, with its attempts
//	a job, the mark of an    nothing else                                       the letter that was being written: expired,
//	  end                                                                         cancelled, over budget
//	                         an intent behind the mark, or of a later owner     as with an intent alone: the mark was late
//	a job, an intent         a result                                           finished
//	                         no outcome; its call carried no idempotency key    a record, and a letter unknown
//	                         no outcome; the api takes keys as it did then      a record, and called again with the same key
//	                         no outcome; the api takes other keys now, or none  a record, and a letter unknown
//	a job                    a result, and no record                            finished
//
// # Changes of configuration
//
// An api's configuration and its connections are its terms (terms.go), replaced as a whole by the lane's loop while no
// round of asks is under way: costs and limits never belong to different terms. Jobs that wait get the new rules at
// once, also those that were ready; slots that were granted, and calls that run, keep theirs. What a key owed at the
// former rate the store carries over in units.
//
// What became of a call, and what may follow it, is judged by the terms it was made by, however others came since: by a
// change while it ran, in the file of the next start, or with another replica. Stored with the call are, in intents:
//
//	idempotency   the identity of its key (httpcall/identity.go): header, form, place. Also in retry marks, records and letters. A
//	              job one of whose calls may have been processed is called again under the same identity or not at all.
//	timeout       how long calls of an owner that was lost may run (leftover.go)
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
//	dedupe        see twin.go: a copy in doubt becomes a letter, also on an idempotent api
//
// # What must hold
//
//	I1  no HTTP call without a grant, and none outside its slot
//	I2  calls of a key start in the order its jobs were accepted, retries excepted
//	I3  a job is deleted only after its result or its letter, and its record, are durable
//	I4  waiting, holds, pushback and an open breaker never use up an attempt
//	I5  calls, staged jobs, cached messages and finished jobs not yet deleted are bounded
//	I6  without slots to be had calls hold; intake goes on
//	I7  Run returns only when every goroutine it started has
//
// HTTP/1.1 only, one call per connection: it is then certain what was sent, and net/http resends nothing by itself
// (httpcall/call.go and httpcall/connections.go say how it is kept from it).
package dispatcher
