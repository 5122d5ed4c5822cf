// Package deadletter stores the jobs that weir will not call again unless an operator redrives them, and reports them
// by events and notices.
//
// A letter is a job with the reason for its end, in the stream WEIR_DEAD under weir.dead.<api>.<reason>.<key>. Its body
// is the job's, byte for byte. The stream has limits retention, so that any client can browse it. It discards new
// messages when it is full, so that it never drops a letter to make room. While it is full, the intake answers 503 to
// jobs that it would have to bury.
//
// The letter is stored first, then the event; then the notice is sent. Only then the caller of Bury continues: it
// answers 429, or deletes the job. After a crash in between, the burial is repeated. The letter's message id is made
// from the job's origin, not from the reason, so the stream refuses a second letter. weir does not repeat the burial of
// a refused job, but its producer may try many times: see refusals.go.
//
// A redrive publishes a letter's job again and then deletes the letter. Before that it reads the queue, the letters and
// the ledger, in the order in which a job moves through them, so that it calls no job twice: see history.go and
// look.go. The servers' time stamps decide what is newer; the replicas' clocks do not.
//
//   - A redrive's message id is <job>.r<n>, on a subject of its own, so that it never equals an id that a producer has
//     chosen (ingest/redrive.go). The job's id stays. A job that no queue has ever taken keeps its own message id: if
//     both a redrive and the producer submit it, in either order, the stream refuses the second.
//   - The redrive deletes the letter after any answer, because a refusal has stored a letter of its own. It publishes
//     the letters of one key one after another.
//   - The job carries what is known of its bill in Weir-Dead-Billed, and the identity of its idempotency key in
//     Weir-Dead-Idempotency. If a letter with the reason unknown is redriven and the job overflows, its new letter has
//     both too.
//   - A lease ensures that only one process redrives or purges at a time.
//
// Events are CloudEvents 1.0 in structured mode on weir.events.<type>.<api>.<key>, kept for a day in WEIR_EVENTS.
package deadletter
