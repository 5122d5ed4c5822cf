// Package httpintake accepts jobs over HTTP from producers without NATS, and tells them the state of their jobs.
//
//	POST /v1/jobs/{api}/{key} ──▶ read the body ──▶ ingest.Service.Take ──▶ 202 and the receipt, or a problem
//	GET  /v1/jobs/{api}/{id}  ──▶ jobstory.Find ──▶ where the job is, and its result
//
// weir treats a posted job like a job that is published on weir.jobs.<api>.<key>. The door passes the job to the
// intake, which has it stored, or buried with an event. Only then does the door answer. So a job is refused with the
// same words, has the same id, and counts once, whether it is posted or published. The door itself has no rules about
// jobs. It takes from a request only headers that a job can have (header.go). Otherwise headers that clients and
// proxies add, above all credentials, would end up in letters.
//
// If the door itself refuses a request, there is no job and therefore no letter. The door refuses a body that did not
// arrive in time or that is encoded, a request beyond its bounds, and every job if this replica accepts none.
//
// # What must hold
//
//   - The door answers 202 after the stream has stored the job. It passes on any other answer of the intake after the
//     letter and the event, if the refusal has them (package ingest).
//   - 503 means that this request stored nothing. An earlier request with the same id may have stored the job. If the
//     door does not know whether the job was stored, it answers 504, and the producer must send the job again under the
//     same id.
//   - Requests under way, the bytes of bodies, and the time until a body has arrived have bounds. The door gives back
//     the room of a body when the intake has answered, even if the client has gone.
//   - The console checks the rights of a request before the door sees it.
package httpintake
