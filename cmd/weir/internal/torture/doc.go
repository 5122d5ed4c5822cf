// Package torture runs weir under faults on real processes and judges it by the ledger of the paid api it calls.
//
//	producers ──▶ nats-server ◀──▶ weir serve ──▶ toxiproxy ──▶ fake api ──▶ its ledger
//	 receipts      kill, stop,      kill, stop,     slow, cut                    │
//	    │          full disk        twice at once                                ▼
//	    └──────────────────────────────────────────────────────────────────▶  Judge
//
// Every program is a process of its own: the binary runs itself as `weir serve`, `weir nats-server` and `weir fake-api`.
// Producers publish as any NATS client does, send a job without an answer again under its id, and write every receipt down
// before they go on. What is judged is the fake api's ledger, those receipts, and the streams of results, letters and
// events; weir's own counters and logs are not asked.
//
// Faults come from a plan (plan.go) that a seed makes; the same seed makes the same plan, though not the same run: which
// write a kill hits depends on the machine. In a build with the tag torture half of the kills are at chosen points between
// two durable steps (weir/bucket/fault), each point in turn.
//
// What is not weir's fault is not held against it, and said instead: calls that the network lost are in no ledger; two
// calls of a key that arrive in the wrong order by less than the configured jitter were sent in the right one; stamps of a
// machine that let programs wait are off by as much (HeldUp).
package torture
