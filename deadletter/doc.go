// Package deadletter stores the jobs that weir will not call again without an operator, and reports them by events and
// notices.
//
// A letter is a job with the reason for its end, in the stream WEIR_DEAD under weir.dead.<api>.<reason>.<key>. Its body
// is the job's, byte for byte. The stream has limits retention, so that any client can browse it. It discards new
// messages when it is full, so that no letter is dropped to make room. While it is full, the intake answers 503 to jobs
// that it would have to bury.
//
// The order is letter, event, notice. Only then the caller of Bury continues: it answers 429, or deletes the job. A
// crash in between repeats the burial. The letter's message id, made from the job's id and not from the reason, keeps a
// second letter out. For a refused job weir does not repeat the burial, but its producer may try many times: see
// refusals.go.
//
// A redrive publishes a letter's job again and then deletes the letter, in this order. Before that it reads the queue,
// the letters and the ledger, in the order in which a job moves, so that it calls no job twice: see history.go and
// look.go. The time stamps of the servers decide what is newer, not the clocks of the replicas.
//
//   - A redrive's message id is <job>.r<n>, on a subject of its own, so that it never equals an id that a producer has
//     chosen (ingest/redrive.go). The job's id stays. A job that no queue has ever taken keeps its own message id: then
//     the stream itself refuses the second of a redrive and a producer's retry, in either order.
//   - The redrive deletes the letter after any answer: a refusal has left a letter of its own. It publishes the letters
//     of a key one after another.
//   - The job carries its bill in Weir-Dead-Billed, and the identity of its idempotency keys in Weir-Dead-Idempotency.
//     So if a job that was once unknown becomes a letter overflow, that letter still says so.
//   - A lease ensures that one process redrives or purges at a time.
//
// Events are CloudEvents 1.0 in structured mode on weir.events.<type>.<api>.<key>, kept for a day in WEIR_EVENTS.
package deadletter
