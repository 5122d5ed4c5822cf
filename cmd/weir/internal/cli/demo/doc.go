// Package demo shows a new user, in twenty seconds, how weir works.
//
//	burst of 100 jobs ──▶ weir serve (kill -9 half way) ──▶ fake paid api ──▶ its ledger
//	      │ receipts                                                               │
//	      └───────────────────────────▶ report: the verdict ◀──────────────────────┘
//
// The stage is real: weir runs as a process of its own on its embedded server, is killed and started again, and calls an
// HTTP server. The verdict is read from that server's ledger and the receipts; weir is asked only what it still holds. A
// machine that lets programs wait for longer than the jitter proves nothing, and the verdict says that instead.
package demo
