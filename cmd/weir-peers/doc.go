//go:build linux

// Command weir-peers measures weir beside the programs that people would use instead, in alternating rounds of one run:
// a bare NATS work queue, River on PostgreSQL, Asynq and BullMQ on Redis. It runs only on Linux, because it reads CPU
// times from /proc.
//
//	cd cmd/weir-peers && go run . --help
//
//	this process ──orders──▶ a producer of each   (a process; its CPU is told apart)
//	             ──orders──▶ a worker of each     (a process, or several) ──calls──▶ the api (a process)
//	             ──starts──▶ a store of each      (nats-server, postgres, redis-server; weir has its own inside)
//
// All contenders have the same jobs, the same bodies, and the same number of calls at once. Each is set up for
// throughput, as its own documentation or its own benchmark does. Contenders that sync every write stand beside those
// that may lose the last second, and the table says which is which.
//
// # What must hold
//
//   - Compare only figures of one run: a busy machine differs by a factor of three from one minute to the next.
//   - The api is the judge. A round ends when the api was called for every job. A job that was called twice is
//     reported.
//   - A contender that loses a job or fails is left out of the rest, and so is one that cannot be installed. The report
//     says why.
//   - Between its turns a worker asks its store for nothing.
//   - Everything is bounded: jobs, rounds, calls under way, and each wait. When the program ends, everything that it
//     started is gone.
package main
