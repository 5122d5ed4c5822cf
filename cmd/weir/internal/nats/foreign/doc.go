// Package foreign finds streams of other software that take weir's subjects.
//
// A stream over the subjects of jobs acknowledges a job before weir answers: it hides weir's refusals, and while no
// weir runs it promises jobs that will never be called. A start beside one is refused. A worker that finds one while it
// runs is not ready, and reports it in the log, by a metric and by an event, until the stream has gone. It still
// accepts and calls the jobs.
//
// If the server does not let this user look, that is logged once, and the last known state stays.
package foreign
