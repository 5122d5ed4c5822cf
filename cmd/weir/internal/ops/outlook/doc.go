// Package outlook plans from what a running weir recorded: which keys would have overflowed, and when they will.
//
//	past.go      the jobs of one api, from its records in the ledger and its letters
//	read.go      reads the ledger and the letters, and says what they do not tell
//	growth.go    the growth that the days show: a straight line
//	outlook.go   the jobs under the present limits, and how many times as many jobs these bear
//	limits.go    how much of each shared limit the busiest day took
//	next.go      which keys overflow next
//
// A job's record says when its queue took the job, how long its calls lasted, and what these took from each limit. An
// overflow letter says when a job came that no queue took. Together they are a trace (ops/whatif), which runs through
// weir's own scheduler with the limits of a configuration. Gaps lists what the ledger and the letters do not tell, and
// what the plan therefore lacks.
//
// Bounds, which the caller gives, limit the memory. A job takes some 50 bytes, and 8 more for each limit whose units
// depend on the call. Until its end was read, a job takes another 60 bytes. A run takes some 20 bytes for each of its
// jobs, and has up to whatif.MostLoad times as many jobs as were read.
//
// The package does not know how an outlook is printed.
package outlook
