// Package torture runs weir under faults on real processes and judges it by the ledger of the paid api it calls.
//
//	producers ──▶ nats-server ◀──▶ weir serve ──▶ toxiproxy ──▶ fake api ──▶ its ledger
//	 receipts      kill, stop,      kill, stop,     slow, cut                    │
//	    │          full disk        twice at once                                ▼
//	    └──────────────────────────────────────────────────────────────────▶  Judge
//
// Where there are replicas it is a fleet: three NATS nodes in one cluster and a Redis, of which each replica has links of its own
// (link.go), the nodes have links between each other, and the way to the api tells replicas apart by a header that they send.
//
//	producers ──▶ three nodes ◀─ links ─▶ replicas ── link ──▶ fake api ──▶ its ledger
//	              (links between them)        └── links ─▶ Redis
//
// A link that is cut is a pulled cable: nothing is closed, no byte passes, and afterwards what it held arrives late or is lost with
// its connection. To the api it is always lost: a call that the network delivers ten seconds late comes over the rate whatever
// weir does. A fleet suffers one fault at a time (strike.go), and the next when every key has been called again and all streams
// have all their copies: how long each took to get over is then known, and no fault is one that three nodes need not survive.
//
// What stands on the stage (stage.go) is a value of its own each: the paid api (api.go), the servers and the one beside weir (servers.go,
// server.go), the weir that is killed (weir.go) and its lives (lives.go), what else happens (mishaps.go), the operator who changes its
// configuration (operator.go), the producers (producer.go), the network (network.go), or a fleet of all that (fleet.go). What was done and
// seen meanwhile goes to one record (record.go), of which the evidence is made (judge.go).
//
// Every program is a process of its own: the binary weir runs as `weir serve`, `weir nats-server` and `weir fake-api`.
// Producers publish as any NATS client does, send a job without an answer again under its id, and write every receipt down
// before they go on. What is judged is the fake api's ledger, those receipts, and the streams of results, letters and
// events; weir's own counters and logs are not asked, but for one excuse: a first call that a cut from the api has swallowed is in
// no ledger, and is believed where the result names more calls than have arrived.
//
// Faults come from a plan (plan.go) that a seed makes; the same seed makes the same plan, though not the same run: which
// write a kill hits depends on the machine. In a build with the tag torture half of the kills are at chosen points between
// two durable steps (weir/bucket/fault), each point in turn.
//
// Configurations change meanwhile (change.go): by config apply, by config apply and a kill -9 within half a second, by a file that the next
// start finds. From outside it can only be told from when one may have been in force, and from when it surely was; both are kept
// (timeline.go). Arrivals are held strictly against a rate where it is certain, and against the loosest of those that were possible
// elsewhere. A job that is called again must come with the key that its first call had, in the same header: without one, or with another,
// it is billed again. A run ends with the terms that it began with, so that what is queued is called soon.
//
// A job that is parked because weir was killed must have had a call under way then, by the api's ledger (judge_flights.go): what had not
// begun, or had been answered, weir knows by its flight recorder. A loss of power (losePower) is a kill after which the machine has
// another boot and the recorder's file says what it may say on a disk then, which is as of any moment before; nothing may be believed of it.
// A result must have the answer of its own job's call.
//
// What weir says it has spent is held against the ledger where there are kills while nothing is queued (idle.go, spend.go): each start may
// count what was under way when weir was killed, once, and nothing else.
//
// A server inside weir asks who connects (credentials.go): producers and judges show what the operator of each weir would have given them.
//
// With redrives (redrives.go) the jobs that overflowed are redriven when all else is over, by a task that is killed with its weir, stopped and
// resumed. Then each of them has a result or a letter, and was called once; while it is stopped no letter goes.
//
// What is not weir's fault is not held against it, and said instead: calls that the network lost are in no ledger; a job that was
// refused and is called all the same, where its producer had sent it more than once and the stream took it after the refusal, is an
// earlier try that was still under way behind a cut; two
// calls of a key that arrive in the wrong order by less than the configured jitter were sent in the right one; stamps of a
// machine that let programs wait are off by as much (HeldUp).
package torture
