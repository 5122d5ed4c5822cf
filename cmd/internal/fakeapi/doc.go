// Package fakeapi is a paid api that bills, limits, fails on demand and keeps its own ledger. The demo, the tests and
// the benchmarks call it instead of a vendor. Its ledger is the evidence by which weir's promises are judged, so it
// shares no code, no counter and no clock reading with weir.
//
//	client ──▶ arrive ──▶ over the vendor limit? ──▶ the order ──▶ idempotency ──▶ delay ──▶ settle ──▶ answer or fault
//	             │ number, time                                                               │ status, billed
//	             ▼                                                                            ▼
//	         {"e":"arrival"}                        the ledger                           {"e":"answer"} … {"e":"end"}
//
// What must hold:
//
//   - Every request whose header could be read is an arrival. It is stamped before any lock is taken and before the body is
//     read, and its record is in the ledger before anything else is done with it.
//   - The answer record, which says whether the call was billed, is in the ledger before the first byte of the answer is
//     sent. What a client has seen, the ledger holds, even after kill -9. A call that was running when the process died has
//     only an arrival record, and is read back with the ending Running.
//   - Each record is one write(2) to a file opened for appending, without a sync: it survives the death of the process, but
//     not of the machine. A record that cannot be written ends the ledger: from then on every call is answered 500 and is
//     not billed, and Close returns the error. The api never answers without its ledger.
//   - Times are nanoseconds on the monotonic clock since the ledger began. A stepped wall clock changes nothing. A process
//     that continues an existing ledger continues its time, by the machine's monotonic clock, or by the wall clock if the
//     machine was restarted since.
//   - A call is billed when its work was done, whether or not the client learns of it. A connection reset after the body, a
//     hang, an answer cut short and a client that gave up are all billed by the status that would have been answered. By
//     default only 2xx is billed.
//   - With RepeatReplayed, what is billed is saved, and what is saved is never billed again: a repeated idempotency key is
//     answered from it. An unbilled answer (an ordered 500, a 429) is not saved, so the repeat is carried out.
//
// With Options.Vendor the api answers as a vendor's documents say: vendor.go has each vendor's limit headers, refusals,
// reports of use and streams. What a fake language model reports is what it charges.
//
// Options.Limits are limits of what calls use: requests, and tokens of each kind by weight, with or without max_tokens
// while a call runs (uselimit.go). Windows judges any ledger by such limits, whether or not the api kept them itself.
//
// What is bounded: the newest Options.KeepArrivals arrivals are kept in memory (the file keeps all, and Totals counts
// all). Options.MaxKeys keys and as many idempotency keys are told apart. A request's header is at most 64 KiB and its
// body at most Options.MaxBody. An answer is at most MaxAnswer.
package fakeapi
