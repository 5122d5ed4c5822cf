// Package admin is the protocol between operators' commands and the dispatching replicas. Its commands pause, resume,
// cancel, ask what waits, and put a configuration in force. Every dispatching replica answers questions and follows
// commands.
//
// NATS stores what must outlive a process. Pauses are entries of the control bucket; versions of the configuration are
// revisions of the configuration's bucket (versions.go, pauses.go). A replica puts the pauses in force before its first
// call, and follows pauses and versions from then on.
//
// Questions go to all running replicas, and the asking process gathers the answers (protocol.go, service.go, ask.go).
//
// Invariant: a command reports that something is in force only after every replica that may make calls has confirmed
// it. If a replica does not answer, the command waits until that replica's lease has run out and ends the lease for
// good (awaitreplicas.go). Before such a replica makes a call under a new lease, it puts in force what was commanded
// meanwhile (applied.go). If a replica keeps its lease and does not answer, the command fails and names the replica. A
// weir on its embedded server has no lease: the command fails if that weir runs and does not answer.
//
// A configuration is stored only if the version that it was compared with is still the newest one. So if two operators
// apply a configuration at the same time, one of them fails.
//
// The package does not know how a replica puts a configuration in force, nor how a command writes to a terminal.
package admin
