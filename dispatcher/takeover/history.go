package takeover

import (
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recovery"
)

// found holds the markers of one sequence. They belong to the job there, or to other jobs that once had this sequence.
type found struct {
	intents []lane.FoundIntent
	marks   []foundMark
}

// overrules reports whether a call may have been made after the decision that an end's mark records. This is so if the
// call's intent comes after the mark in the stream, or is of a later owner. A mark may arrive late: its owner had the
// right to send it, and lost the right while its connection stalled. The next owner then did not know of the mark.
func overrules(i *lane.FoundIntent, end *foundMark) bool {
	return i.Mark.Seq > end.seq || i.Epoch > end.Epoch
}

type foundMark struct {
	queue.RetryMark
	seq    uint64
	stored time.Time
}

// outdatedBy reports whether the mark before says more than m. before comes before m in the stream. No call follows the
// mark of an end. A mark of an end with another job's answer is an exception: its owner sent it before any call,
// however late it arrives.
func (m *foundMark) outdatedBy(before *foundMark) bool {
	switch m.Ends {
	case "":
		return before.Ends != "" && before.Ends != queue.EndsReused || before.Calls >= m.Calls
	case queue.EndsReused: // m is of an earlier owner, if before is of the same or a later one
		return before.Calls > 0 || before.Ends != "" && before.Ends != queue.EndsReused && before.Epoch >= m.Epoch
	}
	return before.Ends == queue.EndsReused && before.Epoch > m.Epoch
}

// jobHistory is what the stream's markers and the end of the ledger say about one job that a takeover found. The zero
// value says that the job was never called.
type jobHistory struct {
	intent *lane.FoundIntent
	mark   *foundMark
	last   *ledger.LastCall
	result *ledger.StoredResult
}

// history removes the markers of a job's sequence from the replay. It returns what is known of the job. It separately
// returns the markers that are outdated, or of another job. A marker is of another job if a server lost its last writes
// during a call, and then gave the called job's sequence to a new job.
func (r *replay) history(e queue.Entry) (h jobHistory, outdated found) {
	stored := bucket.MicrosOf(e.Time)
	var ending time.Time // the earliest time at which an owner may have stored the end of the newest call's operation
	if f := r.found[e.Seq]; f != nil {
		delete(r.found, e.Seq)
		for i := range f.intents {
			n := &f.intents[i]
			if n.Accepted != stored || h.intent != nil && h.intent.Call > n.Call {
				outdated.intents = append(outdated.intents, *n)
				continue
			}
			if h.intent != nil {
				outdated.intents = append(outdated.intents, *h.intent)
			}
			if h.intent == nil || h.intent.Call < n.Call {
				ending = n.Stored
			}
			h.intent = n
		}
		for i := range f.marks {
			n := &f.marks[i]
			if n.Accepted != stored || h.mark != nil && n.outdatedBy(h.mark) {
				outdated.marks = append(outdated.marks, *n)
				continue
			}
			if h.mark != nil {
				outdated.marks = append(outdated.marks, *h.mark)
			}
			h.mark = n
		}
	}
	// A record or a result may be of another job, too: if the stream was deleted, a new stream counts from 1 again.
	if c, ok := r.records[e.Seq]; ok && c.Of(e) {
		h.last = &c
	}
	if s, ok := r.results[e.Seq]; ok && s.Of(e) {
		h.result = &s
	}
	if h.intent != nil && h.found().Submitted && ending.Before(h.intent.Stored) {
		h.intent.Stored = ending
	}
	return h, outdated
}

// found returns what the history says, without what the flight recorder noted of the intended call.
func (h *jobHistory) found() (f recovery.Found) {
	if h.last != nil {
		f.Recorded, f.Ended, f.Complete = h.last.Call, h.last.Final, isComplete(h.last)
	}
	if h.mark != nil {
		f.Recorded, f.Ending, f.Forgoing = max(f.Recorded, h.mark.Calls), h.mark.Ends != "", h.mark.Ends == queue.EndsReused
	}
	f.Submitted = h.last != nil && h.last.Call == f.Recorded && h.last.Operation != nil && !h.last.Final ||
		h.mark != nil && h.mark.Calls == f.Recorded && h.mark.Operation != nil
	if h.intent != nil {
		f.Intended, f.Overruled = h.intent.Call, h.mark != nil && overrules(h.intent, h.mark)
	}
	f.Result = h.result != nil
	f.Reused = f.Result && h.result.Reused
	return f
}

// isComplete reports whether a job's newest record proves that the whole end of the job is stored.
func isComplete(last *ledger.LastCall) bool {
	return last.Final && (last.Outcome == ledger.Done || last.Outcome == ledger.Reused || last.Outcome == ledger.Asked)
}
