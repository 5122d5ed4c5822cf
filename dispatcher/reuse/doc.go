// Package reuse decides which jobs ask the same thing, and remembers which answers may be given again.
//
//	request.go   Rule, and the Sum by which two requests are compared
//	answers.go   Answers: the results that may be given again, within a bound of bytes
//	groups.go    Groups: the jobs that ask the same thing now, and which of them is called for all
//
// The package holds no body. An answer is the sequence of a result in its stream. The reader of that result must check
// that it still answers the request. Nothing here is stored: a restart costs calls, and breaks no promise.
//
// # What must hold
//
//   - Two jobs have the same Sum only if everything that the rule compares is equal, byte by byte. What identifies a
//     single job is never compared: its id, its deadline, its reply subject.
//   - A job leads those that ask the same thing from when it is made ready until it has ended, or is put back without a
//     call. There is at most one leader for each Sum, and a leader waits for no other job.
//   - Work for each job does not grow with the number of remembered answers.
package reuse
