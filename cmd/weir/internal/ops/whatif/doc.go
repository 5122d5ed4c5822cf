// Package whatif computes what a rate and a capacity would have done to recorded arrivals.
//
//	trace.go       the arrivals: read from a file and checked line by line
//	rehearsal.go   one candidate's run: the schedule and the slots of weir itself, in virtual time
//	outcome.go     the outcome of a run
//	suggest.go     the smallest sufficient capacity and rate
//
// A run uses no formula. It puts the arrivals into a schedule (dispatcher/schedule) with a store of slots
// (bucket.Memory), refuses those that the intake would refuse, and calls when the schedule says so. So its outcome is
// that of weir on a machine that is never late, with an API that never fails. Every call takes the same time.
//
// A trace is held in memory, 24 bytes an arrival and at most MostJobs of them; a run holds 8 bytes more for each.
package whatif
