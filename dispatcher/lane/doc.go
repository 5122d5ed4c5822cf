// Package lane holds what the parts of an api's worker share. Lane is the api's schedule and the partitions that this
// process owns, under one lock. Env is what all apis share. Job is a job near its call.
//
// A goroutine that holds the lock must not wait. Functions whose names end with Locked are called with the lock held.
// Of a Job the lock guards the embedded schedule.Job and the first block of fields. The second block belongs to the
// job's goroutine, of which there is one at a time; while a job has none, the lock guards that block too (job.go).
//
//	lane.go       the lane and its environment
//	job.go        a job near its call; terms.go, doubt.go, wait.go, flight.go and crash.go say what is known of its calls
//	bill.go       what a job's last call took
//	pack.go       the jobs of one call
//	owned.go      a partition for as long as this process owns it
//	readahead.go  messages that were read ahead of need
//	intent.go     intents, what a job has announced by them, and the batch that stores them
//	lossnotes.go  how much of a partition's damage was reported
//	mark.go       a stored hold
//	restored.go   what a restored backup leaves unknown
//	reuse.go      jobs that ask the same thing
//	metrics.go    metrics, with spending.go
package lane
