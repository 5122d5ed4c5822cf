// Package schedule decides which calls of an api may start, and when.
//
// A Schedule is a plain value. The caller passes the time as now. Step returns Effects, which the caller must carry
// out: make these jobs ready, ask for these slots, start these calls. The dispatcher owns the Schedule: it locks it,
// carries out the effects and reports their results. The Schedule knows nothing of NATS, HTTP or the ledger, and it
// never blocks. The tests simulate it in virtual time, with thousands of seeds and real stores of slots
// (simulation_test.go, package replicas), with crashes, outages, changes of rules and clocks that drift.
//
// # What it holds
//
// A KeyQueue holds one key's unfinished jobs; most keys without jobs have none. Of a waiting job it keeps only the
// stream sequence, in its backlog, and the due time of a delayed job (package backlog). Due times and deadlines follow
// the wall clock (queues.go). A Job is one job from staging to settlement. A Policy holds the configured rules; it is
// replaced as a whole. A Partition holds what the schedule knows of a partition while this process owns it.
//
// A Schedule has one part for each subject below, which holds the state of the api. The type on the right holds the
// same for one queue:
//
//	Queues           which queue is looked at, and when           entry
//	looks            for which jobs an answer is looked up        entry
//	turns.Turns      which queue has the next turn                turns.Seats
//	bucket.Weights   how the priorities share the calls           backlog.Backlog
//	Holds            holds, pauses, breaker, slow starts          brake
//	Findings         what replicas tell each other of the api
//	storeLink        the way to the store of slots                keyPace
//	gate             when the store may be asked again
//	limits.Shared    the state of the limits that keys share
//	limits.Replica   the limits of this process alone
//	Pipeline         the jobs on their way through a call         Jobs
//	polling          jobs whose operations go on at the api       operations
//	packs            the jobs that go in one call
//	suspects         jobs that may have killed their owners
//	causes           why jobs waited                              holdups
//	census           numbers of jobs and queues
//
// A step (step.go) handles the queues whose time has come. An answering (answer.go) handles the store's answer.
// There is one timer structure over all queues and no timer per key: an idle key costs nothing, and the work for a
// call is O(log keys).
//
// A View reports on a schedule at one moment and changes nothing: what a key waits for, its share in the long run, and
// a forecast of when a job should be called. A Holdup is the cause that kept a job waiting longest; it is reported when
// the job is called or ends uncalled.
//
// The path of a job:
//
//	waits ──▶ staging ──▶ ready ──▶ asking ──▶ granted ──▶ calling ──▶ settling ──▶ gone
//	            ▲                                                         │
//	            └───────────────────────── resting ◀──────────────────────┤
//	                                       polled ◀───────────────────────┘
//
// A polled job is never called again. It returns to settling when its operation has ended (jobs.go).
//
// If an api takes several jobs in one call, one job leads a pack of them on this path (pack.go).
//
// If equal jobs share an answer (stage.go), a job may end before it is ready, with the answer that an equal job got. It
// may also wait for the answer of an equal job whose call is under way. Meanwhile it keeps its place and takes no slot.
//
// # What always holds
//
//	S1  A job starts only from a grant, not before the grant's time and at most GrantTTL after it. The dispatcher checks
//	    Latest again before the first byte, and gives the slot back if the call would be later.
//	S2  A queue's jobs of one priority are granted in the order in which they came. A delayed job is ordered by its due
//	    time. Retries may be overtaken.
//	S3  A queue has at most in_flight jobs that are asking, granted or calling, or whose operations hold their slots.
//	S4  Every queue with something to do has a timer, waits for its turn, or waits for an answer that touches it.
//	S5  While jobs of all priorities wait for the same limits and are ready in time, each priority starts the part of
//	    the calls that its weight gives it, to within one call over any span. So the weights bound the wait of every
//	    job (package turns has the proof).
//
// A missed slot is given back, or lost for every key: it is never used late. Under a shared limit tenants take turns,
// one call each, and so do the queues of one tenant. Priorities share the turns by weight (package turns), also within
// a queue (package backlog). Room for staging is shared by the same turns. If the store is on another machine and no
// shared limit has refused anything for a second, a turn is more than one call. The queues that ask or wait then divide
// the calls of one round of asks among themselves.
//
// Processes that share a store take turns there (bucket/line.go), and so do the apis of an account, even in one
// process. Every round of asks says how many keys of each tenant wait here, for each priority. Each answer says how
// many keys of its tenant wait at other processes, and how much of its priority they have. The more keys wait there,
// the fewer turns the tenant has here. Package replicas simulates 2 to 20 processes.
//
// # What is made ready
//
// A ready job has its message in memory and its intent stored. A crash may then make it unknown, although the
// api never saw it. So a job is made ready only when its call can start soon: shortly before its key's next
// slot, and within limits.LongWait under a shared limit.
//
// The kind of a limit decides how many calls it lets start within LongWait. For a rate, this follows from what the
// rate granted and refused, and from its pace. For a limit of calls in flight, it follows from the calls that
// run. For a quota or budget, it follows from the units left. At most that many jobs are made ready, but one always
// may be. If the state of a limit is not known yet, or other processes use it too, perhaps no call can start. So the
// schedule then makes ready at most one job more than were granted in the last LongWait. While all of them are
// granted, that number doubles in the time that it takes to make a job ready.
//
// Queues wait for a shared limit in two lines, both fair queues over the same turns. The first line holds queues
// with a ready job; they ask when the limit may be asked again. The second holds queues without one. Each makes one
// ready in its turn, early enough that storing the intent costs no slot. If in_flight calls of a key run and the
// newest has run for LongWait, the schedule withdraws the key's ready jobs.
//
// # What slows it
//
// A busy machine misses slots, and a call that misses its slot has already cost most of its work. So each missed slot
// lowers the number of jobs that may ask for a slot, or hold one, before their calls leave (pipeline.go).
//
// OnCallEnd decides what the end of a call means for later calls. Pushback and headers hold a key or the api. A hold
// ends in a slow start (breaker.go, holds.go). Failures in a row open the api's breaker (breaker.go), and so does an
// answer that denies weir access (finding.go). All of these only delay the asks for slots. None of them grants a call:
// even a probe's answer only closes the breaker.
//
// # A store on another machine
//
// Such a store counts by its own clock. answer.go converts its times to ours, and explains why converting
// each answer by itself would let calls come too close (it breaks a limit in one of three seeds of the
// simulation). Slots are asked for two round trips ahead, one round at a time. While the store does not answer,
// calls wait, ready jobs are withdrawn, and one queue at a time asks again.
package schedule
