// Package fakeapi is a paid api that bills, limits, fails on order and keeps its own ledger. The demo, the tests and the
// benchmarks call it instead of a vendor, and its ledger is the witness by which weir's promises are judged: it shares no
// code, no counter and no clock reading with weir.
//
//	client ──▶ arrive ──▶ over the vendor limit? ──▶ the order ──▶ idempotency ──▶ delay ──▶ settle ──▶ answer or fault
//	             │ number, time                                                               │ status, billed
//	             ▼                                                                            ▼
//	         {"e":"arrival"}                        the ledger                           {"e":"answer"} … {"e":"end"}
//
// What holds:
//
//   - Every request whose header could be read is an arrival. It is stamped first of all, before any lock is taken and before
//     the body is read, and its record is in the ledger before anything else is done with it.
//   - The answer record, with the verdict whether the call was billed, is in the ledger before the first byte of the answer
//     is sent. What a client has seen, the ledger holds, also after kill -9. A call that was running when the process died
//     has an arrival record alone and is read back with the ending Running.
//   - Each record is one write(2) to a file opened for appending and is not synced: it survives the death of the process,
//     not that of the machine. A record that cannot be written ends the ledger: from then on every call is answered 500 and
//     is not billed, and Close returns the error. The api never answers from behind its ledger's back.
//   - Times are nanoseconds on the monotonic clock since the ledger began. A stepped wall clock changes nothing, and a process
//     that takes up an existing ledger goes on counting where the last one stopped (by the machine's monotonic clock, or by
//     the wall clock if the machine has been started anew since).
//   - A call is billed when its work was done, whether or not the client learns of it: a connection reset after the body, a
//     hang, an answer cut short and a client that gave up are all billed as the status says that would have been answered.
//     By default 2xx is billed and nothing else is.
//   - With RepeatReplayed, what is billed is saved, and what is saved is never billed again: a repeated idempotency key is
//     answered from it. An unbilled answer (an ordered 500, a 429) is not saved, so the repeat is carried out.
//
// What is bounded: the newest Options.KeepArrivals arrivals are kept in memory (the file keeps all, and Totals counts all);
// Options.MaxKeys keys and as many idempotency keys are told apart; a request's header is at most 64 KiB and its body at most
// Options.MaxBody; an answer is at most MaxAnswer.
package fakeapi
