// Package control is the operators' protocol: how a command pauses, resumes, cancels, asks what waits, and puts a configuration
// in force, and how every replica that dispatches answers and follows.
//
// What is to last stands in NATS. Pauses are entries of the control bucket, versions of the configuration are revisions of the
// configuration's bucket (versions.go, pauses.go). A replica puts the pauses in force before its first call, and follows both from
// then on.
//
// What is asked of the running replicas goes to all of them, and whoever asks gathers the answers (protocol.go, service.go, ask.go).
//
// What always holds: a command that says that something is in force has heard so from every replica that may call. A replica that
// does not answer is waited for until its lease has run out, and its lease is ended for good (awaitreplicas.go). Before such a
// replica calls anything under a new lease, it has put in force what was said meanwhile (applied.go). Whoever keeps its lease and
// does not answer is named, and the command fails.
//
// A configuration is stored on the condition of the version that it was compared with: two operators cannot both win.
//
// The package does not know how a replica puts a configuration in force, nor how a command is written on a terminal.
package control
