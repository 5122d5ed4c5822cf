package recovery

import "weir/dispatcher/recorder"

// Found is what is known about a job that was found in its stream.
type Found struct {
	// Recorded is the number of the last call that has a record or a retry mark, 0 for none.
	Recorded int
	// Ended says that the ledger's newest record of the job is final.
	Ended bool
	// Complete says that this record proves that the whole end is stored: it says done or reused, which is written
	// after the result, or it is of an inquiry about the job's letter.
	Complete bool
	// Result says that a result of the job is stored.
	Result bool
	// Reused says that this result is the answer of another job: no call of the job was stored before it.
	Reused bool
	// Intended is the number of the call that the newest intent announces, 0 for none.
	Intended int
	// Noted is what the process that wrote the newest intent noted of its call. It is set only if that process is known
	// to have ended.
	Noted recorder.State
	// Ending says that a mark announces the job's end without a call.
	Ending bool
	// Submitted says that the newest record, or the newest mark, is of a call with which the api began an operation.
	Submitted bool
	// Forgoing says that the mark of Ending announces an end with the answer of another job. Such a mark is stored
	// before the result.
	Forgoing bool
	// Overruled says that the newest intent is later than the mark of Ending, so that a call may have begun after that
	// mark.
	Overruled bool
}

// Fate is what becomes of a found job.
type Fate int

// The fates.
const (
	Waits      Fate = iota // none of its calls is under way: it is called in its turn
	HasResult              // its result is stored, and no record says so: it ends as done
	EndsByMark             // a mark announces its end: its letter is stored, perhaps a second time
	EndsByLast             // its last call ended the job: its letter, if it has one, is stored, perhaps a second time
	Lost                   // a call of it may have been made, and its outcome is unknown
	Answered               // its last call was answered, and the outcome is not stored: it is stored now
	Polls                  // the api has accepted it: it is polled, and never called again
	Forgoes                // it was ending with another job's answer: it does so if its result is stored, else it waits
)

// Unrecorded reports whether a call of the job may have been made without a record.
func (f Found) Unrecorded() bool {
	return f.mayHaveBegun() || f.Result && !f.Complete && !f.Reused
}

// Uncalled reports whether the job ended with the answer of another job, and no call of it can lack a record.
func (f Found) Uncalled() bool { return f.Result && f.Reused && !f.mayHaveBegun() }

// mayHaveBegun reports whether the newest intended call has no record and may have begun. If an owner was ending the
// job with another job's answer, it had begun no call.
func (f Found) mayHaveBegun() bool {
	return f.Intended > f.Recorded && f.Noted != recorder.Prepared && (!f.Forgoing || f.Overruled || f.Recorded > 0)
}

// Judge decides what becomes of a found job. A stored result prevails over any other end: the producer may have it
// already, and no letter may then say the opposite.
//
// A record of a failure beside a result is of another call of the job. An owner took the earlier call for lost, and
// repeated it under the same idempotency key. The result may be of either call.
//
// The answer of another job prevails in the same way. It is given only to a job that was never called, but a later
// owner that does not know of it may have begun a call.
func Judge(f Found) Fate {
	ends := f.Ending && (f.Intended == 0 || !f.Overruled || f.Noted == recorder.Prepared && f.Intended > f.Recorded)
	switch {
	case f.Complete:
		return EndsByLast
	case f.Result:
		return HasResult
	case ends && !f.Forgoing:
		return EndsByMark
	case f.Ended:
		return EndsByLast
	case ends && f.Recorded == 0:
		return Forgoes
	case f.Intended <= f.Recorded, f.Noted == recorder.Prepared:
		if f.Submitted {
			return Polls
		}
		return Waits
	case f.Noted == recorder.Answered:
		return Answered
	}
	return Lost
}

// LookedUp is what a lookup by key found about a job, in records and results that are older than those read with the
// markers.
type LookedUp struct {
	Recorded int  // as in Found, 0 if no record was found
	Ended    bool // as in Found
	Complete bool // as in Found
	// Submitted is as in Found, for the record that was found.
	Submitted bool
	Result    bool // its result was found
	Reused    bool // as in Found
	Asked     bool // an inquiry about its letter unknown was recorded: the job had ended
}

// With adds what a lookup has found to what is known of a job.
func (f Found) With(l LookedUp) Found {
	if l.Recorded > f.Recorded {
		f.Submitted = false // the known operation is of another call
	}
	f.Submitted = f.Submitted || l.Submitted
	f.Recorded, f.Result, f.Reused = max(f.Recorded, l.Recorded), f.Result || l.Result, f.Reused || l.Reused
	f.Ended, f.Complete = f.Ended || l.Ended || l.Asked, f.Complete || l.Complete || l.Asked
	return f
}
