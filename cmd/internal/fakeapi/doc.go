// Package fakeapi is a fake paid api. It bills, limits, fails on demand and keeps a ledger of its own. The demo, the
// tests and the benchmarks call it instead of a vendor. Its ledger is the evidence by which weir's promises are judged,
// so it shares no code, no counter and no clock reading with weir.
//
//	client ──▶ arrive ──▶ over the vendor limit? ──▶ the order ──▶ idempotency ──▶ delay ──▶ settle ──▶ answer or fault
//	             │ number, time                                                               │ status, billed
//	             ▼                                                                            ▼
//	         {"e":"arrival"}                        the ledger                           {"e":"answer"} … {"e":"end"}
//
// What must hold:
//
//   - Every request whose header could be read is an arrival. The api stamps it before it takes any lock or reads the
//     body, and writes its record to the ledger before it does anything else with the call.
//   - The answer record, which says whether the call was billed, is in the ledger before the first byte of the answer
//     is sent. So the ledger has everything that a client has seen, even after kill -9. A call that was running when
//     the process died has only an arrival record, and is read back with the ending Running.
//   - Each record is one write(2) to a file opened for appending, without a sync: it survives the death of the process,
//     but not of the machine. A record that cannot be written ends the ledger: from then on the api answers every call
//     with 500 and does not bill it, and Close returns the error. The api never answers without its ledger.
//   - Times are nanoseconds on the monotonic clock since the ledger began, so a stepped wall clock changes nothing. A
//     process that continues a ledger continues its time: by the machine's monotonic clock or, if the machine was
//     restarted since, by the wall clock.
//   - A call is billed if its work was done, whether or not the client learns of it. After a connection reset behind
//     the body, a hang, an answer cut short, or a client that gave up, the status that would have been answered decides
//     whether the call is billed. By default only 2xx is billed.
//   - With RepeatReplayed, a billed answer is saved, and a repeated idempotency key is answered from it and not billed
//     again. An unbilled answer (an ordered 500, a 429) is not saved, so a repeat is carried out.
//
// With Options.Vendor the api answers as the vendor's documents say: vendor.go has each vendor's limit headers,
// refusals, reports of use and streams. A fake language model charges for the tokens that it reports.
//
// Options.Limits are limits of what calls use: requests, and tokens of each kind by weight. While a call runs, its
// max_tokens may count instead of its output (uselimit.go). Windows judges any ledger by such limits, even if the api
// did not enforce them.
//
// What is bounded: memory keeps the newest Options.KeepArrivals arrivals (the file keeps all, and Totals counts all).
// The api distinguishes Options.MaxKeys keys, and as many idempotency keys. A request's header is at most 64 KiB and
// its body at most Options.MaxBody. An answer is at most MaxAnswer.
package fakeapi
