// Package demo shows a new user, in twenty seconds, how weir works.
//
//	burst of 100 jobs ──▶ weir serve (kill -9 half way) ──▶ fake paid api ──▶ its ledger
//	      │ receipts                                                               │
//	      └───────────────────────────▶ report: the verdict ◀──────────────────────┘
//
// Nothing is simulated: weir runs as a process of its own on its embedded server, is killed and started again, and
// calls an HTTP server. The verdict comes from the ledger of the HTTP server and from the receipts. The demo asks weir
// only for the jobs that weir still holds. If the machine makes programs wait for longer than the jitter, the demo
// proves nothing, and the verdict says so.
package demo
