package dispatcher

import (
	"cmp"
	"context"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
)

// foundJob is a job that stood in its partition's stream when the partition was taken over, and of which something is known, until it waits as
// other jobs do or has ended. What it is its knowledge says, by recovery.Judge: first what was read with the markers and the ledger's end,
// then what is looked up. What follows is stored as the live way stores it, in the same order and with the same ids, so that a kill in the
// middle repeats it.
type foundJob struct {
	*job
	w      *apiWorker
	known  recovery.Found
	intent *foundIntent    // the newest, nil for none
	noted  recorder.Found  // what its process noted of the call that it is of
	mark   *foundMark      // the newest, nil for none
	last   ledger.LastCall // what is kept of its newest record
	record *ledger.Record  // its newest, where it was looked up
	result uint64          // where its result stands, 0 for none
}

// resumeLocked takes up a job that was found and of which something is known: it waits, or goes on in a goroutine of its own.
func (p *partition) resumeLocked(ctx context.Context, q *schedule.KeyQueue, seq uint64, h jobHistory) {
	f := &foundJob{job: jobLocked(p.w.s.Extract(q, seq)), w: p.w}
	f.recallLocked(h)
	fate := recovery.Judge(f.known)
	if f.known.Unrecorded() {
		f.w.unrecorded.await(f.job)
	}
	if !f.followLocked(fate) {
		return
	}
	f.Settle()
	f.w.running.Go(func() { f.settle(ctx, fate) })
}

// settle brings the job where its fate has it. It blocks until what follows is stored, or the worker stops.
func (f *foundJob) settle(ctx context.Context, fate recovery.Fate) {
	f.passFaults(fate)
	if f.isOnlyToBeDeleted(fate) {
		f.endAgain(ctx)
		return
	}
	if !f.w.reload(ctx, f.job) {
		return
	}
	switch fate {
	case recovery.Waits, recovery.Answered, recovery.Lost:
		found, ok := f.lookUp(ctx)
		if !ok {
			return
		}
		if found {
			fate = recovery.Judge(f.known)
		}
	default:
	}
	switch fate {
	case recovery.Waits:
		f.wait()
	case recovery.HasResult:
		f.endWithResult(ctx)
	case recovery.EndsByMark, recovery.EndsByLast:
		f.endAgain(ctx)
	case recovery.Answered:
		f.endAnswered(ctx)
	case recovery.Lost:
		f.endLost(ctx)
	default:
		panic("dispatcher: a fate that nobody knows") // recovery.Judge has a bug
	}
}

// passFaults are the points at which tests end the process.
func (f *foundJob) passFaults(fate recovery.Fate) {
	switch fate {
	case recovery.Lost:
		fault.Pass(fault.UnknownFound)
	case recovery.Answered:
		fault.Pass(fault.AnswerFound)
	default:
	}
}

// recallLocked takes up what the job's history says of its calls so far.
func (f *foundJob) recallLocked(h jobHistory) {
	j, w := f.job, f.w
	if h.last != nil {
		f.last = *h.last
	}
	var mark foundMark
	if f.mark = h.mark; f.mark != nil {
		mark = *f.mark
	}
	last := &f.last
	mark.NotBefore, last.NotBefore = w.heldAtMostLocked(mark.NotBefore), w.heldAtMostLocked(last.NotBefore)
	j.markSeq = mark.seq
	j.bind(w.terms)
	j.Calls, j.attempts = max(mark.Calls, last.Call), max(mark.Attempts, last.Attempt)
	j.Unseen = mark.Unseen && mark.Calls >= last.Call
	j.crashes, j.status = mark.Crashes, cmp.Or(last.Status, mark.Status)
	j.NotBefore, j.Failed = max(mark.NotBefore, last.NotBefore, j.NotBefore, 1), cmp.Or(mark.Reason, last.Detail)
	if mark.Pushback {
		f.holdAgainLocked(mark.NotBefore, mark.Reason)
	}
	if last.PushedBack() {
		f.holdAgainLocked(last.NotBefore, last.Detail)
	}
	j.answeredAt = cmp.Or(last.At, mark.Answered)
	j.doubt.recall(deadletter.Billed(mark.Billed), mark.Idempotency)
	j.doubt.recall(last.Billed, last.Identity)
	if mark.Calls >= last.Call {
		j.Deaths = mark.Deaths
	}
	if h.result != nil {
		f.result = h.result.At
	}
	if f.intent = h.intent; f.intent != nil {
		j.intents = []*intentMark{f.intent.mark}
		f.noted = f.noteOf(f.intent)
	}
	f.known = h.known()
	f.known.Noted = f.noted.State
}

// followLocked has the schedule know what follows from a job's fate, and reports whether more does: if not, it waits.
func (f *foundJob) followLocked(fate recovery.Fate) (more bool) {
	switch fate {
	case recovery.Waits:
		return f.known.Intended > f.known.Recorded && !f.takeBackLocked()
	case recovery.HasResult:
		if f.known.Intended > f.known.Recorded {
			f.lose(f.intent)
		}
		if f.lost != nil && f.noted.State > recorder.Prepared {
			f.Queue.Noted = max(f.Queue.Noted, bucket.Micros(f.noted.TAT))
		} else {
			f.Queue.Unsure = true
		}
	case recovery.EndsByMark:
		f.last = ledger.LastCall{Outcome: f.mark.Ends, Detail: f.mark.Reason, Status: f.status}
	case recovery.EndsByLast:
		if f.known.Unrecorded() { // its record came late: an owner that took its call for lost has begun another, and died
			f.Queue.Unsure = true
			f.w.unrecorded.never(f.job)
		}
	case recovery.Answered:
		f.Queue.Noted = max(f.Queue.Noted, bucket.Micros(f.noted.TAT))
		f.lose(f.intent)
		f.flown = &f.noted
		f.Unseen = false
		f.Calls = f.intent.Call
	case recovery.Lost:
		if f.noted.State == recorder.Untold {
			f.Queue.Unsure = true
			f.Queue.Orphaned++
		}
		f.Queue.Noted = max(f.Queue.Noted, bucket.Micros(f.noted.TAT))
		f.lose(f.intent)
		if f.flown = &f.noted; !f.noted.Begun.IsZero() {
			f.lastCall.Started = f.noted.Begun
		}
		f.Unseen = f.intent.Idempotency != "" && f.First() // else it becomes a letter, and nobody waits for that
		f.Calls, f.attempts = f.intent.Call, f.attempts+1
	default:
		panic("dispatcher: a fate that nobody knows") // recovery.Judge has a bug
	}
	return true
}

// takeBackLocked has a job's intended call be none, since it had not begun, and reports whether the job goes on at once. Where the intent is
// older than what was read, it is looked up first what came of the job.
func (f *foundJob) takeBackLocked() (goesOn bool) {
	w, i := f.w, f.intent
	w.d.metrics.recovered.WithLabelValues(w.name, "not_begun").Inc()
	f.adopted = w.d.opts.Recorder.Adopt(i.Entry, f.part.callOf(&i.Intent, i.Epoch)) // other jobs may need the intent's message yet
	if w.evidence.isRead(i.stored) {
		f.dropIntentsLocked()
		return true
	}
	f.Unseen = f.First() // who comes behind it waits
	f.intendedAt = i.stored
	return false
}

// holdAgainLocked holds what a pushback of the job's held before the restart.
func (f *foundJob) holdAgainLocked(until bucket.Micros, why string) {
	q := f.Queue
	if f.w.terms.api.Retry.HoldAPI {
		q = nil
	}
	if until > f.w.now() {
		f.w.s.Hold(q, until, why)
	}
}

// noteOf is what the process that wrote an intent noted of its call. An answer that cannot be understood is none.
func (f *foundJob) noteOf(i *foundIntent) recorder.Found {
	if f.part.isRestored(f.Seq) { // what was put back was called since, perhaps by another intent
		return recorder.Found{}
	}
	n := f.w.d.opts.Recorder.Find(i.Entry, f.part.callOf(&i.Intent, i.Epoch))
	if n.Answer != nil && int(n.Answer.Verdict) >= len(verdicts) {
		n.State, n.Answer = recorder.Left, nil
	}
	return n
}

// lookUp takes in what is stored of a job whose intent is older than what has been read, and reports whether that is anything. It blocks until
// the servers have answered; ok is false where the worker stops before.
func (f *foundJob) lookUp(ctx context.Context) (found, ok bool) {
	e := &f.w.evidence
	if f.intendedAt.IsZero() || e.isRead(f.intendedAt) {
		return false, true
	}
	t, ok := e.traces(ctx, e.of(f.job), f.intendedAt)
	if !ok {
		return false, false
	}
	f.intendedAt = time.Time{}
	l := recovery.LookedUp{Asked: t.Inquiries > 0, Result: t.Result != 0}
	if f.result, f.record = t.Result, t.Record; t.Record != nil {
		l.Recorded, l.Ended = t.Record.Call, t.Record.Final
		f.last = t.Record.Last()
	}
	if l.Asked { // of a letter that stood
		f.last = ledger.LastCall{Outcome: ledger.Asked}
	}
	f.known = f.known.With(l)
	return l != recovery.LookedUp{}, true
}

// isOnlyToBeDeleted reports whether the job has ended and all of its end is stored.
func (f *foundJob) isOnlyToBeDeleted(fate recovery.Fate) bool {
	return fate == recovery.EndsByLast && (f.last.Outcome == ledger.Done || f.last.Outcome == ledger.Asked)
}

// wait lets the job be called when it is its turn: what was intended had not begun, or the record of the call is found, by which another one
// is to follow.
func (f *foundJob) wait() {
	f.w.unrecorded.accountedFor(f.job)
	f.w.update(func(*schedule.Schedule) {
		notBefore := bucket.Micros(1)
		if c := f.record; c != nil && c.Call >= f.Calls {
			f.lost, f.flown, f.Calls, f.attempts, f.Deaths, f.Failed = nil, nil, c.Call, c.Attempt, 0, c.Detail
			f.doubt.recall(c.Billed, c.Idempotency)
			f.answeredAt = cmp.Or(f.last.At, f.answeredAt)
			notBefore = max(f.w.heldAtMostLocked(c.NotBefore), 1)
		}
		f.Unseen = false
		f.dropIntentsLocked()
		f.w.restLocked(f.job, notBefore)
	})
}

// endAgain ends a job whose last call the ledger knows. Its result was stored before that record. A letter is stored after the record, and so
// may be missing: it is written again, and its message id keeps it from standing twice.
func (f *foundJob) endAgain(ctx context.Context) {
	switch f.last.Outcome {
	case ledger.Done:
		f.w.finish(f.job, ledger.Done)
		return
	case ledger.Asked: // of a letter that stood: it stands still, or has ended since
		f.w.finish(f.job, string(deadletter.Unknown))
		return
	}
	if c := f.record; c != nil {
		f.w.mu.Lock()
		f.doubt.recall(c.Billed, c.Idempotency)
		f.w.mu.Unlock()
	}
	f.answeredAt = cmp.Or(f.last.At, f.answeredAt)
	f.w.buryLetter(ctx, f.job, f.w.letter(f.job, deadletter.Reason(f.last.Outcome), f.last.Detail, f.last.Status, f.doubt.known()))
}

// endAnswered ends a job's last call as the process would have that made it, and died before it had stored what the call came to.
// Everything that is stored has the ids that it would have had then: what was stored already is not stored twice.
func (f *foundJob) endAnswered(ctx context.Context) {
	f.w.d.metrics.recovered.WithLabelValues(f.w.name, "answered").Inc()
	a := f.flown.Answer
	r := responseOf(a)
	f.chargeAgain(a)
	f.answered(r)
	f.w.conclude(ctx, f.job, r, outcomeOf(a))
}
