// Package polling polls the operations that an api has begun, and ends their jobs.
//
// A job whose call the api has accepted (httpcall.Submitted) is never called again. The owner of its partition polls
// its operation: at the rate that the api's configuration sets for polls, over all jobs of the partitions that it owns,
// each job at most once in every interval, the one that is due longest first. Polls take no slot, limit or budget and
// are not in the ledger.
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
// If the api denies weir's access (401, 403), no operation of it is polled for a while. If it pushes a poll back, none
// is polled before the time that it names. Calls go on: the api may limit polls by themselves. After the time for which
// operations are polled, counted from the call, the job becomes a letter unknown with the operation's address: at the next
// answer that says running, or after lastTries polls that say nothing. The letter is not redriven unless an operator
// insists, because the operation may still succeed; dead reconcile asks the address.
//
// A pause by an operator stops polls, too, and no operation is given up meanwhile. Holds of calls and a missing slot stop
// no polls.
//
// # What must hold
//
//   - A job has one end. The schedule gives its operation to one goroutine (Schedule.EndPolled), which stores the end.
//   - Nothing is sent to a host that the configuration does not allow, and no header with a secret and no certificate to
//     another than the api's own (httpcall.Operations).
//   - An operation is polled by the terms in force. Without any it waits: the terms may come back.
//   - At most mostUnderWay polls are under way. Operations under way are bounded by schedule.MaxPolled.
package polling
