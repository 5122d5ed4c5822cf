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

// replayIntent notes an intent found at the start.
func (l *lane) replayIntent(p *part, e bucket.Entry) {
	intents, err := e.Intents()
	if err != nil {
		l.log.Error("an intent cannot be read; it is left alone", "seq", e.Seq, "err", err)
		return
	}
	mark := &intentMark{seq: e.Seq}
	for _, i := range intents {
		if !p.replay.of(i.Seq, i.Accepted) {
			continue
		}
		if old, ok := p.replay.intents[i.Seq]; ok {
			if old.call > i.Call {
				continue
			}
			l.leaveMark(p, old.mark)
		}
		mark.users++
		p.replay.intents[i.Seq] = replayedIntent{i.Call, mark, i.Repeatable, i.Deaths, i.Epoch, e.Time}
	}
	if mark.users == 0 {
		p.bucket.Discard(e.Seq)
	}
}

func (l *lane) leaveMark(p *part, mark *intentMark) {
	if mark.users--; mark.users == 0 {
		p.bucket.Discard(mark.seq)
	}
}

// replayMark notes a retry mark found at the start.
func (l *lane) replayMark(p *part, e bucket.Entry) {
	mark, err := e.RetryMark()
	if err != nil {
		l.log.Error("a retry mark cannot be read; it is left alone", "seq", e.Seq, "err", err)
		return
	}
	if mark.Seq == 0 {
		l.replayHold(p, mark, e.Seq)
		return
	}
	old, again := p.replay.marks[mark.Seq]
	switch {
	case !p.replay.of(mark.Seq, mark.Accepted) || again && mark.Ends == "" && (old.Ends != "" || old.Calls >= mark.Calls):
		p.bucket.Discard(e.Seq)
		return
	case again:
		p.bucket.Discard(old.seq)
	}
	p.replay.marks[mark.Seq] = replayedMark{mark, e.Seq}
}

// open lets calls of a partition start: all that was in its stream has been read. Every job found there is now in one
// of four states, by its markers and the ledger: never called; called and known to need another call; finished, only
// its deletion was lost; or called with an outcome that nobody knows.
func (l *lane) open(ctx context.Context, p *part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := p.replay
	if p.lease != nil && p.markers.AfterDeath() {
		p.leftover = l.now().Add(l.s.terms.api.Timeout)
	}
	seen := 0
	for seq, j := range found.jobs {
		if l.resume(ctx, p, j.line, seq); p.markers.AfterDeath() {
			p.careful = max(p.careful, seq)
		}
		l.breathe(&seen)
	}
	now := l.now()
	for _, line := range l.s.lines {
		if line.part == p {
			l.pace(line, now)
			l.s.touch(line)
		}
		l.breathe(&seen)
	}
	p.replay = nil
	l.d.tail.settled(p.bucket.Name())
	p.open = !p.closing && !p.lost.Load()
	l.kick()
}

// breathe lets others at the lock now and then: a partition with a million jobs must not keep the calls of the others.
// What is not open yet nobody changes meanwhile.
func (l *lane) breathe(seen *int) {
	if *seen++; *seen%lookAtOnce == 0 {
		l.mu.Unlock()
		l.mu.Lock()
	}
}

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

// resume takes up one job that was found in the stream. Called with the lock held.
func (l *lane) resume(ctx context.Context, p *part, line *line, seq uint64) {
	idempotency := l.s.terms.api.Idempotency
	intent, intended := p.replay.intents[seq]
	mark, marked := p.replay.marks[seq]
	last, called := l.d.tail.last(p.bucket.Name(), seq)
	result, done := l.d.tail.result(p.bucket.Name(), seq)
	if !intended && !marked && !called && !done {
		l.resumeTwin(ctx, p, line, seq)
		return
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
	if intended {
		t.intents = []*intentMark{intent.mark}
	}
	switch {
	case done && !last.final:
		line.unsure = true
		t.phase = settling
		l.running.Go(func() { l.endWithResult(ctx, t, result) })
	case mark.Ends != "" && (!intended || !intent.overrules(&mark)):
		t.phase = settling
		last = lastCall{outcome: mark.Ends, detail: mark.Reason, status: t.status}
		l.running.Go(func() { l.endAgain(ctx, t, last) })
	case called && last.final:
		t.phase = settling
		l.running.Go(func() { l.endAgain(ctx, t, last) })
	case intended && intent.call > t.calls && (idempotency == nil || !intent.repeatable):
		t.calls, t.attempts, t.unknown = intent.call, t.attempts+1, true
		t.intendedAt = intent.stored
		line.unsure = true
		line.left++
		t.phase = staging
		l.s.staged++
		l.running.Go(func() { l.prepare(ctx, t) })
	case intended && intent.call > t.calls:
		t.calls, t.attempts, t.billed = intent.call, t.attempts+1, t.billed.Worst(deadletter.BilledUnknown)
		line.unsure = true
		line.left++
		if t.deaths = intent.deaths + 1; t.deaths >= mostDeaths {
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
