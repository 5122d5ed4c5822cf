// Package worker wires together everything that `weir serve` runs.
//
// Start first does everything that can refuse the start. Then it makes the changes that other processes see. After
// that, calls begin. A failed start undoes what it has started. Stopping goes in reverse order (lifetime.go): first the
// intake, then the calls, then the parts that store the ends of calls, then the server.
//
// A running worker follows the configuration in NATS (follow.go), and reads its file anew on request (reload.go). It
// keeps free the room on disk and in memory that the ends of jobs need (diskguard.go, memory.go, memorywatch.go). It
// leaves a NATS node that is cut off (nodewatch.go). Under a new lease it begins to call only when all earlier commands
// are in force (open.go).
//
// Invariants: if one part ends, the worker ends, because nothing restarts a single part. A configuration that this
// worker cannot run by changes nothing.
//
// No part receives the Worker itself. A part receives values, or a small interface (apiHost). The package does not know
// the commands.
package worker
