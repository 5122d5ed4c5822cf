// Package torture runs weir under faults on real processes, and judges it by the ledger of the paid api that it calls.
//
//	producers ──▶ nats-server ◀──▶ weir serve ──▶ toxiproxy ──▶ fake api ──▶ its ledger
//	 receipts      kill, stop,      kill, stop,     slow, cut                    │
//	    │          full disk        twice at once                                ▼
//	    └──────────────────────────────────────────────────────────────────▶  Judge
//
// With replicas, weir is a fleet: three NATS nodes in one cluster, and a Redis. Each replica reaches these by links of
// its own (network.Link), and the nodes reach each other by links. The replicas share one link to the api, which
// distinguishes them by a header that they send.
//
//	producers ──▶ three nodes ◀─ links ─▶ replicas ── link ──▶ fake api ──▶ its ledger
//	              (links between them)        └── links ─▶ Redis
//
// A cut link is like a pulled cable: no connection is closed and no byte passes. When the cut ends, the bytes that the
// link held arrive late, or are lost with their connections. On the link to the api they are always lost, because a
// call that the network delivers ten seconds late exceeds the rate whatever weir does. A fleet suffers one fault at a
// time (plan.Strike). The next fault begins when every key has been called again and all streams have all their
// copies. So the recovery time of each fault is known, and no fault exceeds what three nodes must survive.
//
// Some faults are of what the nodes have stored (fleet_store.go, fleet_flip.go, fleet_power.go): bytes of a node are
// flipped, the power of all nodes is cut, a node is restarted after many deletions, a stream is scaled to one copy and
// back. After each of them every stream must get all its copies again, and what was accepted must be there. A node with
// flipped bytes leads the damaged stream afterwards, so that weir reads its copy.
//
// For a power cut each node has a drive (../disk/drive_linux.go), an ext4 of its own on a file. The nodes are killed at one
// moment, in which one of them rewrites a block of a queue. Then each ext4 is shut down without its journal: what was
// not synced stays in the kernel's memory, and is lost. A disk that says that it has synced, and has not, is not
// simulated; --durability interval is nearest to it, and must lose jobs.
//
// A Redis that has lost its file forgets what all keys together have used. Each replica still knows the last calls of
// its own keys and reports them with every ask, so no key is called too early. So only a limit that all keys share shows
// a loss that weir does not notice. --quota sets such a limit, and jobs must wait for it during the loss.
//
// nats-server 2.15 does not heal all flipped bytes. With a damaged Raft snapshot the node does not start, or has no copy
// of that stream. Then the torture gives the node an empty store, as an operator would, and notes it. With a damaged
// block of messages the node counts messages that it cannot read, or lacks what came after them, and is current for the
// cluster (https://github.com/nats-io/nats-server/issues/7549). The verdict counts such copies, and does not take them
// for a breach. Nor does it demand an end, a letter or an event that was stored in the stream before the damage. All
// else is judged as ever: a job that was lost in a damaged queue must be reported, nothing may be called twice, no limit
// may be exceeded, and every later end must be there.
//
// The stage (stage.go) consists of the paid api (api.go), the servers (servers.go), the server beside weir (server.go),
// the weir that is killed (weir.go) and its lives (lives.go), the other faults (mishaps.go), the operator that changes
// weir's configuration (operator.go), the producers (producer.go), and the network (network.Proxy). A fleet has
// several of these (fleet.go). One record (record.go) collects what was done and seen. Package judge makes the verdict
// from the evidence.
//
// Every program is a process of its own: the binary weir runs as `weir serve`, `weir nats-server` and `weir fake-api`.
// Producers publish as any NATS client does. They send a job without an answer again under its id, and write every
// receipt to disk before they go on. Judge uses the fake api's ledger, those receipts, and the streams of results,
// letters and events. It does not use weir's own counters and logs, with one exception: the ledger lacks a first call
// that was lost in a cut from the api. Judge believes in such a call if the result names more calls than have arrived.
//
// A seed determines the plan of the faults (plan.Plan). The same seed makes the same plan, but not the same run: the
// machine decides which write a kill hits. In a build with the tag torture, half of the kills are at chosen points
// between two durable steps (weir/bucket/fault), each point in turn.
//
// Configurations change meanwhile (plan.Change): by config apply, by config apply and a kill -9 within half a
// second, and by a file that the next start reads. From outside, only two times are known: the earliest at which a
// configuration may have taken effect, and the latest. The timeline holds both (plan.Timeline). While a rate
// certainly holds, arrivals must respect it strictly. At other times they must respect the loosest rate that may hold.
// A job that is called again must carry the key of its first call, in the same header: without the key, or with another
// one, it is billed again. A run ends with the terms that it began with, so that queued jobs are called soon.
//
// If weir parked a job because weir was killed, the api's ledger must show that a call of the job was under way at the
// kill. weir knows from its flight recorder which calls had not begun or had been answered. After a
// loss of power (losePower) the machine has another boot, and the recorder's file has the state of some earlier moment,
// as a disk may hold it. weir must not rely on the file then. A result must have the answer of its own job's call.
//
// If weir is killed while nothing is queued, the spending that it reports is compared with the ledger (idle.go,
// spend.go). Each start may count the calls that were under way at the kill, once, and nothing else.
//
// A server inside weir authenticates clients (credentials.go). Producers and judges have the credentials that weir's
// operator would have given them.
//
// With --pack a call may have several jobs of a key, as a JSON array. Ends and order are judged for
// each job of the calls, limits and spending for each call. A job may be called again only in its pack, under the
// pack's key, because the api refuses another body under a known key.
//
// With --priorities jobs are high, normal and low in turn. The order of first calls is judged for each priority of a
// key separately. The report also counts the jobs that more urgent ones have passed.
//
// With --operations the api answers a call with 202 and goes on working until the second poll.
// Polls are no calls: no limit and no price counts them. A job must not be called again after its operation was polled.
//
// With --reuse the jobs of a key ask for a dozen things in turn, and weir gives an answer again for some seconds. An
// end with a reused answer must name a job that was called for the same request and has the same answer. If only kills
// disturb weir, no job may be called while a fresh answer exists, unless a kill explains it.
//
// With --settled the api answers as a language model. Only an answer says what its call took of a
// limit in tokens, and what it costs. Half of the jobs are estimated five times too high, the others five times too
// low. By the api's ledger, no window may exceed the limit by more than what calls took beyond their reservations. weir
// must have charged each job that is done what it took, and `weir spend` must equal the bill for these jobs.
//
// With --callbacks weir posts the ends of jobs to a receiver in this process, which refuses some posts (callbacks.go).
// Each end must arrive, under an id that no other end has.
//
// With redrives (redrives.go), the jobs that overflowed are redriven at the end of the run, by a task that is killed
// with its weir, stopped and resumed. Afterwards each of them must have a result or a letter, and must have been called
// once. While the task is stopped, no letter may be redriven.
//
// Some breaches are not weir's fault. The verdict reports them, but does not count them:
//
//   - Calls that the network lost are in no ledger.
//   - A refused job was called, because its producer had sent it more than once and the stream accepted it after the
//     refusal: this was an earlier try that a cut had held up.
//   - Two calls of a key arrived in the wrong order by less than the configured jitter: weir sent them in the right order.
//   - The machine let programs wait: its time stamps may be off by as much (HeldUp).
package torture
