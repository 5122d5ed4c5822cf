package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/ingest"
)

// prepare makes a staged job ready: its message loaded and read, a connection there, its intent stored. Only then is a
// slot asked for, so that nothing but sending is left to do in it.
func (l *lane) prepare(ctx context.Context, t *task) {
	t.staged = l.now()
	l.mu.Lock()
	t.terms = l.s.terms
	l.mu.Unlock()
	entry, err := l.load(ctx, t)
	if err != nil {
		l.unprepared(ctx, t, err)
		return
	}
	refusal, err := l.read(t, entry)
	switch now := l.now(); {
	case !t.doubt.allows(t.terms.api):
		l.unstage(t)
		l.bury(ctx, t, deadletter.Unknown, doubtDetail, nil)
		return
	case refusal != nil:
		l.unstage(t)
		l.bury(ctx, t, deadletter.Invalid, refusal.Description, nil)
		return
	case err != nil:
		l.unstage(t)
		l.bury(ctx, t, deadletter.Invalid, err.Error(), nil)
		return
	case !t.job.Deadline.IsZero() && now >= bucket.MicrosOf(t.job.Deadline):
		l.unstage(t)
		l.bury(ctx, t, deadletter.Expired, lateDetail, nil)
		return
	}
	if slot, err := l.recall(ctx, t.line); err != nil {
		l.unprepared(ctx, t, err)
		return
	} else if slot > l.now().Add(longWait) {
		l.change(func(s *schedule) { s.unstage(t); s.rest(t, slot.Add(-s.pace.lead)); t.limited = true })
		return
	}
	if err := t.terms.call.Conns.Claim(ctx); err != nil {
		l.unconnected(ctx, t, err)
		return
	}
	if t.intended == t.calls+1 && t.intendedBy == t.terms || fault.Planted(fault.NoIntent) { // a slot was missed, its intent still stands
		l.change(func(*schedule) { l.madeLocked(t) })
		return
	}
	l.intend(t.line.part, t)
}

// madeLocked marks a task as ready.
func (l *lane) madeLocked(t *task) {
	l.learnLeadLocked(t.staged.Until(l.now()))
	l.s.loaded(t)
}

// mostMissing is how often a message may be missing before it is taken for deleted: a replica may lag.
const mostMissing = 5

// loadTimeout bounds the loading of one message; loadRetry is when a failed one is tried again.
const (
	loadTimeout = 10 * time.Second
	loadRetry   = time.Second
)

func (l *lane) unstage(t *task) { l.change(func(s *schedule) { s.unstage(t) }) }

// unprepared puts a job back that could not be made ready.
func (l *lane) unprepared(ctx context.Context, t *task, err error) {
	if errors.Is(err, errNoRoom) {
		l.change(func(s *schedule) { s.unstage(t); s.rest(t, never-1) })
		return
	}
	if l.givenUp(ctx, t, err) {
		return
	}
	if ctx.Err() == nil {
		l.log.Error("a job could not be made ready; trying again", "key", t.line.key, "seq", t.seq, "err", err)
	}
	l.change(func(s *schedule) {
		s.unstage(t)
		s.rest(t, l.now().Add(loadRetry))
	})
}

// givenUp ends a task whose message could not be loaded if that is because it is deleted, and reports whether it did.
func (l *lane) givenUp(ctx context.Context, t *task, err error) bool {
	if isNotFound(err) {
		t.missing++
	}
	if t.missing < mostMissing || !l.gone(ctx, t) {
		return false
	}
	l.log.Error("a job's message is gone from its stream: somebody deleted it; the job is given up",
		"key", t.line.key, "seq", t.seq, "err", err)
	l.change(func(s *schedule) {
		if t.phase == staging {
			s.unstage(t)
		}
	})
	l.neverRecorded(t)
	l.finish(t, Deleted)
	return true
}

// gone asks the stream's leader whether a task's message is deleted. Without its word the job is kept.
func (l *lane) gone(ctx context.Context, t *task) bool {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	gone, err := t.line.part.bucket.Gone(ctx, t.seq)
	return err == nil && gone
}

// unconnected is a call for which there was no connection: nothing was sent. It took no slot, but counts as an attempt,
// unless the breaker was open.
func (l *lane) unconnected(ctx context.Context, t *task, err error) {
	if ctx.Err() != nil {
		l.change(func(s *schedule) { s.unstage(t); s.rest(t, never-1) })
		return
	}
	now := time.Now()
	l.mu.Lock()
	probe := l.s.probe == t
	l.s.unstage(t)
	if probe {
		l.s.probe = t // it still is: its failure is to be heard of first
	}
	t.grant, t.at = bucket.Grant{}, bucket.MicrosOf(now)
	t.calls++
	t.unseen = false
	l.mu.Unlock()
	l.settle(ctx, t, httpcall.Response{Err: httpcall.ForLetters(err), Started: now, Ended: now})
}

// intend stores the intents of all tasks that wait for one, together.
func (l *lane) intend(p *part, more ...*task) {
	l.mu.Lock()
	p.intents = append(p.intents, more...)
	if p.intending || len(p.intents) == 0 {
		l.mu.Unlock()
		return
	}
	tasks := p.intents
	p.intents, p.intending = nil, true
	intents := make([]queue.Intent, len(tasks))
	for i, t := range tasks {
		intents[i] = queue.Intent{
			Seq: t.seq, Call: t.calls + 1, Deaths: t.deaths,
			Repeatable: t.terms.api.Idempotency != nil, Idempotency: t.terms.api.KeyIdentity(), Timeout: t.terms.api.Timeout, Price: t.terms.api.Price,
			Accepted: t.accepted, KeySum: queue.KeySum(t.line.key),
		}
	}
	l.mu.Unlock()
	l.running.Add(1)
	p.markers.Intend(intents, func(seq uint64, err error) {
		defer l.running.Done()
		if err == nil {
			fault.Pass(fault.IntentStored)
		}
		l.change(func(s *schedule) {
			p.intending = false
			mark := &intentMark{seq: seq, users: len(tasks)}
			for i, t := range tasks {
				if err == nil {
					t.intended, t.intendedBy = intents[i].Call, t.terms
					t.intents = append(t.intents, mark)
					l.madeLocked(t)
				} else {
					s.unstage(t)
					s.rest(t, l.now().Add(loadRetry))
				}
			}
		})
		if err != nil {
			for _, t := range tasks {
				t.terms.call.Conns.Release()
			}
			l.intentFailed(p, err)
		}
		l.intend(p)
	})
}

func (l *lane) intentFailed(p *part, err error) {
	if errors.Is(err, queue.ErrFenced) {
		l.mu.Lock()
		p.open = false
		l.mu.Unlock()
		l.broken(p, err)
		return
	}
	l.log.Error("an intent could not be stored; its calls wait", "err", err)
}

// dropIntentsLocked lets go of a task's intents.
func (l *lane) dropIntentsLocked(t *task) {
	for _, mark := range t.intents {
		if mark.users--; mark.users == 0 && !t.line.part.lost.Load() {
			t.line.part.bucket.Discard(mark.seq)
		}
	}
	t.intents, t.intended, t.intendedBy = nil, 0, nil
}

// withdrawIntents takes back, when no call starts any more, the intents of the calls that did not: a restart would
// find them and hold their jobs for called. It blocks until the stream has let go of them, or ctx ends.
func (l *lane) withdrawIntents(ctx context.Context) {
	l.mu.Lock()
	for _, line := range l.s.lines {
		for _, t := range line.tasks {
			if t.phase != calling && t.phase != settling && t.lost == nil {
				l.dropIntentsLocked(t)
			}
		}
	}
	l.mu.Unlock()
	tick := time.NewTicker(unsweptCheck)
	defer tick.Stop()
	for _, p := range l.parts {
		for p != nil && p.bucket.Unswept() > 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				l.log.Warn("stopped before what is finished was deleted; a restart looks it up", "stream", p.bucket.Name())
				return
			}
		}
	}
}

// unsweptCheck is how often a stopping lane looks whether all that is finished is deleted.
const unsweptCheck = 5 * time.Millisecond

// costs are the units the job takes from each shared limit.
func (c *terms) costs(j *ingest.Job) ([]int64, error) {
	shared := c.api.Rules.Shared
	if len(shared) == 0 {
		return nil, nil
	}
	costs := make([]int64, len(shared))
	for i := range shared {
		if shared[i].Budget != nil {
			costs[i] = c.api.Price
			continue
		}
		cost, err := shared[i].Cost.FromJob().Of(j)
		if err != nil && shared[i].Shadow {
			cost, err = 1, nil // it only watches
		}
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", shared[i].Name, err)
		}
		costs[i] = cost
	}
	return costs, nil
}

// sent tells the schedule that a call has left, or has ended without leaving.
func (l *lane) sent(t *task) {
	l.mu.Lock()
	waited := t.unsent
	if waited {
		l.s.sent(t, l.now())
	}
	l.mu.Unlock()
	if waited {
		l.kick()
	}
}

// attempt makes a granted call.
func (l *lane) attempt(ctx context.Context, t *task) {
	if !t.line.part.mayCall() {
		l.unstart(ctx, t)
		return
	}
	l.mu.Lock()
	t.calls++
	unseen := t.unseen
	t.unseen = false
	first := t.calls == 1
	l.mu.Unlock()
	late := t.at.Until(l.now())
	l.d.metrics.late.WithLabelValues(l.name).Observe(late.Seconds())
	if first {
		l.d.metrics.wait.WithLabelValues(l.name).Observe(t.accepted.Until(l.now()).Seconds())
	}
	fault.Pass(fault.CallNext)
	r := l.call(ctx, t, httpcall.Hooks{Wrote: func() { fault.Pass(fault.CallSent); l.sent(t) }, MayWrite: t.line.part.mayCall})
	if r.Barred && !r.Sent {
		l.mu.Lock()
		t.calls--
		t.unseen = unseen
		l.mu.Unlock()
		l.unstart(ctx, t)
		return
	}
	l.sent(t)
	t.answered(r)
	t.terms.call.Conns.Release()
	l.d.metrics.duration.WithLabelValues(l.name).Observe(r.Ended.Sub(r.Started).Seconds())
	use := bucket.Use{Key: t.line.key, Grant: t.grant, Costs: t.costs}
	use.Actual, t.unsettled = l.actual(t, r)
	if t.taken = t.costs; use.Actual != nil {
		t.taken = use.Actual
	}
	l.settleGrants(ctx, []bucket.Use{use})
	l.change(func(s *schedule) { s.learnCall(r.Ended.Sub(r.Started)); s.ended(t) })
	l.settle(ctx, t, r)
}

// unstart takes back a call that this process had no right to make when it came to it.
func (l *lane) unstart(ctx context.Context, t *task) {
	l.mu.Lock()
	use := l.s.unstart(t)
	l.mu.Unlock()
	l.settleGrants(ctx, []bucket.Use{use})
	l.kick()
}
