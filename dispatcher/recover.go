package dispatcher

import (
	"cmp"
	"context"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/dispatcher/recovery"
	"weir/dispatcher/schedule"
)

// paceLocked makes a line go on at its key's pace.
func (l *lane) paceLocked(q *schedule.KeyQueue, now bucket.Micros) {
	l.leaveLocked(q)
	if l.clock == schedule.OtherClock {
		q.Remind(l.d.tail.TAT(l.name, q.Key))
		return
	}
	q.GoOnFrom(l.floor(q, now))
}

// resumeLocked takes up one job that was found in the stream and of which something is known.
func (l *lane) resumeLocked(ctx context.Context, q *schedule.KeyQueue, seq uint64, h history) {
	var last ledger.LastCall
	if h.last != nil {
		last = *h.last
	}
	var mark foundMark
	if h.mark != nil {
		mark = *h.mark
	}
	j := jobLocked(q.Extract(seq))
	j.markSeq = mark.seq
	j.bind(l.terms)
	j.Calls, j.attempts = max(mark.Calls, last.Call), max(mark.Attempts, last.Attempt)
	j.Unseen = mark.Unseen && mark.Calls >= last.Call
	j.crashes, j.status = mark.Crashes, cmp.Or(last.Status, mark.Status)
	j.NotBefore, j.Failed = max(mark.NotBefore, last.NotBefore, 1), cmp.Or(mark.Reason, last.Detail)
	if mark.Pushback {
		l.holdAgainLocked(q, mark.NotBefore, mark.Reason)
	}
	if last.PushedBack() {
		l.holdAgainLocked(q, last.NotBefore, last.Detail)
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
	l.judgeFoundLocked(ctx, j, h, last)
}

// judgeFoundLocked brings a job that was found in the stream on its way.
func (l *lane) judgeFoundLocked(ctx context.Context, j *job, h history, last ledger.LastCall) {
	found := recovery.Found{
		Recorded: j.Calls, Ended: last.Final, Result: h.result != nil, Ending: h.mark != nil && h.mark.Ends != "",
	}
	if h.intent != nil {
		found.Intended, found.Overruled = h.intent.Call, h.mark != nil && h.intent.overrules(h.mark)
	}
	if found.Unrecorded() {
		l.awaitRecordLocked(j)
	}
	switch recovery.Judge(found) {
	case recovery.Waits:
	case recovery.HasResult:
		j.Queue.Unsure = true
		j.Settle()
		if found.Intended > found.Recorded {
			j.lose(h.intent)
		}
		l.running.Go(func() { l.endWithResult(ctx, j, h.result.At) })
	case recovery.EndsByMark:
		j.Settle()
		last = ledger.LastCall{Outcome: h.mark.Ends, Detail: h.mark.Reason, Status: j.status}
		l.running.Go(func() { l.endAgain(ctx, j, last) })
	case recovery.EndsByLast:
		j.Settle()
		l.running.Go(func() { l.endAgain(ctx, j, last) })
	case recovery.Lost:
		j.Queue.Unsure = true
		j.Queue.Orphaned++
		j.lose(h.intent)
		j.Unseen = h.intent.Repeatable && j.First() // else it becomes a letter, and nobody waits for that
		j.Calls, j.attempts = h.intent.Call, j.attempts+1
		j.Settle()
		l.running.Go(func() { l.settleLost(ctx, j) })
	default:
		panic("dispatcher: a fate that nobody knows") // recovery.Judge has a bug
	}
}

// holdAgainLocked holds what a pushback held before the restart.
func (l *lane) holdAgainLocked(q *schedule.KeyQueue, until bucket.Micros, why string) {
	if l.terms.api.Retry.HoldAPI {
		q = nil
	}
	if until > l.now() {
		l.s.Hold(q, until, why)
	}
}

// floor is the earliest theoretical arrival time of a key that was found with jobs at the start. What the ledger knows
// is certain. Beyond it a call may have been running at the crash: the intents tell. Then the key waits one interval with an
// empty bucket, and so it does where there may be a call without an intent.
func (l *lane) floor(q *schedule.KeyQueue, now bucket.Micros) bucket.Micros {
	known := l.recordedLocked(q.Key, q.Limits)
	if partOf(q).Clean || !q.Unsure && !l.untoldLocked(q) {
		return known
	}
	return max(known, now.Add(l.s.DrainTime(q.Limits))) // a slot after the last that the ledger knows may have been used
}

// recall is when the key may be called at the earliest, as far as calls from before the start say. The ledger's tail,
// read at the start, is enough for most; a key that may owe more than the time it reaches back is looked up when it is first
// to be called. What this process knows already is no answer where others may have owned the key's
// partition meanwhile. A store that is elsewhere has not forgotten anything with this process.
func (l *lane) recall(ctx context.Context, q *schedule.KeyQueue) (bucket.Micros, error) {
	l.mu.Lock()
	known := max(q.TAT, l.knownLocked(q.Key))
	drain := l.s.DrainTime(q.Limits)
	looked := q.LookedUp || known != 0 && l.d.owner == nil
	l.mu.Unlock()
	if l.clock == schedule.OtherClock || looked || l.d.tail.Covers(l.name, l.now().Add(-drain)) {
		return 0, nil
	}
	tat, err := l.lastTAT(ctx, q.Key, known, drain)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q.LookedUp = true
	bound := l.since
	if l.d.owner != nil {
		bound = l.now()
	}
	tat = min(tat, bound.Add(drain)) // recorded at another rate, perhaps
	if tat > q.TAT {
		q.GoOnFrom(tat)
	}
	return l.s.NextSlot(q, l.now()), nil
}

// endAgain ends a job whose last call the ledger knows. A result is stored before the record; a letter after it, and so
// may be missing: it is written again, and its message id keeps it from standing twice.
func (l *lane) endAgain(ctx context.Context, j *job, last ledger.LastCall) {
	if last.Outcome == ledger.Done {
		l.finish(j, ledger.Done)
		return
	}
	if !l.reload(ctx, j) {
		return
	}
	j.answeredAt = cmp.Or(last.At, j.answeredAt)
	l.buryLetter(ctx, j, l.letter(j, deadletter.Reason(last.Outcome), last.Detail, last.Status, j.doubt.known()))
}
