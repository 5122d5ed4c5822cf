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
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// work brings one job that is near its call through it. A goroutine of its own does that, its worker: from when the schedule wants the
// job made ready until its outcome is stored, or until it rests.
func (l *lane) work(ctx context.Context, j *job, orders <-chan order) {
	if !l.prepare(ctx, j) {
		return
	}
	for l.awaitSlot(ctx, j, orders) {
		if r, made := l.call(ctx, j); made {
			l.settle(ctx, j, r)
			return
		}
	}
}

// order is what the schedule decided about a job that is ready.
type order int8

const (
	toCall     order = iota // its slot has come
	toRest                  // its slot is far, or it was made ready in vain: its intent and its connection are let go of already
	toExpire                // its deadline has passed
	toCancel                // by an operator's word
	toRefuse                // its cost can never pass the limits
	toOverdraw              // the budget is spent, and says to bury
)

// beginLocked starts the worker of a job that the schedule wants made ready.
func (l *lane) beginLocked(ctx context.Context, j *job) {
	orders := make(chan order, 1)
	j.orders = orders
	l.running.Go(func() { l.work(ctx, j, orders) })
}

// orderLocked tells a ready job's worker what the schedule decided. It does not block: a worker has one order at a time, and none after
// the one that ends its waiting.
func (l *lane) orderLocked(j *job, o order) {
	orders := j.orders
	if o != toCall {
		j.orders = nil
	}
	if o == toRest {
		j.terms.call.Conns.Release()
	}
	orders <- o
}

// awaitSlot blocks until the job may be called, and reports whether it may. Otherwise the job rests, or has ended, or the lane
// stops.
func (l *lane) awaitSlot(ctx context.Context, j *job, orders <-chan order) bool {
	var o order
	select {
	case o = <-orders:
	case <-l.stopped:
		select {
		case o = <-orders: // it came before the stop
		default:
			return false
		}
	}
	if o != toCall && o != toRest {
		j.terms.call.Conns.Release()
	}
	switch o {
	case toCall:
		return true
	case toRest:
	case toExpire:
		l.expire(ctx, j)
	case toCancel:
		l.buryCancelled(ctx, j)
	case toRefuse:
		l.bury(ctx, j, deadletter.Invalid, "its cost can never pass the limits", nil)
	case toOverdraw:
		l.bury(ctx, j, deadletter.OverBudget, "the budget is spent", nil)
	default:
		panic("dispatcher: an order that nobody knows") // orderLocked was given one
	}
	return false
}

// endLocked has a job end as the schedule decided: its worker does it, or a goroutine of its own where it has none.
func (l *lane) endLocked(j *job, o order, end func()) {
	if j.orders != nil {
		l.orderLocked(j, o)
		return
	}
	l.running.Go(end)
}

// prepare makes a staged job ready: its message loaded and read, a connection there, its intent stored. Only then is a
// slot asked for, so that nothing but sending is left to do in it. It reports whether the job is ready; if not, the job rests or
// has ended.
func (l *lane) prepare(ctx context.Context, j *job) bool {
	j.staged = l.now()
	l.mu.Lock()
	j.bind(l.terms)
	l.mu.Unlock()
	entry, err := l.load(ctx, j)
	if err != nil {
		l.unprepared(ctx, j, err)
		return false
	}
	if reason, detail := l.examine(j, entry); reason != "" {
		l.unstage(j)
		l.bury(ctx, j, reason, detail, nil)
		return false
	}
	if slot, err := l.recall(ctx, j.Queue); err != nil {
		l.unprepared(ctx, j, err)
		return false
	} else if slot > l.now().Add(schedule.LongWait) {
		l.change(func(s *schedule.Schedule) { j.orders = nil; s.Postpone(j.Job, slot) })
		return false
	}
	if err := j.terms.call.Conns.Claim(ctx); err != nil {
		l.unconnected(ctx, j, err)
		return false
	}
	if j.intended == j.Calls+1 && j.intendedBy == j.terms || fault.Planted(fault.NoIntent) { // a slot was missed, its intent still stands
		l.change(func(*schedule.Schedule) { l.madeLocked(j) })
		return true
	}
	return l.intend(j)
}

// examine reads a job that is about to be made ready, and says why it is not to be called, if it is not.
func (l *lane) examine(j *job, e queue.Entry) (reason deadletter.Reason, detail string) {
	refusal, err := l.read(j, e)
	switch {
	case !j.doubt.allows(j.terms.api):
		return deadletter.Unknown, doubtDetail
	case refusal != nil:
		return deadletter.Invalid, refusal.Description
	case err != nil:
		return deadletter.Invalid, err.Error()
	case j.Past(l.now()):
		return deadletter.Expired, lateDetail
	}
	return "", ""
}

// restLocked lets a job wait. It has no worker then.
func (l *lane) restLocked(j *job, notBefore bucket.Micros) {
	j.orders = nil
	l.s.Rest(j.Job, notBefore)
}

// madeLocked marks a task as ready.
func (l *lane) madeLocked(j *job) {
	l.s.LearnLead(j.staged.Until(l.now()))
	l.s.Loaded(j.Job)
}

// mostMissing is how often a message may be missing before it is taken for deleted: a replica may lag.
const mostMissing = 5

// loadTimeout bounds the loading of one message; loadRetry is when a failed one is tried again.
const (
	loadTimeout = 10 * time.Second
	loadRetry   = time.Second
)

func (l *lane) unstage(j *job) { l.change(func(s *schedule.Schedule) { s.Unstage(j.Job) }) }

// unprepared puts a job back that could not be made ready.
func (l *lane) unprepared(ctx context.Context, j *job, err error) {
	if errors.Is(err, errNoRoom) {
		l.change(func(s *schedule.Schedule) { s.Unstage(j.Job); l.restLocked(j, schedule.Never-1) })
		return
	}
	if l.givenUp(ctx, j, err) {
		return
	}
	if ctx.Err() == nil {
		l.log.Error("a job could not be made ready; trying again", "key", j.Queue.Key, "seq", j.Seq, "err", err)
	}
	l.change(func(s *schedule.Schedule) {
		s.Unstage(j.Job)
		l.restLocked(j, l.now().Add(loadRetry))
	})
}

// givenUp ends a task whose message could not be loaded if that is because it is deleted, and reports whether it did.
func (l *lane) givenUp(ctx context.Context, j *job, err error) bool {
	if isNotFound(err) {
		j.missing++
	}
	if j.missing < mostMissing || !l.gone(ctx, j) {
		return false
	}
	l.log.Error("a job's message is gone from its stream: somebody deleted it; the job is given up",
		"key", j.Queue.Key, "seq", j.Seq, "err", err)
	l.change(func(s *schedule.Schedule) {
		if j.IsStaged() {
			s.Unstage(j.Job)
		}
	})
	l.neverRecorded(j)
	l.finish(j, Deleted)
	return true
}

// gone asks the stream's leader whether a task's message is deleted. Without its word the job is kept.
func (l *lane) gone(ctx context.Context, j *job) bool {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	gone, err := j.part.bucket.Gone(ctx, j.Seq)
	return err == nil && gone
}

// unconnected is a call for which there was no connection: nothing was sent. It took no slot, but counts as an attempt,
// unless the breaker was open.
func (l *lane) unconnected(ctx context.Context, j *job, err error) {
	if ctx.Err() != nil {
		l.change(func(s *schedule.Schedule) { s.Unstage(j.Job); l.restLocked(j, schedule.Never-1) })
		return
	}
	now := time.Now()
	l.mu.Lock()
	l.s.Unconnected(j.Job)
	j.Grant, j.At = bucket.Grant{}, bucket.MicrosOf(now)
	j.Calls++
	j.Unseen = false
	l.mu.Unlock()
	l.settle(ctx, j, httpcall.Response{Err: httpcall.ForLetters(err), Started: now, Ended: now})
}

// intend stores a job's intent, together with those of all that want one of the partition now. It blocks until that is stored, and
// reports whether it is; if not, the job rests.
func (l *lane) intend(j *job) bool {
	p, stored := j.part, make(chan bool, 1)
	l.mu.Lock()
	p.intents = append(p.intents, intending{j, stored})
	l.mu.Unlock()
	l.storeIntents(p)
	return <-stored
}

// intending is a job that wants an intent, and where it is told whether that is stored.
type intending struct {
	t      *job
	stored chan<- bool
}

// storeIntents stores the intents that a partition's jobs want, unless some are being stored: those that come meanwhile go together.
func (l *lane) storeIntents(p *part) {
	l.mu.Lock()
	if p.intending || len(p.intents) == 0 {
		l.mu.Unlock()
		return
	}
	wanted := p.intents
	p.intents, p.intending = nil, true
	intents := make([]queue.Intent, len(wanted))
	for i, w := range wanted {
		j := w.t
		intents[i] = queue.Intent{
			Seq: j.Seq, Call: j.Calls + 1, Deaths: j.Deaths,
			Repeatable: j.terms.api.Idempotency != nil, Idempotency: j.terms.api.KeyIdentity(), Timeout: j.terms.api.Timeout, Price: j.terms.api.Price,
			Accepted: j.accepted, KeySum: queue.KeySum(j.Queue.Key),
		}
	}
	l.mu.Unlock()
	p.markers.Intend(intents, func(seq uint64, err error) {
		if err == nil {
			fault.Pass(fault.IntentStored)
		}
		l.change(func(s *schedule.Schedule) {
			p.intending = false
			mark := &intentMark{seq: seq, users: len(wanted)}
			for i, w := range wanted {
				if j := w.t; err == nil {
					j.intended, j.intendedBy = intents[i].Call, j.terms
					j.intents = append(j.intents, mark)
					l.madeLocked(j)
				} else {
					j.terms.call.Conns.Release()
					s.Unstage(j.Job)
					l.restLocked(j, l.now().Add(loadRetry))
				}
			}
		})
		if err != nil {
			l.intentFailed(p, err)
		}
		for _, w := range wanted {
			w.stored <- err == nil
		}
		l.storeIntents(p)
	})
}

func (l *lane) intentFailed(p *part, err error) {
	if errors.Is(err, queue.ErrFenced) {
		l.mu.Lock()
		p.Open = false
		l.mu.Unlock()
		l.broken(p, err)
		return
	}
	l.log.Error("an intent could not be stored; its calls wait", "err", err)
}

// dropIntentsLocked lets go of a task's intents.
func (l *lane) dropIntentsLocked(j *job) {
	for _, mark := range j.intents {
		if mark.users--; mark.users == 0 && !j.part.lost.Load() {
			j.part.bucket.Discard(mark.seq)
		}
	}
	j.intents, j.intended, j.intendedBy = nil, 0, nil
}

// withdrawIntents takes back, when no call starts any more, the intents of the calls that did not: a restart would
// find them and hold their jobs for called. It blocks until the stream has let go of them, or ctx ends.
func (l *lane) withdrawIntents(ctx context.Context) {
	l.mu.Lock()
	for q := range l.s.Queues() {
		for _, j := range q.Jobs {
			if !j.UnderWay() {
				l.dropIdleIntentsLocked(j)
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
func (l *lane) sent(j *job) {
	l.mu.Lock()
	waited := j.Unsent
	if waited {
		l.s.Sent(j.Job, l.now())
	}
	l.mu.Unlock()
	if waited {
		l.kick()
	}
}

// call makes a granted call, and reports whether it was made: without the right to its partition the job's slot goes back.
func (l *lane) call(ctx context.Context, j *job) (r httpcall.Response, made bool) {
	if !j.part.mayCall() {
		l.unstart(ctx, j)
		return r, false
	}
	l.mu.Lock()
	j.Calls++
	unseen := j.Unseen
	j.Unseen = false
	first := j.Calls == 1
	l.mu.Unlock()
	late := j.At.Until(l.now())
	l.d.metrics.late.WithLabelValues(l.name).Observe(late.Seconds())
	if first {
		l.d.metrics.wait.WithLabelValues(l.name).Observe(j.accepted.Until(l.now()).Seconds())
	}
	fault.Pass(fault.CallNext)
	r = l.send(ctx, j, httpcall.Hooks{Wrote: func() { fault.Pass(fault.CallSent); l.sent(j) }, MayWrite: j.part.mayCall})
	if r.Barred && !r.Sent {
		l.mu.Lock()
		j.Calls--
		j.Unseen = unseen
		l.mu.Unlock()
		l.unstart(ctx, j)
		return r, false
	}
	l.sent(j)
	j.answered(r)
	j.terms.call.Conns.Release()
	l.d.metrics.duration.WithLabelValues(l.name).Observe(r.Ended.Sub(r.Started).Seconds())
	use := bucket.Use{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs}
	use.Actual, j.unsettled = l.actual(j, r)
	if j.taken = j.Costs; use.Actual != nil {
		j.taken = use.Actual
	}
	l.settleGrants(ctx, []bucket.Use{use})
	l.change(func(s *schedule.Schedule) { s.LearnCall(r.Ended.Sub(r.Started)); s.Ended(j.Job) })
	return r, true
}

// unstart takes back a call that this process had no right to make when it came to it.
func (l *lane) unstart(ctx context.Context, j *job) {
	l.mu.Lock()
	use := l.s.Unstart(j.Job)
	l.mu.Unlock()
	l.settleGrants(ctx, []bucket.Use{use})
	l.kick()
}
