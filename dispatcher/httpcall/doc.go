// Package httpcall makes one call of an api, and says what came of it.
//
// A Client makes the calls of one api over connections of its own. A Response says what was sent and what was answered, and
// Judge reads it: as done, to be tried again, pushback, a denial, or the job's end, with what the answer's headers say of the
// calls to come. An API is what weir must know of a configured api; its KeyIdentity names how its calls carry their
// idempotency keys.
//
//	call.go, connections.go     one request; HTTP/1.1, one call per connection
//	unasked.go, heard.go        what belongs to no call
//	outcome.go, denied.go       the verdict
//	pushback.go, window.go      Retry-After and what headers say of a vendor's windows
//	body.go, answer.go          what is kept of an answer, and the units that it tells
//	cause.go                    errors fit for letters and logs
//
// The package knows nothing of queues, slots, schedules or the ledger's keeping. It stores nothing and retries nothing.
//
// # What must hold
//
//   - A call is sent at most once. net/http sends a request again by itself when a connection breaks that it had used before:
//     once a byte has left, every other connection is shut before it can be written to.
//   - Sent is false only where no byte can have left.
//   - Nothing is an answer that came before the call's first byte was written. What a former call left on a connection is nobody's.
//     A socket's bytes are noted in one step with receiving them, below TLS: they are in the socket or noted, never in between.
//   - A process that was stopped between its last look at its lease and the call does not make it when it goes on: the right
//     is asked for once more when nothing but the first byte is left to be sent.
//   - No redirect is followed, and no error names an address, a url or a part of an answer.
package httpcall
