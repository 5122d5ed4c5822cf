// Package whatif computes what limits would have done to recorded arrivals.
//
//	trace.go       the arrivals: read from a file and checked line by line
//	recorded.go    the arrivals: jobs that a running weir recorded, with what their calls took
//	rehearsal.go   one run: time, and the apis that are tried together
//	member.go      one api in a run: the schedule and the slots of weir itself, in virtual time
//	outcome.go     the outcome of a run
//	suggest.go     the smallest sufficient capacity and rate
//	factor.go      how many times as many jobs the limits bear, and by which factor rates would have to rise
//
// A run uses no formula. It puts the arrivals into a schedule (dispatcher/schedule) with a store of slots
// (bucket.Memory), refuses the arrivals that the intake would refuse, and calls when the schedule says so. So the run
// has the outcome that weir would have on a machine that is never late, with an API that never fails and whose calls
// all take the same time. A job that a running weir recorded gets as many calls as were recorded, each as long as these
// were on average. Apis of one account are tried together.
//
// A job reserves its cost. When its call ends, the took of its line replaces the cost in the limits that answers
// settle. A run does not raise or learn estimates, as a dispatcher does.
//
// A trace takes 40 bytes of memory for each arrival, and 8 more for each limit for which it knows what calls took. It
// has at most MostJobs arrivals. A run takes 8 bytes more for each arrival, and 40 for each key.
package whatif
