// Package httpcall makes one call of an api and judges its result.
//
// A Client makes the calls of one api over its own connections. A Response says what was sent and what was answered.
// Judge turns a Response into a verdict: done, submitted, retry, pushback, denied or dead. Judge also reads from the
// answer's headers how long later calls must wait. An API holds the settings of a configured api. Its
// KeyIdentity identifies how its calls carry their idempotency keys.
//
//	call.go, connections.go     one request; HTTP/1.1, one call per connection
//	unasked.go, heard.go        bytes that belong to no call
//	outcome.go, denied.go       the verdict
//	pushback.go, window.go      Retry-After and what headers say of a vendor's windows
//	left.go                     what headers say is left of a limit
//	body.go, answer.go          what is kept of an answer, and the units that it reports
//	pack.go                     several jobs in one body, and their parts of its answer
//	condensed.go                reads JSON without its long strings
//	cause.go                    errors fit for letters and logs
//
// The package knows nothing of queues, slots and schedules, or of how the ledger is kept. It stores nothing and retries
// nothing.
//
// # What must hold
//
//   - A call is sent at most once. If a connection that net/http has used before breaks, net/http sends the request
//     again by itself. So once a byte has left, every other connection is shut before it can be written to.
//   - Sent is false only if it is certain that no byte has left.
//   - Bytes that came before the call's first byte was written are never its answer. Bytes that an earlier call left on
//     a connection belong to no call. Below TLS, bytes are received and noted in one step: each byte is either still in
//     the socket or noted.
//   - A process may be suspended after it has checked its lease and its slot. It must not make the call when it
//     resumes. Nor may a call leave long after its slot because it had to dial. So Hooks.MayWrite is asked immediately
//     before the first byte, when nothing is left to wait for.
//   - No redirect is followed, and no error names an address, a url or a part of an answer.
package httpcall
