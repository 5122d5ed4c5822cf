// Package lane holds what the parts of an api's worker share. Lane is the api's schedule and the partitions that this
// process owns, under one lock. Env is what all apis share. Job is a job near its call.
//
// A goroutine that holds the lock must not wait. Functions whose names end with Locked are called with the lock held.
// The lock guards the embedded schedule.Job of a Job, and every other field that is read under the lock. A job's other
// fields belong to its goroutine, of which there is one at a time.
//
//	lane.go       the lane and its environment
//	job.go        a job near its call; terms.go, doubt.go, wait.go, flight.go and crash.go say what is known of its calls
//	pack.go       the jobs of one call
//	owned.go      a partition for as long as this process owns it
//	readahead.go  messages that were read ahead of need
//	intent.go     intents, and the batch that stores them
//	lossnotes.go  how much of a partition's damage was reported
//	mark.go       a stored hold
//	restored.go   what a restored backup leaves unknown
//	metrics.go    metrics, with spending.go
package lane
