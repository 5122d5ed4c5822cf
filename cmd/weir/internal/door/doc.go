// Package door takes jobs over HTTP, from producers without NATS, and says what became of them.
//
//	POST /v1/jobs/{api}/{key} ──▶ read the body ──▶ ingest.Service.Take ──▶ 202 and the receipt, or a problem
//	GET  /v1/jobs/{api}/{id}  ──▶ timeline.Find ──▶ where the job is, and its result
//
// A post goes the way of a job that came on weir.jobs.<api>.<key>: the intake reads it, has it stored, or buried and told, and only then
// the door answers. So it is refused with the same words, known under the same id, and counted once. The door itself knows no rule of a
// job. Of a request it takes the headers that a job can have, and nothing else (header.go): what clients and proxies add, credentials
// above all, would end in letters.
//
// What the door refuses by itself leaves no letter, since there is no job: a body that did not arrive, one that is encoded, more
// requests than may be under way, a replica that takes no jobs.
//
// # What must hold
//
//   - 202 is answered after the stream has stored the job, any other answer of the intake after its letter and its event.
//   - 503 says that nothing was stored; where nobody knows, it is 504, and the job is to be sent again under the same id.
//   - Requests under way, the bytes of bodies and the time that a body may take have bounds. Room for a body is given back when the
//     intake has answered, also when the client has gone.
//   - Who may ask is settled before the door, by the console.
package door
