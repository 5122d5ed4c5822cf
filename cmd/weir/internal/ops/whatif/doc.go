// Package whatif says what a rate and a capacity would have done to recorded arrivals.
//
//	trace.go       the arrivals: read from a file and checked line by line
//	rehearsal.go   one candidate's run: the schedule and the slots of weir itself, in virtual time
//	outcome.go     what came of it
//	suggest.go     the smallest capacity and rate that would have done
//
// A run is no formula. Arrivals are put into a schedule (dispatcher/schedule) with a store of slots (bucket.Memory), refused where the
// intake would refuse them, and called when the schedule says so; so its answer is what weir does on a machine that is never late, with an
// api that never fails. Every call takes the same time.
//
// A trace is held in memory, 24 bytes an arrival and at most MostJobs of them; a run holds 8 bytes more for each.
package whatif
