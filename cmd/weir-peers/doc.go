//go:build linux

// Command weir-peers measures weir beside what others would use in its place, in alternating rounds of one run: a bare NATS work queue, River on
// PostgreSQL, Asynq and BullMQ on Redis. It runs on Linux, since it reads CPU from /proc.
//
//	cd cmd/weir-peers && go run . --help
//
//	this process ──orders──▶ a producer of each   (a process; its CPU is told apart)
//	             ──orders──▶ a worker of each     (a process, or several) ──calls──▶ the api (a process)
//	             ──starts──▶ a store of each      (nats-server, postgres, redis-server; weir has its own inside)
//
// All have the same jobs, the same bodies, and the same number of calls at once; each is set up as its own documentation or its own
// benchmark does for throughput. What syncs every write stands beside what may lose the last second, and the table says which is which.
//
// # What must hold
//
//   - Only figures of one run may be compared: a busy machine differs by a factor of three from one minute to the next.
//   - The judge is the api. A round ends when it was called for every job; one that is called twice is told.
//   - Who loses a job, or fails, is out of the run, and the report says why; so is what cannot be installed.
//   - A worker whose turn it is not is at rest: it asks its store for nothing.
//   - Everything is bounded: jobs, rounds, calls under way, and each wait. What was started is gone when the program ends.
package main
