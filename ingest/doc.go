// Package ingest is the door: the wire contract of a job, and the intake service that reads jobs from NATS. What producers need of it
// stands in ingest/client.
//
// # The way through the door
//
//	weir.jobs.<api>.<key> ──▶ Service.handle ──▶ Parse ──▶ Queue.Put ──▶ Receipt
//	                                               │            │
//	                                               └── Refusal ─┴──▶ Bury (letter, then event) ──▶ answer
//
// handle never waits: Put and Bury call back, and the answer is sent from there. One job that takes long holds up no
// other. The answer to an accepted job is a JetStream PubAck with more members, the answer to a refused one is a
// JetStream error, so that any NATS client's publish works against weir.jobs as against a stream. It is sent only when
// the stream has answered, and the answer 429 only after the letter and then the event are stored.
//
// Redrives come in on weir.operator.redrive.<api>.<key> and take the same way. Only there a job may say that it is one.
//
// # Keys
//
// A key is any UTF-8 text of 1 to 128 bytes. Token writes it as one subject token and ParseToken reads it back. In a
// producer's subject further tokens belong to the key, and %XX stands for a byte.
//
// # What must hold
//
//   - A receipt's seq is a message that the stream has acknowledged.
//   - Whatever is refused, but for 503, is a letter before its producer is told.
//   - Only a request line and headers that HTTP can carry get through Parse, no job chooses a host, and no job sets a
//     header that its api's configuration does not name.
//   - A queued job restores to what was accepted: Restore(Message(j)) is j.
//
// Headers beginning Nats- are commands to the stream that stores a message. A job's own are renamed Weir-Job-Nats-…
// before it is stored, and those whose promise weir could not keep are refused.
package ingest
