// Package outlook plans from what a running weir recorded: which keys would have overflowed, and when they will.
//
//	past.go      the jobs of one api, from its records in the ledger and its letters
//	read.go      reads the ledger and the letters, and says what they do not tell
//	growth.go    the growth that the days show: a straight line
//	outlook.go   the jobs under the present limits, and how many times as many these bear
//	limits.go    how much of each shared limit the busiest day took
//	next.go      which keys overflow next
//
// A job's record says when its queue took the job, how long its calls lasted, and what these took from each limit. An
// overflow letter says when a job came that no queue took. Together they are a trace (ops/whatif), which runs through
// weir's own scheduler with the limits of a configuration. So the plan knows nothing that the ledger does not know: Gaps
// lists it.
//
// Memory is bounded by Bounds, which the caller gives: a job takes some 50 bytes, and 8 for each limit whose units
// depend on the call. A job whose end was not read yet takes some 60 bytes more.
//
// The package does not know how a table looks.
package outlook
