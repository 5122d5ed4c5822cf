// Package bench measures weir beside a bare reference, as a producer and an API see both: `weir bench`.
//
//	this process: producer, fake API, bare loop ──▶ weir serve (a process of its own, server inside)
//	                                            ──▶ nats-server (a process of its own, without fsync)
//
// A Stage starts what is measured and takes it down. A measurement runs its contenders in alternating rounds of one run, since a busy
// machine differs by a factor of three from one minute to the next: figures of one round may be compared, figures of two runs may not.
// A Report gives each contender's rounds with their median and spread, and ratios that are taken round by round. CPU is that of the
// process that stores, user and system, divided by jobs.
//
// # What must hold
//
//   - A contender that loses a job, or is refused one, ends the measurement with an error: its figure would be worth nothing.
//   - Beside a server that is not its own the bench makes nothing where weir has streams, and takes away what it made.
//   - Everything is bounded: jobs, keys, rounds, what is under way, and each wait.
package bench
