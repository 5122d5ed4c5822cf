package dispatcher

import (
	"cmp"
	"context"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recorder"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
)

// paceLocked makes a queue go on at its key's pace.
func (w *apiWorker) paceLocked(q *schedule.KeyQueue, now bucket.Micros) {
	w.leaveLocked(q)
	if w.clock == schedule.OtherClock {
		q.Remind(max(w.d.tail.TAT(w.name, q.Key), w.restoredTATLocked(q.Limits)))
		return
	}
	q.GoOnFrom(w.floor(q, now))
}

// resumeLocked takes up one job that was found in the stream and of which something is known.
func (w *apiWorker) resumeLocked(ctx context.Context, q *schedule.KeyQueue, seq uint64, h jobHistory) {
	var last ledger.LastCall
	if h.last != nil {
		last = *h.last
	}
	var mark foundMark
	if h.mark != nil {
		mark = *h.mark
	}
	mark.NotBefore, last.NotBefore = w.heldAtMostLocked(mark.NotBefore), w.heldAtMostLocked(last.NotBefore)
	j := jobLocked(w.s.Extract(q, seq))
	j.markSeq = mark.seq
	j.bind(w.terms)
	j.Calls, j.attempts = max(mark.Calls, last.Call), max(mark.Attempts, last.Attempt)
	j.Unseen = mark.Unseen && mark.Calls >= last.Call
	j.crashes, j.status = mark.Crashes, cmp.Or(last.Status, mark.Status)
	j.NotBefore, j.Failed = max(mark.NotBefore, last.NotBefore, j.NotBefore, 1), cmp.Or(mark.Reason, last.Detail)
	if mark.Pushback {
		w.holdAgainLocked(q, mark.NotBefore, mark.Reason)
	}
	if last.PushedBack() {
		w.holdAgainLocked(q, last.NotBefore, last.Detail)
	}
	j.answeredAt = cmp.Or(last.At, mark.Answered)
	j.doubt.recall(deadletter.Billed(mark.Billed), mark.Idempotency)
	j.doubt.recall(last.Billed, last.Identity)
	if mark.Calls >= last.Call {
		j.Deaths = mark.Deaths
	}
	if h.intent != nil {
		j.intents = []*intentMark{h.intent.mark}
	}
	w.judgeFoundLocked(ctx, j, h, last)
}

// judgeFoundLocked brings a job that was found in the stream on its way.
func (w *apiWorker) judgeFoundLocked(ctx context.Context, j *job, h jobHistory, last ledger.LastCall) {
	found := recovery.Found{
		Recorded: j.Calls, Ended: last.Final, Beside: last.Beside, Result: h.result != nil, Ending: h.mark != nil && h.mark.Ends != "",
	}
	var noted recorder.Found
	if h.intent != nil {
		found.Intended, found.Overruled = h.intent.Call, h.mark != nil && h.intent.overrules(h.mark)
		noted = w.notedOf(j, h.intent)
		found.Noted = noted.State
	}
	if found.Unrecorded() {
		w.unrecorded.await(j)
	}
	switch recovery.Judge(found) {
	case recovery.Waits:
		if found.Intended > found.Recorded {
			w.takeBackLocked(ctx, j, h.intent)
		}
	case recovery.HasResult:
		j.Queue.Unsure = true
		j.Settle()
		if found.Intended > found.Recorded {
			j.lose(h.intent)
		}
		w.running.Go(func() { w.endWithResult(ctx, j, h.result.At) })
	case recovery.EndsByMark:
		j.Settle()
		last = ledger.LastCall{Outcome: h.mark.Ends, Detail: h.mark.Reason, Status: j.status}
		w.running.Go(func() { w.endAgain(ctx, j, last) })
	case recovery.EndsByLast:
		j.Settle()
		w.running.Go(func() { w.endAgain(ctx, j, last) })
	case recovery.Unproven:
		j.unproven(h.intent, &noted)
		if j.flown != nil {
			w.unrecorded.await(j) // what was noted stays until it is stored
		}
		j.Settle()
		w.running.Go(func() { w.endUnproven(ctx, j, last) })
	case recovery.Answered:
		j.Queue.Noted = max(j.Queue.Noted, bucket.Micros(noted.TAT))
		j.lose(h.intent)
		j.flown = &noted
		j.Unseen = false
		j.Calls = h.intent.Call
		j.Settle()
		w.running.Go(func() { w.settleAnswered(ctx, j) })
	case recovery.Lost:
		if noted.State == recorder.Untold {
			j.Queue.Unsure = true
			j.Queue.Orphaned++
		}
		j.Queue.Noted = max(j.Queue.Noted, bucket.Micros(noted.TAT))
		j.lose(h.intent)
		if j.flown = &noted; !noted.Begun.IsZero() {
			j.lastCall.Started = noted.Begun
		}
		j.Unseen = h.intent.Repeatable && j.First() // else it becomes a letter, and nobody waits for that
		j.Calls, j.attempts = h.intent.Call, j.attempts+1
		j.Settle()
		w.running.Go(func() { w.settleLost(ctx, j) })
	default:
		panic("dispatcher: a fate that nobody knows") // recovery.Judge has a bug
	}
}

// holdAgainLocked holds what a pushback held before the restart.
func (w *apiWorker) holdAgainLocked(q *schedule.KeyQueue, until bucket.Micros, why string) {
	if w.terms.api.Retry.HoldAPI {
		q = nil
	}
	if until > w.now() {
		w.s.Hold(q, until, why)
	}
}

// floor is the earliest theoretical arrival time of a key that was found with jobs at the start. What the ledger knows
// is certain. Beyond it a call may have been running at the crash: the intents tell. Then the key waits one interval with an
// empty bucket, and so it does where there may be a call without an intent.
func (w *apiWorker) floor(q *schedule.KeyQueue, now bucket.Micros) bucket.Micros {
	known := max(w.recordedLocked(q.Key, q.Limits), min(q.Noted, now.Add(w.s.DrainTime(q.Limits))))
	if partitionOf(q).Clean || !q.Unsure && !w.untoldLocked(q) {
		return known
	}
	return max(known, now.Add(w.s.DrainTime(q.Limits))) // a slot after the last that the ledger knows may have been used
}

// recall is when the key may be called at the earliest, as far as calls from before the start say. The ledger's tail,
// read at the start, is enough for most; a key that may owe more than the time it reaches back is looked up when it is first
// to be called. What this process knows already is no answer where others may have owned the key's
// partition meanwhile. A store that is elsewhere has not forgotten anything with this process.
func (w *apiWorker) recall(ctx context.Context, q *schedule.KeyQueue) (bucket.Micros, error) {
	w.mu.Lock()
	known := max(q.TAT, w.knownLocked(q.Key))
	drain := w.s.DrainTime(q.Limits)
	looked := q.LookedUp || known != 0 && w.d.owner == nil && w.restoredTATLocked(q.Limits) == 0
	w.mu.Unlock()
	if w.clock == schedule.OtherClock || looked || w.d.tail.Covers(w.name, w.now().Add(-drain)) {
		return 0, nil
	}
	tat, err := w.lastTAT(ctx, q.Key, known, drain)
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q.LookedUp = true
	bound := w.since
	if w.d.owner != nil {
		bound = w.now()
	}
	tat = min(tat, bound.Add(drain)) // recorded at another rate, perhaps
	if tat > q.TAT {
		q.GoOnFrom(tat)
	}
	return w.s.NextSlot(q, w.now()), nil
}

// endAgain ends a job whose last call the ledger knows, and whose result is stored where there is to be one (unkept.go). A letter is stored
// after the record, and so may be missing: it is written again, and its message id keeps it from standing twice.
func (w *apiWorker) endAgain(ctx context.Context, j *job, last ledger.LastCall) {
	switch last.Outcome {
	case ledger.Done:
		w.finish(j, ledger.Done)
		return
	case ledger.Asked: // of a letter that stood: it stands still, or has ended since
		w.finish(j, string(deadletter.Unknown))
		return
	}
	if !w.reload(ctx, j) {
		return
	}
	j.answeredAt = cmp.Or(last.At, j.answeredAt)
	w.buryLetter(ctx, j, w.letter(j, deadletter.Reason(last.Outcome), last.Detail, last.Status, j.doubt.known()))
}
