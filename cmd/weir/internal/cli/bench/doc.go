// Package bench measures weir beside a bare reference, as a producer and an API see both, for `weir bench`.
//
//	this process ──orders──▶ a producer of each ──▶ weir serve, with its server inside
//	                                            ──▶ nats-server ◀── the bare loop
//	             ──asks────▶ the api ◀──calls── weir and the bare loops
//
// Each of these is a process of its own (package contest). So the figures are those of a producer outside weir: from
// its first publish to its last receipt, or to the call of the last job. Only the samples of latency are taken by this
// process, which does nothing else meanwhile. A measurement runs its contenders in alternating rounds, because the
// speed of a busy machine changes by a factor of three from one minute to the next: compare figures of one run, never
// of two runs. A Report has each contender's rounds with their median and spread, and the ratios of each round. CPU is
// the user and system time of the process that stores, divided by the number of jobs.
//
// A fleet is several weirs on a cluster of three nats-servers and a Redis. It gets its size before each round, and its
// partitions are divided evenly before it is measured. Its CPU is that of all processes but the producer.
//
// # What must hold
//
//   - If a contender loses a job or gets a refusal, the measurement ends with an error, because the figure would be
//     worthless.
//   - If weir has streams on an external server, the bench creates nothing there. Otherwise it removes what it created.
//   - Everything is bounded: jobs, keys, rounds, jobs under way, and each wait.
package bench
