// Package foreign finds the streams of somebody else's that take subjects which are weir's.
//
// A stream over the subjects of jobs acknowledges a job before weir answers: it hides weir's refusals, and while no weir runs it
// promises jobs that nobody will call. A start beside one is refused. A worker that finds one while it runs is not ready, and says so
// in the log, by a metric and by an event, until the stream has gone. It still takes and calls the jobs.
//
// Where the server does not let this user look, that is said once, and what was known stays.
package foreign
