// Package bulksubmit submits the jobs of a file. It reads them as JSON lines, gives each an id, sends many at a time,
// and keeps a journal from which a later run resumes.
//
// # What must hold
//
//   - No job is called twice because a run was interrupted and started again. weir knows an id for dedupe; for longer
//     the journal decides. A job with a receipt is not sent again. A job that may or may not have been accepted is
//     reported and not sent.
//   - A job is in the journal, on disk, before it is published. So the next run knows every job that a killed run sent.
//   - A line without an id gets one from its content and from the number of equal lines before it. So its id is the
//     same in every run, even if lines were inserted or removed, and two equal lines are two jobs.
//   - Only the journal's index and the names of lines without an id grow with the file, and both are bounded.
//
// # How fast
//
// At most Window jobs are sent without waiting for each other's answers. A refusal because a bucket is full leaves no
// dead letter, because the job is sent again (Weir-On-Throttled). Still, a full bucket is not tried again and again:
// its job waits until the receipts, the configuration and weir's refusals suggest a free place. Jobs of other keys
// overtake it.
//
// The package does not know flags, tables and exit codes.
package bulksubmit
