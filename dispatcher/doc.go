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
// A job is made ready before a slot is asked for: its message is in memory, a connection to the api is open, and, where
// the api is not idempotent, its intent is stored. What is left to do in the slot is to send. A call starts from its
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
// judge (outcome.go) reads what happened as done, retry, pushback or dead. Then, in this order: the result or the
// letter is stored, the ledger's record is stored, the job's message is deleted. A crash between two of these repeats
// what follows, and message ids keep it from being kept twice.
//
// hear (feedback.go) takes in what the end of a call says of those to come: pushback and headers (pushback.go) hold the
// key or the api, a hold ends in a slow start (governor.go, pacing.go), failures in a row open the api's breaker
// (breaker.go). All of them only keep calls from being asked for; none of them grants one.
//
// # Ownership
//
// A lane works those partitions of its api that this replica owns. Where others may own them (Options.Registry) ownership
// decides who takes which (ownership.go, peers.go: a plain value; rendezvous.go: who should), owner is the shell around it, and
// takeover.go opens and closes single partitions while the lane runs. A part is one tenure: taken over again it is another.
// A partition is closed by letting its calls end and storing what came of them, so that its next owner need not guess; or it
// is lost, and then nothing about it is stored any more. ARCHITECTURE.md has the argument why no two replicas start calls of
// a partition at the same time.
//
// # Recovery
//
// Opening a partition reads its stream: the markers first, since they stand behind their jobs. With the ledger's end they
// tell of every key up to which of its jobs anything is known. Its calls start when its jobs have been read up to there, a long
// queue is read on meanwhile (replay.go). Every job found is one of: never called; called, and known to need another call;
// finished, only its deletion was lost (the ledger's end tells); or called with an outcome that nobody knows. The last
// becomes a letter unknown on an api that is not idempotent, unless its result is found, and is called again with the
// same idempotency key on one that is. A key's pace goes on from the ledger; where a call may have been running that
// nobody recorded, the key waits one interval.
//
// # Changes of configuration
//
// An api's configuration and its connections are its terms (terms.go), replaced as a whole by the lane's loop while no
// round of asks is under way: costs and limits never belong to different terms. Jobs that wait get the new rules at
// once, also those that were ready; slots that were granted, and calls that run, keep theirs. What a key owed at the
// former rate the store carries over in units. An intent says whether its call carried an idempotency key, and a job
// one of whose calls may have been processed is not called again once its api has stopped being idempotent. One gap is
// left: a fast idempotent api writes no intents, so that calls that run when it stops being one, and when the process
// then dies, are not known to have been made.
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
// (call.go and connections.go say how it is kept from it).
package dispatcher
