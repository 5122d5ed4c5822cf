// Package bulksubmit hands in the jobs of a file: it reads them as JSON lines, gives each an id, sends many at a time, and
// keeps a journal from which a later run goes on.
//
// # What must hold
//
//   - No job is called twice because a run was ended and begun again. weir knows an id for dedupe; for what lies longer ago the
//     journal decides. A job that has its receipt is not sent again, and one of which nobody knows whether it was taken is told
//     instead of sent.
//   - A job stands in the journal, on disk, before it is published: so a run that was killed has none that the next does not
//     know of.
//   - A line without an id gets one of what it says, and of how many lines before it say the same. So it has the same id in
//     every run, also where lines were put in or taken out, and two equal lines are two jobs.
//   - Nothing grows with the file but the journal's index, the names of lines without an id, and both have a bound.
//
// # How fast
//
// Jobs are sent without waiting for each other's answers, at most Window of them. A refusal for want of room leaves no dead letter, since
// the job is sent again (Weir-On-Throttled). A bucket that is full is not tried over and over all the same: a job waits until its bucket has a place for it, as far as receipts, the
// configuration and weir's own word tell, and the jobs of other keys go past it.
//
// The package does not know flags, tables and exit codes.
package bulksubmit
