// Package admin is the operators' protocol. With it a command pauses, resumes, cancels, asks what waits, and puts a
// configuration in force. Every dispatching replica answers and follows.
//
// What must last is stored in NATS. Pauses are entries of the control bucket; versions of the configuration are
// revisions of the configuration's bucket (versions.go, pauses.go). A replica puts the pauses in force before its first
// call, and follows both from then on.
//
// Questions go to all running replicas, and the asking process gathers the answers (protocol.go, service.go, ask.go).
//
// What always holds: a command reports that something is in force only after every replica that may call has confirmed
// it. If a replica does not answer, the command waits until its lease has run out and ends that lease for good
// (awaitreplicas.go). Before such a replica calls anything under a new lease, it has put in force what was commanded
// meanwhile (applied.go). If a replica keeps its lease and does not answer, the command names it and fails.
//
// A configuration is stored only if the version that it was compared with is still the last one: two operators cannot
// both win.
//
// The package does not know how a replica puts a configuration in force, nor how a command writes to a terminal.
package admin
