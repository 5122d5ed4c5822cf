// Package worker is what `weir serve` starts: the one place where everything is wired.
//
// Start does everything that can refuse the start first. Only then does it change what other processes see, and only
// then may calls begin. A failed start undoes what it has started. Stopping goes in reverse order (lifetime.go): first
// the intake, then the calls, then the parts that store their ends, then the server.
//
// While it runs, the worker follows the configuration in NATS (follow.go), reads its file anew on request (reload.go),
// guards the room on disk and in memory that the ends of jobs need (diskguard.go, memory.go, memorywatch.go), leaves a
// node that is cut off (nodewatch.go), and begins to call under a new lease only when all earlier commands are in force
// (open.go).
//
// What always holds: when one part ends, the worker ends, because half a worker is worse than none. A configuration
// that this worker cannot run by changes nothing.
//
// No part receives the Worker itself. Parts receive values, or a small interface of what they need (apiHost). The
// package does not know the commands.
package worker
