// Package client is what a Go program needs to hand jobs to weir: submit them, read receipts and refusals, and wait for their ends.
//
//	Submit, SubmitAsync ──▶ weir.jobs.<api>.<key> ──▶ Receipt | *Refusal
//	Do, Await, Follow   ◀── Weir-Reply-To | WEIR_RESULTS, WEIR_DEAD ── End
//
// It imports NATS' client, and nothing that only a server needs; a test holds that. The rest of weir takes the words of the wire from
// here: keys, headers, receipts, refusals.
//
// # What may be relied on
//
//   - A nil error of Submit means that the job is on disk. A *Refusal says that it is not queued, and why. With every other error nobody
//     knows: submit it again under the same ID, within the dedupe of weir's configuration (10 minutes unless it says otherwise), and it is
//     the same job.
//   - Jobs that one goroutine hands to SubmitAsync are published in that order, and at most Options.UnderWay of them have no answer yet.
//   - Do, Await and Follow go on by themselves after a reconnect. Await and Follow go on after a restart of the process: Await finds the
//     end of any job whose api, key and id are known, as long as weir keeps it, and Follow goes on where it was.
//   - Everything that blocks takes a context and returns when it ends.
//
// A key is any UTF-8 text of 1 to 128 bytes. Token writes it as one subject token and ParseToken reads it back.
package client
