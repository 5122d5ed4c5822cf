// Package worker is what `weir serve` starts: the one place where everything is wired.
//
// Start takes everything up in an order in which nothing that others see changes, and no call begins, before all that can refuse the
// start has had its say. Whatever a start that fails has taken up is taken down again. Stopping goes the other way round (lifetime.go):
// first the intake, then the calls, then what stores their ends, then the server.
//
// While it runs, the worker follows the configuration in NATS (follow.go), reads its file anew when it is asked to (reload.go),
// guards the room on disk and in memory that ends need (diskguard.go, memory.go, memorywatch.go), leaves a node that is cut off
// (nodewatch.go), and begins to call under a new lease only when all that was said before is in force (open.go).
//
// What always holds: when one part ends, the worker ends, since half a worker is worse than none. A configuration that this worker
// cannot run by changes nothing.
//
// The Worker is wired once and passed to nobody: its parts are given values, or a small interface of what they need (apiHost). The
// package does not know the commands.
package worker
