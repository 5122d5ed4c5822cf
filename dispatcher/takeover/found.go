package takeover

import (
	"cmp"
	"context"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
	"weir/ingest"
)

// foundJob is a job that a takeover found in the stream with a history: markers, records or a result. It exists until
// the job waits like any other job, or has ended. recovery.Judge decides the job's fate: first by the markers and the
// ledger's end, and then by what a lookup has found. The outcome is stored in the same order and with the same ids as
// the outcome of a live call. So a kill in the middle only repeats it.
type foundJob struct {
	*lane.Job
	w      *settle.Settler
	found  recovery.Found
	intent *lane.FoundIntent // the newest intent, nil for none
	noted  recorder.Found    // what the process that stored the intent noted of its call
	mark   *foundMark        // the newest mark, nil for none
	last   ledger.LastCall   // the part of its newest record that the ledger's tail keeps
	record *ledger.Record    // the newest record, if it was looked up
	result uint64            // sequence of its result, 0 for none
}

// resumeLocked resumes a found job with a history. The job waits, or continues in a goroutine of its own.
func (p *reader) resumeLocked(ctx context.Context, q *schedule.KeyQueue, e queue.Entry, h jobHistory) {
	f := &foundJob{Job: lane.JobLocked(p.W.Sched.Extract(q, e.Seq)), w: p.settler}
	f.ID, f.Accepted = e.Header.Get(ingest.HeaderJobID), bucket.MicrosOf(e.Time)
	f.recallLocked(h)
	fate := recovery.Judge(f.found)
	if f.found.Unrecorded() {
		f.w.Unrecorded.Await(f.Job)
	}
	if !f.followLocked(fate) {
		return
	}
	f.Settle()
	f.w.Running.Go(func() { f.settle(ctx, fate) })
}

// settle carries out the job's fate. It blocks until the outcome is stored, the job waits, or the worker stops.
func (f *foundJob) settle(ctx context.Context, fate recovery.Fate) {
	f.passFaults(fate)
	if f.isOnlyToBeDeleted(fate) {
		f.endAgain(ctx)
		return
	}
	if !f.w.Reload(ctx, f.Job) {
		return
	}
	switch fate {
	case recovery.Waits, recovery.Answered, recovery.Lost, recovery.Polls, recovery.Forgoes:
		found, ok := f.lookUp(ctx)
		if !ok {
			return
		}
		if found {
			fate = recovery.Judge(f.found)
		}
	default:
	}
	switch fate {
	case recovery.Waits:
		f.wait(ctx)
	case recovery.HasResult:
		f.endWithResult(ctx)
	case recovery.EndsByMark:
		f.endAgain(ctx)
	case recovery.EndsByLast:
		f.passUnrecorded()
		f.endAgain(ctx)
	case recovery.Answered:
		f.endAnswered(ctx)
	case recovery.Lost:
		f.endLost(ctx)
	case recovery.Polls:
		f.poll(ctx)
	case recovery.Forgoes:
		f.endForgone(ctx)
	default:
		panic("takeover: unknown fate") // recovery.Judge has a bug
	}
}

// passFaults passes the points at which tests kill the process.
func (f *foundJob) passFaults(fate recovery.Fate) {
	switch fate {
	case recovery.Lost:
		fault.Pass(fault.UnknownFound)
	case recovery.Answered:
		fault.Pass(fault.AnswerFound)
	default:
	}
}

// recallLocked restores what the history says about the job's calls so far.
func (f *foundJob) recallLocked(h jobHistory) {
	j, w := f.Job, f.w
	if h.last != nil {
		f.last = *h.last
	}
	var mark foundMark
	if f.mark = h.mark; f.mark != nil {
		mark = *f.mark
	}
	last := &f.last
	mark.NotBefore, last.NotBefore = w.HeldAtMostLocked(mark.NotBefore), w.HeldAtMostLocked(last.NotBefore)
	j.Marks.Last = mark.seq
	j.Bind(w.Terms)
	j.Calls, j.Attempts = max(mark.Calls, last.Call), max(mark.Attempts, last.Attempt)
	j.Unseen = mark.Unseen && mark.Calls >= last.Call
	j.Crashes, j.Status = mark.Crashes, cmp.Or(last.Status, mark.Status)
	j.NotBefore, j.Failed = max(mark.NotBefore, last.NotBefore, j.NotBefore, 1), cmp.Or(mark.Reason, last.Detail)
	if mark.Pushback {
		f.holdAgainLocked(mark.NotBefore, mark.Reason)
	}
	if last.PushedBack() {
		f.holdAgainLocked(last.NotBefore, last.Detail)
	}
	j.AnsweredAt = cmp.Or(last.At, mark.Answered)
	j.Doubt.Recall(deadletter.Billed(mark.Billed), mark.Idempotency)
	j.Doubt.Recall(last.Billed, last.Identity)
	j.BindLocked(mark.Pack, last.Pack)
	if mark.Calls >= last.Call {
		j.Deaths = mark.Deaths
	}
	if h.result != nil {
		f.result = h.result.At
	}
	if f.intent = h.intent; f.intent != nil {
		j.Announced.Marks = []*lane.IntentMark{f.intent.Mark}
		f.noted = f.noteOf(f.intent)
		j.Calls = max(j.Calls, f.intent.Call-1) // the record of the call before may be older than what was read
	}
	f.found = h.found()
	f.found.Noted = f.noted.State
	if last.Call == f.found.Recorded {
		f.recallOperation(last.Operation)
	}
	if mark.Calls == f.found.Recorded && f.Operation == nil {
		f.recallOperation(mark.Operation)
	}
}

// recallOperation restores what is known of the operation that a job's last call began. op is nil if it began none.
func (f *foundJob) recallOperation(op *queue.Operation) {
	if op == nil {
		return
	}
	f.Operation, f.Bill.Paid = op, op.Price
	f.LastCall = &deadletter.LastCall{Started: op.Started, Bytes: -1, Target: op.Target}
}

// followLocked updates the job and its queue as the job's fate says. It returns true if settle must do the rest.
// Otherwise the job waits or is polled.
func (f *foundJob) followLocked(fate recovery.Fate) (more bool) {
	switch fate {
	case recovery.Polls:
		f.w.Operations.HoldLocked(f.Job)
		switch {
		case f.found.Intended > f.found.Recorded: // another owner had intended a further call, which had not begun
			if !f.takeBackLocked() || f.isUnmarked() {
				return true
			}
		case f.intent != nil:
			f.IntendedAt = f.intent.Stored
		}
		if f.isUnmarked() || f.intent != nil && !f.w.Evidence.IsRead(f.intent.Stored) {
			return true
		}
		f.w.Operations.PollLocked(f.Job)
		return false
	case recovery.Waits:
		goesOn := f.found.Intended <= f.found.Recorded || f.takeBackLocked()
		return !goesOn || f.isUnmarked()
	case recovery.HasResult:
		if f.found.Uncalled() {
			break // no call took anything
		}
		if f.found.Intended > f.found.Recorded {
			f.Lose(f.intent)
			f.In = f.intent.Pack
		}
		if f.Lost != nil && f.noted.State > recorder.Prepared {
			f.Queue.Noted = max(f.Queue.Noted, bucket.Micros(f.noted.TAT))
		} else {
			f.Queue.Unsure = f.Queue.Unsure || !f.found.Submitted // an operation's result is not that of its call
		}
	case recovery.EndsByMark:
		f.last = ledger.LastCall{Outcome: f.mark.Ends, Detail: f.mark.Reason, Status: f.Status}
	case recovery.Forgoes:
		f.IntendedAt, f.Failed = f.mark.stored, ""
	case recovery.EndsByLast:
		if f.found.Unrecorded() {
			f.Queue.Unsure = true
			f.passUnrecorded()
		}
	case recovery.Answered:
		f.Queue.Noted = max(f.Queue.Noted, bucket.Micros(f.noted.TAT))
		f.Lose(f.intent)
		f.In = f.intent.Pack
		f.TieLocked(f.In)
		f.Flown, f.Operation = &f.noted, lane.OutcomeOf(f.noted.Answer).Operation
		if f.Operation != nil {
			f.w.Operations.HoldLocked(f.Job)
		}
		f.Unseen = false
		f.Calls = f.intent.Call
	case recovery.Lost:
		if f.noted.State == recorder.Untold {
			f.Queue.Unsure = true
			if !f.intent.Pack.Follows() {
				f.Queue.Orphaned++
			}
		}
		f.Queue.Noted = max(f.Queue.Noted, bucket.Micros(f.noted.TAT))
		f.Lose(f.intent)
		f.Operation, f.In = nil, f.intent.Pack // Operation belongs to an earlier call
		f.TieLocked(f.In)
		if f.Flown = &f.noted; !f.noted.Begun.IsZero() {
			f.LastCall.Started = f.noted.Begun
		}
		f.Unseen = f.intent.Idempotency != "" && f.First() // otherwise it becomes a letter, for which no job waits
		f.Calls, f.Attempts = f.intent.Call, f.Attempts+1
	default:
		panic("takeover: unknown fate") // recovery.Judge has a bug
	}
	return true
}

// passUnrecorded notes that the job's newest call will never get a record, if it has none. This happens as follows: an
// owner took the call before it for lost, began this one and died, and then the final record of the earlier call
// arrived.
func (f *foundJob) passUnrecorded() {
	if f.found.Unrecorded() {
		f.w.Unrecorded.Never(f.Job)
	}
}

// takeBackLocked withdraws a job's intended call, which had not begun, and reports whether the job continues at once.
// If the intent is older than the part of the ledger that was read, the job does not continue until lookUp has found
// out whether it has ended.
func (f *foundJob) takeBackLocked() (goesOn bool) {
	w, i := f.w, f.intent
	w.Env.Metrics.Recovered.WithLabelValues(w.Name, "not_begun").Inc()
	// The intent's message may stay in the stream, because other jobs may need it. So this process notes again that the
	// call has not begun.
	f.Adopted = w.Env.Recorder.Adopt(i.Entry, f.Part.CallOf(&i.Intent, i.Epoch))
	if w.Evidence.IsRead(i.Stored) {
		if !f.isUnmarked() {
			f.DropIntentsLocked()
		}
		return true
	}
	f.Unseen = f.First() // the jobs behind it wait
	f.IntendedAt = i.Stored
	return false
}

// holdAgainLocked renews the hold of a pushback that the job got before the restart.
func (f *foundJob) holdAgainLocked(until bucket.Micros, why string) {
	q := f.Queue
	if f.w.Terms.API.Retry.HoldAPI {
		q = nil
	}
	if until > f.w.Now() {
		f.w.Sched.Holds.Hold(q, until, why)
		f.Marks.Held = max(f.Marks.Held, until)
	}
}

// noteOf returns what the process that stored an intent noted about the intent's call. It ignores a noted answer whose
// verdict is unknown.
func (f *foundJob) noteOf(i *lane.FoundIntent) recorder.Found {
	if f.Part.IsRestored(f.Seq) { // a restored job may have been called again since, with another intent
		return recorder.Found{}
	}
	n := f.w.Env.Recorder.Find(i.Entry, f.Part.CallOf(&i.Intent, i.Epoch))
	if n.Answer != nil && int(n.Answer.Verdict) >= len(lane.Verdicts) {
		n.State, n.Answer = recorder.Left, nil
	}
	return n
}

// lookUp looks up what is stored about a job, if the job's intent is older than the part of the ledger that was read.
// found reports whether it found anything. It blocks until the servers have answered; ok is false if the worker stops
// first.
func (f *foundJob) lookUp(ctx context.Context) (found, ok bool) {
	e := &f.w.Evidence
	if f.IntendedAt.IsZero() || e.IsRead(f.IntendedAt) {
		return false, true
	}
	t, ok := e.Traces(ctx, e.Of(f.Job), f.IntendedAt)
	if !ok {
		return false, false
	}
	f.IntendedAt = time.Time{}
	l := recovery.LookedUp{Asked: t.Inquiries > 0, Result: t.Result != 0, Reused: t.Reused}
	if f.result, f.record = t.Result, t.Record; t.Record != nil {
		l.Recorded, l.Ended = t.Record.Call, t.Record.Final
		l.Submitted = t.Record.Operation != nil && !t.Record.Final
		f.recallOperation(t.Record.Operation)
		f.last = t.Record.Last()
		l.Complete = isComplete(&f.last)
	}
	if l.Asked { // an inquiry was made about the job's letter, so the letter was stored
		f.last = ledger.LastCall{Outcome: ledger.Asked}
	}
	f.found = f.found.With(l)
	return l != recovery.LookedUp{}, true
}

// isOnlyToBeDeleted reports whether the job has ended and its whole end is stored.
func (f *foundJob) isOnlyToBeDeleted(fate recovery.Fate) bool {
	return fate == recovery.EndsByLast && f.found.Complete
}

// isUnmarked reports whether the ledger says more about the job's last call than the job's mark: that another call
// follows, or that an operation goes on. Then the former process died after it had stored the record, and before it
// could store the mark.
func (f *foundJob) isUnmarked() bool {
	if f.found.Submitted && (f.mark == nil || f.mark.Operation == nil) {
		return true
	}
	return f.mark == nil && f.last.Call > 0 || f.mark != nil && f.last.Call > f.mark.Calls
}

// wait lets the job be called in its turn, because its intended call had not begun, or its record says that another
// call follows. If its retry mark is missing, wait stores the mark before it drops the intent. A later owner may not
// read the ledger as far back as the record, and would then treat the job as never called.
func (f *foundJob) wait(ctx context.Context) {
	f.w.Unrecorded.AccountedFor(f.Job)
	f.w.Operations.Forget(f.Job)
	f.w.Update(func(*schedule.Schedule) {
		if c := f.record; c != nil && c.Call >= f.Calls {
			f.Lost, f.Flown, f.Calls, f.Attempts, f.Deaths, f.Failed = nil, nil, c.Call, c.Attempt, 0, c.Detail
			f.Doubt.Recall(c.Billed, c.Idempotency)
			f.BindLocked(f.Bound(), c.Pack)
			f.AnsweredAt = cmp.Or(f.last.At, f.AnsweredAt)
			f.NotBefore = f.w.HeldAtMostLocked(c.NotBefore)
		}
		f.NotBefore = max(f.NotBefore, 1)
		f.Unseen = false
		if !f.isUnmarked() {
			f.DropIntentsLocked()
			f.w.RestLocked(f.Job, f.NotBefore)
		}
	})
	if f.isUnmarked() {
		f.w.Rest(ctx, f.Job, &ledger.Record{Outcome: f.last.Outcome, Detail: f.last.Detail}, f.NotBefore)
	}
}

// poll lets a job be polled whose last call the api has accepted. If the mark of the operation is missing, poll first
// stores it, for the same reason as wait does.
func (f *foundJob) poll(ctx context.Context) {
	f.w.Unrecorded.AccountedFor(f.Job)
	detail := f.last.Detail
	f.w.Update(func(*schedule.Schedule) {
		if c := f.record; c != nil && c.Call >= f.Calls {
			f.Lost, f.Flown, f.Calls, f.Attempts, f.Deaths = nil, nil, c.Call, c.Attempt, 0
			f.Doubt.Recall(c.Billed, c.Idempotency)
			f.AnsweredAt, detail = cmp.Or(f.last.At, f.AnsweredAt), c.Detail
		}
		f.Unseen = false
	})
	if f.isUnmarked() {
		f.w.Operations.Keep(ctx, f.Job, &ledger.Record{Call: f.Calls, Outcome: ledger.Submitted, Detail: detail})
		return
	}
	f.w.Update(func(*schedule.Schedule) {
		if f.found.Intended > f.found.Recorded {
			f.DropIntentsLocked()
		}
		f.w.Operations.PollLocked(f.Job)
	})
}

// endAgain ends a job whose end the ledger or a mark records. A result was stored before the record that says so. A
// letter is stored after the record or the mark, so it may be missing. endAgain writes it again, and its message id
// keeps the stream from storing it twice.
func (f *foundJob) endAgain(ctx context.Context) {
	switch f.last.Outcome {
	case ledger.Done, ledger.Reused:
		f.w.Finish(f.Job, f.last.Outcome)
		return
	case ledger.Asked: // the job's letter was stored, and either still exists or has ended since
		f.w.Finish(f.Job, string(deadletter.Unknown))
		return
	}
	if c := f.record; c != nil {
		f.w.Mu.Lock()
		f.Doubt.Recall(c.Billed, c.Idempotency)
		f.w.Mu.Unlock()
	}
	f.AnsweredAt = cmp.Or(f.last.At, f.AnsweredAt)
	reason := deadletter.Reason(f.last.Outcome)
	f.w.BuryLetter(ctx, f.Job, settle.Letter(f.Job, reason, f.last.Detail, f.last.Status, f.Doubt.Charged()))
}

// endAnswered settles a call that was answered, but whose process died before it had stored the outcome. From what that
// process noted, it stores what that process would have stored. It uses the same ids, so that the streams store nothing
// twice.
func (f *foundJob) endAnswered(ctx context.Context) {
	f.w.Env.Metrics.Recovered.WithLabelValues(f.w.Name, "answered").Inc()
	a := f.Flown.Answer
	r := lane.ResponseOf(a)
	f.ChargeAgain(a)
	f.Answered(r)
	out := lane.OutcomeOf(a)
	if out.Operation != nil {
		out.Operation.Target = f.Lost.Target
	}
	f.w.Conclude(ctx, f.Job, r, out)
}
