// Package takeover reads the stream of a partition that this process has taken over, and resumes the jobs that it finds
// there. A Takeover belongs to one tenure of the partition. The documentation of package dispatcher has the table of
// what becomes of which job.
//
//	takeover.go               a Takeover: its parts, its beginning and its end
//	reader.go, replay.go      read the stream, and let calls of a key start as soon as its jobs have been read
//	pace.go, orphanedcalls.go say when a found key may be called again
//	found.go                  resumes a job with a history (history.go), by the fate that recovery.Judge gives it
//	lostcall.go, loneresult.go  settle calls that left no record
//	duplicate.go              ends copies of jobs that have ended
//	damage.go                 reports what the stream's store has lost
//	removal.go                reports what was deleted by hand
//	inventory.go              notes which jobs wait, and reports those that were deleted while the partition had no owner
package takeover
