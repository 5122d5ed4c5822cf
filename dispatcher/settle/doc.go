// Package settle brings jobs to their ends. The Settler stores the outcome of a call, or that a job ends without a
// call. Then it has the job deleted, or lets the job wait. The documentation of package dispatcher says what is stored
// in which order.
//
//	settle.go      the order of the writes
//	jobend.go      the messages that are stored; functions of the job, which change nothing
//	operation.go   jobs that the api has accepted, and the ends of their operations
//	reuse.go       ends jobs with the answers of equal jobs
//	resultbar.go   keeps a late result out
//	evidence.go    looks up what the servers stored of earlier calls
//	jobmemory.go   gives jobs room in memory, and loads their messages
//	missing.go     letters of jobs whose messages are gone
//	holdnotes.go   reports holds, and stores those that last
//	unrecorded.go  calls of former processes that the ledger does not have yet
//	spans.go       spans of jobs (Spans)
//	streams.go     the streams of results and calls
package settle
