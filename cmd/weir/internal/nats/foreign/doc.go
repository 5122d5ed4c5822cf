// Package foreign finds streams of other software that take weir's subjects.
//
// A stream over the subjects of jobs acknowledges a job before weir answers. So it hides weir's refusals, and while no
// weir runs it acknowledges jobs that will never be called. weir does not start beside such a stream. A worker that
// finds one while it runs is not ready, and reports the stream in the log, by a metric and by an event until it has
// gone. The worker still accepts and calls jobs.
//
// If the server does not let this user list streams, the package logs that once and keeps the last known state.
package foreign
