package dispatcher

import (
	"context"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/reuse"
	"weir/dispatcher/schedule"
)

// If an api's answers may be given again, each job is compared with the jobs that were answered and those that are
// being called. This happens when the schedule says so, before the job's slot (look), and again when the job is made
// ready.

// look compares a job whose turn has come before its slot has. Afterwards the job has ended, waits for another job's
// answer, or waits for its slot.
func (w *caller) look(ctx context.Context, j *lane.Job) {
	if !w.open(ctx, j) {
		return
	}
	if !w.compare(ctx, j) {
		panic("dispatcher: a job that was looked at is to be called") // compare was given one that has no slot
	}
}

// compare looks for an answer to a job whose message is loaded. gone is true if the job has ended with an answer, waits
// for one, or waits for its slot. If gone is false, the job must be called now, and other jobs with an equal request
// wait for its answer.
func (w *caller) compare(ctx context.Context, j *lane.Job) (gone bool) {
	rule := j.Terms.API.Reuse // its message was read by these terms
	var sum reuse.Sum
	if rule != nil {
		sum = rule.Of(j.Message) // without the lock, as bodies are large
	}
	for {
		var a *reuse.Answer
		w.Mu.Lock()
		if w.Equals != nil && w.Equals.Rule.CompareAlike(rule) {
			a, gone = w.CompareLocked(j, sum)
		} else if gone = j.LooksAhead(); gone { // the terms have just changed: the job is looked at, or made ready, again
			w.Sched.Looked(j.Job, schedule.Look{})
			w.Sched.Waken(j.Job, true)
		}
		w.Mu.Unlock()
		if a == nil {
			w.WakeUp()
			return gone
		}
		if w.endReused(ctx, j, *a) {
			return true
		}
	}
}

// endReused ends a job with an earlier answer. If that answer is no longer stored, endReused forgets it and returns
// false. The job rests in three cases: the answer cannot be read now, the job was cancelled meanwhile, or jobs before
// it have not begun.
func (w *caller) endReused(ctx context.Context, j *lane.Job, a reuse.Answer) (gone bool) {
	of, err := w.settler.Answer(ctx, j, a)
	if err == nil && of == nil {
		w.Mu.Lock()
		if w.Equals != nil {
			w.Equals.Answers.Forget(a)
		}
		w.Mu.Unlock()
		return false
	}
	if err == nil {
		// The job's record will be its key's newest, and a later process takes the key's pace from that.
		_, err = w.pace.Recall(ctx, j.Queue)
	}
	if err != nil {
		w.unprepared(ctx, j, err)
		return true
	}
	ends := false
	w.Update(func(s *schedule.Schedule) {
		j.DropIntentsLocked()
		j.Orders = nil
		if ends = s.Forgo(j.Job); !ends {
			s.Looked(j.Job, schedule.Look{Answered: true})
		}
	})
	if ends {
		w.settler.EndReused(ctx, j, of)
	}
	return true
}

// open loads and reads a job's message, and reports whether the job may go on. If not, the job rests or has ended.
func (w *caller) open(ctx context.Context, j *lane.Job) bool {
	w.Mu.Lock()
	j.Bind(w.Terms)
	j.In = nil
	removed := j.Part.IsRemovedLocked(j.Seq)
	if removed {
		j.Part.RecallKeptLocked(j)
	}
	w.Mu.Unlock()
	if removed {
		w.Unstage(j)
		w.settler.BuryMissing(ctx, j, queue.DeletedByOthers)
		return false
	}
	entry, err := w.memory.Load(ctx, j)
	if err != nil {
		w.unprepared(ctx, j, err)
		return false
	}
	if reason, detail := w.examine(j, entry, j.CalledIn()); reason != "" {
		w.Unstage(j)
		if j.Bond != nil && reason == deadletter.Unknown && w.settler.EndsLate(ctx, j) {
			return false
		}
		w.settler.Bury(ctx, j, reason, detail, nil)
		return false
	}
	return true
}
