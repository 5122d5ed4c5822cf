package dispatcher

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/deadletter"
)

// pace makes a line go on at its key's pace. Called with the lock held.
func (l *lane) pace(line *line, now bucket.Micros) {
	line.cold = true
	l.leave(line)
	if l.s.clock == OtherClock {
		// The store is not gone: it has every slot it granted. The ledger reminds it in case it was set back.
		line.floor = l.d.tail.tat(l.name, line.key)
		return
	}
	line.tat = max(line.tat, l.floor(line, now))
}

// resume takes up one job that was found in the stream and of which something is known. Called with the lock held.
func (l *lane) resume(ctx context.Context, line *line, seq uint64, h history) {
	var last lastCall
	if h.last != nil {
		last = *h.last
	}
	var mark foundMark
	if h.mark != nil {
		mark = *h.mark
	}
	t := line.extract(seq)
	t.markSeq, t.terms = mark.seq, l.s.terms
	t.calls, t.attempts = max(mark.Calls, last.call), max(mark.Attempts, last.attempt)
	t.crashes, t.status = mark.Crashes, cmp.Or(last.status, mark.Status)
	t.notBefore, t.failed = max(mark.NotBefore, last.notBefore, 1), cmp.Or(mark.Reason, last.detail)
	if mark.Pushback {
		l.holdAgain(line, mark.NotBefore, mark.Reason)
	}
	if last.pushedBack() {
		l.holdAgain(line, last.notBefore, last.detail)
	}
	t.billed = deadletter.Billed(mark.Billed).Worst(last.billed)
	if h.intent != nil {
		t.intents = []*intentMark{h.intent.mark}
	}
	l.judgeFound(ctx, t, h, last)
}

// judgeFound decides what becomes of a job that was found in the stream. Called with the lock held.
func (l *lane) judgeFound(ctx context.Context, t *task, h history, last lastCall) {
	line, intended := t.line, h.intent != nil && h.intent.Call > t.calls
	switch {
	case h.result != nil && !last.final:
		line.unsure = true
		t.phase = settling
		l.running.Go(func() { l.endWithResult(ctx, t, h.result.at) })
	case h.mark != nil && h.mark.Ends != "" && (h.intent == nil || !h.intent.overrules(h.mark)):
		t.phase = settling
		last = lastCall{outcome: h.mark.Ends, detail: h.mark.Reason, status: t.status}
		l.running.Go(func() { l.endAgain(ctx, t, last) })
	case last.final:
		t.phase = settling
		l.running.Go(func() { l.endAgain(ctx, t, last) })
	case intended && (l.s.terms.api.Idempotency == nil || !h.intent.Repeatable):
		t.calls, t.attempts, t.unknown = h.intent.Call, t.attempts+1, true
		t.intendedAt = h.intent.stored
		line.unsure = true
		line.left++
		t.phase = staging
		l.s.staged++
		l.running.Go(func() { l.prepare(ctx, t) })
	case intended:
		t.calls, t.attempts, t.billed = h.intent.Call, t.attempts+1, t.billed.Worst(deadletter.BilledUnknown)
		line.unsure = true
		line.left++
		if t.deaths = h.intent.Deaths + 1; t.deaths >= mostDeaths {
			t.unknown, t.phase = true, staging
			l.s.staged++
			l.running.Go(func() { l.prepare(ctx, t) })
		}
	}
}

// holdAgain holds what a pushback held before the restart. Called with the lock held.
func (l *lane) holdAgain(line *line, until bucket.Micros, why string) {
	if l.s.terms.api.Retry.HoldAPI {
		line = nil
	}
	if until > l.now() {
		l.s.hold(line, until, why)
	}
}

// floor is the earliest theoretical arrival time of a key that was found with jobs at the start. What the ledger knows
// is certain. Beyond it a call may have been running at the crash: where intents are written they tell, and otherwise
// the key waits one interval with an empty bucket.
func (l *lane) floor(line *line, now bucket.Micros) bucket.Micros {
	known := l.recorded(line.key, line.limits)
	if line.part.clean || l.intendsAll(line) && !line.unsure {
		return known
	}
	return max(known, now.Add(l.s.drainTime(line.limits))) // a slot after the last that the ledger knows may have been used
}

// intendsAll reports whether every call of a key has an intent, as far as the terms say. Called with the lock held.
func (l *lane) intendsAll(line *line) bool {
	return l.s.terms.api.Idempotency == nil || l.s.rules.Interval(line.limits.Rate).Duration() >= slowBucket
}

// recall is when the key may be called at the earliest, as far as calls from before the start say. The ledger's tail,
// read at the start, is enough for most; a key that may owe more than the time it reaches back is looked up when it is first
// to be called. What this process knows already is no answer where others may have owned the key's
// partition meanwhile. A store that is elsewhere has not forgotten anything with this process.
func (l *lane) recall(ctx context.Context, line *line) (bucket.Micros, error) {
	l.mu.Lock()
	interval, known := l.s.rules.Interval(line.limits.Rate), max(line.tat, l.s.tatOf(line.key))
	drain := l.s.drainTime(line.limits)
	looked := line.recalled || known != 0 && l.d.owner == nil
	l.mu.Unlock()
	if l.s.clock == OtherClock || looked || l.d.tail.covers(l.name, l.now().Add(-drain)) {
		return 0, nil
	}
	tat, err := l.lastTAT(ctx, line.key, known, drain)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	line.recalled = true
	bound := l.since
	if l.d.owner != nil {
		bound = l.now()
	}
	tat = min(tat, bound.Add(drain)) // recorded at another rate, perhaps
	if tat > line.tat {
		line.tat, line.cold = tat, true
	}
	return bucket.Forecast(*line.limits, interval, line.tat, l.now(), 1), nil
}

// endAgain ends a job whose last call the ledger knows. A result is stored before the record; a letter after it, and so
// may be missing: it is written again, and its message id keeps it from standing twice.
func (l *lane) endAgain(ctx context.Context, t *task, last lastCall) {
	if last.outcome == Done {
		l.finish(t, Done)
		return
	}
	if !l.reload(ctx, t, func() { l.endAgain(ctx, t, last) }) {
		return
	}
	l.buryLetter(ctx, t, l.letter(t, deadletter.Reason(last.outcome), last.detail, last.status, t.billed.Worst(deadletter.NotBilled)))
}

// settleUnknown ends a job that had an intent and neither an outcome nor a result at the start: as a letter, unless its
// result has come after all.
func (l *lane) settleUnknown(ctx context.Context, t *task) {
	fault.Pass(fault.UnknownFound)
	if !l.lookUp(ctx, t) {
		return
	}
	if t.line.part.lease == nil {
		l.buryUnknown(ctx, t)
		return
	}
	l.bar(ctx, t, func(at uint64) {
		if at != 0 {
			l.endWithResult(ctx, t, at)
			return
		}
		l.buryUnknown(ctx, t)
	})
}

func (l *lane) buryUnknown(ctx context.Context, t *task) {
	now := time.Now()
	detail := fmt.Sprintf("the worker died after call %d was to start and before its outcome was stored", t.calls)
	out := unknown(deadletter.BilledUnknown, "%s", detail)
	if t.deaths >= mostDeaths {
		out.reason, out.detail = deadletter.Exhausted, fmt.Sprintf("given up as poison: %d workers died while they called it, one after the other", t.deaths)
		detail = out.detail
	}
	c := l.record(t, response{sent: true, started: now, ended: now}, out)
	c.Planned = time.Time{}
	l.d.metrics.calls.WithLabelValues(l.name, out.name()).Inc()
	t.billed = t.billed.Worst(out.billed)
	l.bury(ctx, t, out.reason, detail, c)
}
