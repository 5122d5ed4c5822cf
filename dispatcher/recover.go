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
func (l *lane) paceLocked(line *schedule.KeyQueue, now bucket.Micros) {
	l.leaveLocked(line)
	if l.clock == schedule.OtherClock {
		line.Remind(l.d.tail.TAT(l.name, line.Key))
		return
	}
	line.GoOnFrom(l.floor(line, now))
}

// resumeLocked takes up one job that was found in the stream and of which something is known.
func (l *lane) resumeLocked(ctx context.Context, line *schedule.KeyQueue, seq uint64, h history) {
	var last ledger.LastCall
	if h.last != nil {
		last = *h.last
	}
	var mark foundMark
	if h.mark != nil {
		mark = *h.mark
	}
	t := jobLocked(line.Extract(seq))
	t.markSeq = mark.seq
	t.bind(l.terms)
	t.Calls, t.attempts = max(mark.Calls, last.Call), max(mark.Attempts, last.Attempt)
	t.Unseen = mark.Unseen && mark.Calls >= last.Call
	t.crashes, t.status = mark.Crashes, cmp.Or(last.Status, mark.Status)
	t.NotBefore, t.Failed = max(mark.NotBefore, last.NotBefore, 1), cmp.Or(mark.Reason, last.Detail)
	if mark.Pushback {
		l.holdAgainLocked(line, mark.NotBefore, mark.Reason)
	}
	if last.PushedBack() {
		l.holdAgainLocked(line, last.NotBefore, last.Detail)
	}
	t.answeredAt = cmp.Or(last.At, mark.Answered)
	t.doubt.recall(deadletter.Billed(mark.Billed), mark.Idempotency)
	t.doubt.recall(last.Billed, last.Identity)
	if mark.Calls >= last.Call {
		t.Deaths = mark.Deaths
	}
	if h.intent != nil {
		t.intents = []*intentMark{h.intent.mark}
	}
	l.judgeFoundLocked(ctx, t, h, last)
}

// judgeFoundLocked brings a job that was found in the stream on its way.
func (l *lane) judgeFoundLocked(ctx context.Context, t *job, h history, last ledger.LastCall) {
	found := recovery.Found{
		Recorded: t.Calls, Ended: last.Final, Result: h.result != nil, Ending: h.mark != nil && h.mark.Ends != "",
	}
	if h.intent != nil {
		found.Intended, found.Overruled = h.intent.Call, h.mark != nil && h.intent.overrules(h.mark)
	}
	if found.Unrecorded() {
		l.awaitRecordLocked(t)
	}
	switch recovery.Judge(found) {
	case recovery.Waits:
	case recovery.HasResult:
		t.Queue.Unsure = true
		t.Settle()
		if found.Intended > found.Recorded {
			t.lose(h.intent)
		}
		l.running.Go(func() { l.endWithResult(ctx, t, h.result.At) })
	case recovery.EndsByMark:
		t.Settle()
		last = ledger.LastCall{Outcome: h.mark.Ends, Detail: h.mark.Reason, Status: t.status}
		l.running.Go(func() { l.endAgain(ctx, t, last) })
	case recovery.EndsByLast:
		t.Settle()
		l.running.Go(func() { l.endAgain(ctx, t, last) })
	case recovery.Lost:
		t.Queue.Unsure = true
		t.Queue.Orphaned++
		t.lose(h.intent)
		t.Unseen = h.intent.Repeatable && t.First() // else it becomes a letter, and nobody waits for that
		t.Calls, t.attempts = h.intent.Call, t.attempts+1
		t.Settle()
		l.running.Go(func() { l.settleLost(ctx, t) })
	default:
		panic("dispatcher: a fate that nobody knows") // recovery.Judge has a bug
	}
}

// holdAgainLocked holds what a pushback held before the restart.
func (l *lane) holdAgainLocked(line *schedule.KeyQueue, until bucket.Micros, why string) {
	if l.terms.api.Retry.HoldAPI {
		line = nil
	}
	if until > l.now() {
		l.s.Hold(line, until, why)
	}
}

// floor is the earliest theoretical arrival time of a key that was found with jobs at the start. What the ledger knows
// is certain. Beyond it a call may have been running at the crash: the intents tell. Then the key waits one interval with an
// empty bucket, and so it does where there may be a call without an intent.
func (l *lane) floor(line *schedule.KeyQueue, now bucket.Micros) bucket.Micros {
	known := l.recordedLocked(line.Key, line.Limits)
	if partOf(line).Clean || !line.Unsure && !l.untoldLocked(line) {
		return known
	}
	return max(known, now.Add(l.s.DrainTime(line.Limits))) // a slot after the last that the ledger knows may have been used
}

// recall is when the key may be called at the earliest, as far as calls from before the start say. The ledger's tail,
// read at the start, is enough for most; a key that may owe more than the time it reaches back is looked up when it is first
// to be called. What this process knows already is no answer where others may have owned the key's
// partition meanwhile. A store that is elsewhere has not forgotten anything with this process.
func (l *lane) recall(ctx context.Context, line *schedule.KeyQueue) (bucket.Micros, error) {
	l.mu.Lock()
	known := max(line.TAT, l.knownLocked(line.Key))
	drain := l.s.DrainTime(line.Limits)
	looked := line.LookedUp || known != 0 && l.d.owner == nil
	l.mu.Unlock()
	if l.clock == schedule.OtherClock || looked || l.d.tail.Covers(l.name, l.now().Add(-drain)) {
		return 0, nil
	}
	tat, err := l.lastTAT(ctx, line.Key, known, drain)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	line.LookedUp = true
	bound := l.since
	if l.d.owner != nil {
		bound = l.now()
	}
	tat = min(tat, bound.Add(drain)) // recorded at another rate, perhaps
	if tat > line.TAT {
		line.GoOnFrom(tat)
	}
	return l.s.NextSlot(line, l.now()), nil
}

// endAgain ends a job whose last call the ledger knows. A result is stored before the record; a letter after it, and so
// may be missing: it is written again, and its message id keeps it from standing twice.
func (l *lane) endAgain(ctx context.Context, t *job, last ledger.LastCall) {
	if last.Outcome == ledger.Done {
		l.finish(t, ledger.Done)
		return
	}
	if !l.reload(ctx, t) {
		return
	}
	t.answeredAt = cmp.Or(last.At, t.answeredAt)
	l.buryLetter(ctx, t, l.letter(t, deadletter.Reason(last.Outcome), last.Detail, last.Status, t.doubt.known()))
}
