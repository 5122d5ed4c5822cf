// Package polling polls the operations that an api has begun, and ends their jobs.
//
// A job whose call the api has accepted (httpcall.Submitted) is never called again. The owner of its partition polls
// its operation, at most once in every interval. The configured rate of polls bounds the polls of all operations that
// the owner polls at the api. The operation that has been due longest comes first. Polls take no slot, count against no
// limit or budget, and are not in the ledger.
//
//	agenda.go  which operation is polled when: a plain value, with the time as an argument
//	poller.go  the polls, and what their answers mean
//	recall.go  cancelled jobs
//
// What an answer means:
//
//	done      the answer, or the part of it that the configuration names, is the job's result
//	failed    the job becomes a letter rejected: the call was made, and billed as calls are
//	running   the job is polled again
//	the rest  it is polled again, after longer waits: no answer, a status that the configuration does not explain, an
//	          address that the configuration does not allow any more, or no operation in the configuration at all
//
// If the api denies weir's access (401, 402, 403, 407, a redirect), weir polls none of its operations for a while. If
// the api pushes a poll back (429, 503), weir polls none before the time that the answer names. Calls go on, because
// the api may limit polls separately. An operation's time is counted from the end of its call. When this time is over,
// the next answer that says running ends the job, and so do lastTries polls in a row that say nothing. The job then
// becomes a letter unknown with the operation's address. A redrive skips that letter unless an operator insists,
// because the operation may still succeed. weir dead reconcile polls the address.
//
// While an operator has paused a key or the api, its operations are neither polled nor given up. Holds of calls and
// used up limits do not stop polls.
//
// # What must hold
//
//   - A job has one end. The schedule gives its operation to one goroutine (Schedule.EndPolled), which stores the end.
//   - weir sends nothing to a host that the configuration does not allow. Only the api's own host gets headers with
//     secrets and weir's certificate (httpcall.Operations).
//   - An operation is polled by the terms in force. If these do not configure polls, the operation waits for terms that
//     do.
//   - At most mostUnderWay polls of an api run. schedule.MaxPolled bounds its operations.
package polling
