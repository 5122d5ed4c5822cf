// Package ingest holds the wire contract of a job, and the intake: the service that reads jobs from NATS, judges them,
// has them stored and answers. The part that producers need is in ingest/client.
//
// # The path of a job
//
//	weir.jobs.<api>.<key> ──▶ Service.handle ──▶ Parse ──▶ Queue.Put ──▶ Receipt
//	                                               │            │
//	                                               └── Refusal ─┴──▶ Bury (letter, then event) ──▶ answer
//
// handle never waits: Put and Bury call back, and the callback sends the answer. So a slow job does not delay another
// one. The answer to an accepted job is a JetStream PubAck with more members; the answer to a refused one is a
// JetStream error. So any NATS client can publish to weir.jobs as it publishes to a stream. The intake answers only
// after the stream has answered. It answers 429 only after the letter and then the event are stored, unless the
// producer keeps the job (Weir-On-Throttled: retry): then there is neither.
//
// Redrives come in on weir.operator.redrive.<api>.<key> and take the same path. Only there may a job say that it is a
// redrive.
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
// Headers that begin with Nats- are commands to the stream that stores a message. weir renames such headers of a job to
// Weir-Job-Nats-… before it stores the job, and refuses a job with those that it could not honour.
package ingest
