// Package whatif computes what limits would have done to recorded arrivals.
//
//	trace.go       the arrivals: read from a file and checked line by line
//	rehearsal.go   one candidate's run: the schedule and the slots of weir itself, in virtual time
//	outcome.go     the outcome of a run
//	suggest.go     the smallest sufficient capacity and rate
//
// A run uses no formula. It puts the arrivals into a schedule (dispatcher/schedule) with a store of slots
// (bucket.Memory), refuses the arrivals that the intake would refuse, and calls when the schedule says so. So the run
// has the outcome that weir would have on a machine that is never late, with an API that never fails and whose calls
// all take the same time.
//
// A job reserves its cost. When its call ends, the took of its line replaces the cost in the limits that answers
// settle. A run does not raise or learn estimates, as a dispatcher does.
//
// A trace takes 32 bytes of memory for each arrival. It has at most MostJobs arrivals. A run takes 8 bytes more for
// each arrival.
package whatif
