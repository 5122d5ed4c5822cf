// Package schedule decides which call of an api may start when.
//
// A Schedule is a plain value. Time comes into it as now, and what is to be done comes out of Step as Effects: make these jobs ready,
// ask for these slots, start these calls. Whoever owns it locks it, carries the effects out, and tells it what came of them. It knows
// nothing of NATS, HTTP or the ledger, and it waits for nothing. The tests run it through thousands of seeds of virtual time on real
// stores of slots (simulation_test.go), with crashes, outages, changes of rules and clocks that drift.
//
// # What it holds
//
// A KeyQueue is one key's unfinished jobs; a key without jobs has none. Most of them are only a sequence that waits, and some a sequence
// and the time before which it is not to be called (notbefore.go). A Job is one that is
// near its call, or past one. There is one timer structure over all queues and no timer per key: an idle key costs nothing, and the work
// for a call is O(log keys). A Policy is what the schedule goes by, and replaced as a whole. A Partition is what it must know of one
// tenure of a partition. A View tells of a schedule at a moment: when a job should be called, what a key waits for, what it gets in the
// long run. It changes nothing. A Holdup is what kept a job for longest, told when it is called or ends uncalled.
//
// The way of a job through it:
//
//	waits ──▶ staging ──▶ ready ──▶ asking ──▶ granted ──▶ calling ──▶ settling ──▶ gone
//	            ▲                                                         │
//	            └───────────────────────── resting ◀──────────────────────┘
//
// # What always holds
//
//	S1  a job starts only from a grant, not before the grant's time and at most GrantTTL after it
//	S2  jobs of a queue are granted in the order in which they came, or were due where they were not to be called before, retries excepted
//	S3  asking, granted and calling jobs of a queue are together at most its in_flight
//	S4  every queue with something to do is timed, or in turn, or waits for an answer that will touch it
//
// A slot that was missed is given back, or lost to everybody: it is never used late. Under a shared limit tenants take turns, and so do
// the queues of one, a call a turn (fairqueue.go); so they do for room to be made ready in (the round robin). A store that is elsewhere is
// asked for more calls a turn while no shared limit has refused anything for a second, as many as a round trip takes for all that ask.
//
// # What is made ready
//
// A job that is ready has its message in memory and its intent stored. A crash makes it unknown, although the api never saw it. So a job is
// made ready only when its call can start soon: shortly before its key's next slot, and within LongWait under a shared limit (narrow.go).
// What a rate granted and refused, and its pace, say how many calls it lets start within LongWait. Of a limit of calls in flight the calls
// that run say it, of a quota or budget the units that are left. No more jobs are made ready, and one always may be. A limit of which
// nothing is known yet, or that other processes use too, may let none start: then no more jobs are made ready than were granted in the last
// LongWait, and one more. That number doubles while each of them is granted, in the time that it takes to make one ready. Queues wait for a shared limit in two lines, both of which are fair queues over the same turns. In the one wait queues that
// have a ready job, and ask when the limit is to be asked again. In the other wait queues that have none; they make one ready in
// turn, so much before that time as it takes, and so the intent costs no slot. What is ready behind a call of its own key that takes longer
// than LongWait is let go of.
//
// # What slows it
//
// OnCallEnd takes in what the end of a call says of those to come. Pushback and headers hold a key or the api, a hold ends in a slow start
// (governor.go, pacing.go), failures in a row open the api's breaker (breaker.go), and so does an answer that speaks of weir and not of
// the job (denial.go). All of these only keep calls from being asked for; none of them grants one, except that a probe's answer closes
// the breaker.
//
// # A store on another machine
//
// Its times are of its clock: storelink.go says how they become ours, and why taking each answer for itself would let calls come too close
// (it breaks a limit in one of three seeds of the simulation). Slots are asked for two round trips ahead, one round at a time. When it
// does not answer calls hold, what was made ready is taken back, and one queue at a time asks again.
package schedule
