// Package contest measures contenders beside one another. `weir bench` and weir-peers use it.
//
//	the measurement ──orders──▶ a producer     (a process)
//	                ──orders──▶ a worker       (a process) ──calls──▶ the api (a process)
//	                ──starts──▶ a nats-server, or a cluster of them, and a Redis (each a process)
//	                ──asks────▶ the api, which job was called when
//
// A Stage starts processes and ends them. A Role is a process of the measuring program that carries out Orders. This
// package has three roles: the producer and the worker of bare JetStream, and the API. Each is a process of its own, so
// that a figure is what an outside producer sees: from its first publish to its last receipt, or to the last job's
// call. The Judge asks the API when each job of a round was called. Turns gives the order of the rounds, and Spread
// sums up their figures. CPU returns the time that processes have used.
//
// # What must hold
//
//   - Compare only figures of one run: a busy machine differs by a factor of three from one minute to the next.
//   - A round ends when the API was called for every job. A job that was called twice counts once, and is reported.
//   - The body has the job's number, so it has at least LeastBody bytes.
//   - Everything is bounded: jobs under way, calls at once, bodies, and each wait. After Close, everything that a Stage
//     started is gone.
package contest
