// Package deadletter keeps what will not be called again by itself, and tells about it.
//
// A letter is a job with the reason it ended for, in the stream WEIR_DEAD under weir.dead.<api>.<reason>.<key>. The
// body is the job's, byte for byte. The stream has limits retention, so that anybody can browse it, and discards new
// messages when it is full, so that no letter is dropped to make room: a full stream stops the intake of what would
// overflow, with 503.
//
// The order is letter, event, notice, and only then the caller of Bury goes on: to answer 429, or to delete the job.
// A crash between the two repeats the burial, and the letter's message id, made of the job's id and not of the reason,
// keeps a second one out. A job that was refused has no such second try, but its producer may have many: refusals.go.
//
// A redrive publishes a letter's job again and then deletes the letter, in this order. What keeps a job from being called
// twice by it, and why it reads the queue, the letters and the ledger first, in the order in which a job moves, stands in
// history.go, and how it looks again. What is newer the servers' stamps tell, not the replicas' clocks.
//
//   - A redrive's message id is <job>.r<n>, kept apart from ids that producers choose, on a subject of its own
//     (ingest/redrive.go); the job's id stays.
//     A job that no queue has ever taken keeps its own message id: the stream itself then refuses the second of a redrive and
//     a producer's retry, whichever that is.
//   - The letter goes when the answer is there, whatever it is: a refusal has left a letter of its own. Letters of a key go
//     one after another.
//   - A bill travels with the job: Weir-Dead-Billed, and the identity of its keys with Weir-Dead-Idempotency. So a letter
//     overflow of a job that was once unknown still says so.
//   - One process redrives or purges at a time, by a lease.
//
// Events are CloudEvents 1.0 in structured mode on weir.events.<type>.<api>.<key>, kept for a day in WEIR_EVENTS.
package deadletter
