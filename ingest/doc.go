// Package ingest defines the wire contract of a job, and runs the intake: the service that reads jobs from NATS, checks
// them, has them stored, and answers. ingest/client has the part that producers need.
//
// # The path of a job
//
//	weir.jobs.<api>.<key> ──▶ Service.handle ──▶ Parse ──▶ Queue.Put ──▶ Receipt
//	                                               │            │
//	                                               └── Refusal ─┴──▶ Bury (letter, then event) ──▶ answer
//
// handle never waits. Put and Bury return at once and call back later, and the callback sends the answer, so a slow job
// does not delay the next one. The intake answers an accepted job with a JetStream PubAck that has extra members, and a
// refused job with a JetStream error, so any NATS client can publish to weir.jobs as it publishes to a stream. It
// answers only after the stream has answered. It answers 429 only after the letter and then the event are stored. If
// the producer keeps the job (Weir-On-Throttled: retry), a 429 leaves neither.
//
// Redrives arrive on weir.operator.redrive.<api>.<key> and take the same path. The intake believes a job's claim to be
// a redrive only on that subject.
//
// # Keys
//
// A key is any UTF-8 text of 1 to 128 bytes. Token writes it as one subject token and ParseToken reads it back. In a
// producer's subject, further tokens belong to the key, and %XX stands for a byte.
//
// # What must hold
//
//   - A receipt's seq is a message that the stream has acknowledged.
//   - Every refusal is stored as a letter before the producer gets its answer, except 503, and 429 of a job that its
//     producer keeps.
//   - Parse accepts only request lines and headers that HTTP can carry. No job chooses a host, and no job sets a header that
//     its api's configuration does not name.
//   - A queued job restores to what was accepted: Restore(Message(j)) is j.
//
// Headers that begin with Nats- are commands to the stream that stores a message. Before weir stores a job, it renames
// such headers to Weir-Job-Nats-…. It refuses a job whose Nats- header asks for something that weir's queue does not
// do.
package ingest
