// Package httpintake accepts jobs over HTTP, from producers without NATS, and answers what became of them.
//
//	POST /v1/jobs/{api}/{key} ──▶ read the body ──▶ ingest.Service.Take ──▶ 202 and the receipt, or a problem
//	GET  /v1/jobs/{api}/{id}  ──▶ jobstory.Find ──▶ where the job is, and its result
//
// A posted job is treated as one published on weir.jobs.<api>.<key>. The intake reads it and has it stored, or buried
// with an event, and only then does the door answer. So the job is refused with the same words, known under the same
// id, and counted once. The door itself knows no rule about jobs. It takes only those headers of a request that a job
// can have (header.go). Headers that clients and proxies add, above all credentials, would otherwise end up in letters.
//
// What the door refuses by itself leaves no letter, because there is no job: a body that did not arrive or is encoded,
// more requests than may be under way, or a replica that accepts no jobs.
//
// # What must hold
//
//   - 202 is answered after the stream has stored the job. Another answer of the intake comes after the letter and the
//     event, if the refusal has them (package ingest).
//   - 503 says that this request stored nothing; an earlier request with the same id may have. If it is unknown what
//     the request stored, the answer is 504, and the producer must send the job again under the same id.
//   - Requests under way, the bytes of bodies and the time that a body may take have bounds. Room for a body is given back when the
//     intake has answered, even if the client has gone.
//   - The console checks a request's rights before the door.
package httpintake
