// Package client submits jobs to weir from a Go program, reads receipts and refusals, and waits for the ends of jobs.
//
//	Submit, SubmitAsync, SubmitMany ──▶ weir.jobs.<api>.<key> ──▶ Receipt | *Refusal
//	Do, Await, Follow               ◀── Weir-Reply-To | WEIR_RESULTS, WEIR_DEAD ── End
//
// It imports the NATS client, and nothing that only a server needs; a test checks that. The rest of weir takes the wire
// contract from here: keys, headers, receipts, refusals.
//
// # Guarantees
//
//   - A nil error of Submit means that the job is on disk. A *Refusal means that this submission is not queued, and
//     says why. After any other error except nats.ErrNoResponders the job may have been accepted. Submit it again under
//     the same ID within the dedupe of weir's configuration (10 minutes by default): weir takes it for the same job.
//   - A refusal, or nats.ErrNoResponders, says nothing about an earlier submission under the same ID that had no
//     answer: that one may have been accepted. Submit again under the same ID until a receipt comes, as Do does after a
//     503.
//   - Jobs that one goroutine passes to SubmitAsync are published in that order. At most Options.UnderWay of them have no
//     answer yet. SubmitMany keeps the order too, and sends hundreds of jobs in one message.
//   - Do, Await and Follow continue after a reconnect. Await and Follow also continue after a restart of the process: Await
//     finds the end of any job whose api, key and id are known, as long as weir keeps it, and Follow resumes at its position.
//   - Everything that blocks takes a context and returns when the context ends.
//
// A key is any UTF-8 text of 1 to 128 bytes. Token writes it as one subject token and ParseToken reads it back.
package client
