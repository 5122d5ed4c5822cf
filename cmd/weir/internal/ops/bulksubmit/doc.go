// Package bulksubmit submits the jobs of a file. It reads them as JSON lines, gives each job an id, sends them in
// batches, and keeps a journal from which a later run resumes.
//
// # What must hold
//
//   - No job is called twice because a run was interrupted and started again. As long as weir remembers an id (dedupe),
//     weir prevents a second call. After that time the journal decides: a job that has a receipt is not sent, and a job
//     that may have been accepted is reported and not sent. The same holds within a run, for a job without an answer.
//   - A job is in the journal, on disk, before it is published. So the next run knows every job that a killed run sent.
//     Only one run at a time may use a journal.
//   - A line without an id gets an id from its content and from the number of equal lines before it. So the id is the
//     same in every run, even if other lines are inserted or removed, and two equal lines are two jobs.
//   - Only the journal's index and the names of lines without an id grow with the file, and both are bounded.
//
// # How fast
//
// The delivery has at most window jobs under way at a time. A job that a full bucket refused leaves no dead letter,
// because the delivery sends it again (Weir-On-Throttled). It sends the job again only when the receipts, the
// configuration and weir's refusals suggest a free place. Meanwhile jobs of other keys overtake the job.
//
// The package does not know flags, tables and exit codes.
package bulksubmit
