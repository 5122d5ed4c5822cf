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
	"weir/dispatcher/recorder"
	"weir/dispatcher/schedule"
	"weir/dispatcher/trace"
	"weir/ingest"
)

// work brings one job through its call, in a goroutine that is the job's: from when the schedule wants the job made ready until its
// outcome is stored, or until it rests.
func (w *apiWorker) work(ctx context.Context, j *job, orders <-chan order) {
	if !w.prepare(ctx, j) {
		return
	}
	for w.awaitSlot(ctx, j, orders) {
		if r, made := w.call(ctx, j); made {
			w.settle(ctx, j, r)
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

// mostIdle is how many goroutines wait for another job when theirs has ended: a new one has to grow its stack first, which takes as long as
// storing a record does.
const mostIdle = 64

// begun is a job that has a goroutine.
type begun struct {
	ctx    context.Context //nolint:containedctx // handed from one goroutine to another
	j      *job
	orders <-chan order
}

// beginLocked gives a job that the schedule wants made ready a goroutine: one that waits for another job, or a new one.
func (w *apiWorker) beginLocked(ctx context.Context, j *job) {
	orders := make(chan order, 1)
	j.orders = orders
	b := begun{ctx, j, orders}
	select {
	case w.begun <- b:
	default:
		w.running.Go(func() { w.workAll(b) })
	}
}

// workAll works a job, and then others for as long as goroutines may wait for them.
func (w *apiWorker) workAll(b begun) {
	for {
		w.work(b.ctx, b.j, b.orders)
		if w.idle.Add(1) > mostIdle {
			w.idle.Add(-1)
			return
		}
		b = begun{} // it must not be kept in memory by who waits
		select {
		case b = <-w.begun:
			w.idle.Add(-1)
		case <-w.stopped:
			return
		}
	}
}

// orderLocked tells the goroutine of a ready job what the schedule decided. It does not block: there is one order each time that the
// goroutine waits, and none after the one that ends its waiting.
func (w *apiWorker) orderLocked(j *job, o order) {
	orders := j.orders
	if o != toCall {
		j.orders = nil
	}
	if o == toRest {
		j.terms.call.Conns.Release()
	}
	orders <- o
}

// awaitSlot blocks until the job may be called, and reports whether it may. Otherwise the job rests, or has ended, or the api's
// worker stops.
func (w *apiWorker) awaitSlot(ctx context.Context, j *job, orders <-chan order) bool {
	var o order
	select {
	case o = <-orders:
	case <-w.stopped:
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
		w.expire(ctx, j)
	case toCancel:
		w.buryCancelled(ctx, j)
	case toRefuse:
		w.bury(ctx, j, deadletter.Invalid, "its cost can never pass the limits", nil)
	case toOverdraw:
		w.bury(ctx, j, deadletter.OverBudget, "the budget is spent", nil)
	default:
		panic("dispatcher: an order that nobody knows") // orderLocked was given one
	}
	return false
}

// endLocked has a job end as the schedule decided: its goroutine does it, or a new one where the job has none.
func (w *apiWorker) endLocked(j *job, o order, end func()) {
	if j.orders != nil {
		w.orderLocked(j, o)
		return
	}
	w.running.Go(end)
}

// prepare makes a staged job ready: its message loaded and read, a connection there, its intent stored. Only then is a
// slot asked for, so that nothing but sending is left to do in it. It reports whether the job is ready; if not, the job rests or
// has ended.
func (w *apiWorker) prepare(ctx context.Context, j *job) bool {
	j.staged = w.now()
	w.mu.Lock()
	j.bind(w.terms)
	w.mu.Unlock()
	entry, err := w.load(ctx, j)
	if err != nil {
		w.unprepared(ctx, j, err)
		return false
	}
	if reason, detail := w.examine(j, entry); reason != "" {
		w.unstage(j)
		w.bury(ctx, j, reason, detail, nil)
		return false
	}
	if slot, err := w.recall(ctx, j.Queue); err != nil {
		w.unprepared(ctx, j, err)
		return false
	} else if slot > w.now().Add(schedule.LongWait) {
		w.update(func(s *schedule.Schedule) { j.orders = nil; s.Postpone(j.Job, slot) })
		return false
	}
	if err := j.terms.call.Conns.Acquire(ctx); err != nil {
		w.unconnected(ctx, j, err)
		return false
	}
	if j.intended == j.Calls+1 && j.intendedBy == j.terms || fault.Planted(fault.NoIntent) { // a slot was missed, its intent still stands
		w.update(func(*schedule.Schedule) { w.madeLocked(j) })
		return true
	}
	return w.intend(j)
}

// examine reads a job that is about to be made ready, and says why it is not to be called, if it is not.
func (w *apiWorker) examine(j *job, e queue.Entry) (reason deadletter.Reason, detail string) {
	refusal, err := w.read(j, e)
	switch {
	case !j.doubt.allows(j.terms.api):
		return deadletter.Unknown, w.inDoubt(j)
	case refusal != nil:
		return deadletter.Invalid, refusal.Description
	case err != nil:
		return deadletter.Invalid, err.Error()
	case j.Past(w.now()):
		return deadletter.Expired, lateDetail
	}
	return "", ""
}

// restLocked lets a job wait. It has no goroutine then.
func (w *apiWorker) restLocked(j *job, notBefore bucket.Micros) {
	j.orders = nil
	w.s.Rest(j.Job, notBefore)
}

// madeLocked marks a job as ready.
func (w *apiWorker) madeLocked(j *job) {
	w.s.LearnLead(j.staged.Until(w.now()))
	w.s.Loaded(j.Job)
}

// mostMissing is how often a message may be missing before it is taken for deleted: a replica may lag.
const mostMissing = 5

// loadTimeout bounds the loading of one message; loadRetry is when a failed one is tried again.
const (
	loadTimeout = 10 * time.Second
	loadRetry   = time.Second
)

func (w *apiWorker) unstage(j *job) { w.update(func(s *schedule.Schedule) { s.Unstage(j.Job) }) }

// unprepared puts a job back that could not be made ready.
func (w *apiWorker) unprepared(ctx context.Context, j *job, err error) {
	if errors.Is(err, errNoRoom) {
		w.update(func(s *schedule.Schedule) { s.Unstage(j.Job); w.restLocked(j, schedule.Never-1) })
		return
	}
	if w.givenUp(ctx, j, err) {
		return
	}
	if ctx.Err() == nil {
		w.logOf(j).Error("a job could not be made ready; trying again", "err", err)
	}
	w.update(func(s *schedule.Schedule) {
		s.Unstage(j.Job)
		w.restLocked(j, w.now().Add(loadRetry))
	})
}

// givenUp ends a job whose message could not be loaded if that is because it is not there, and reports whether it did.
func (w *apiWorker) givenUp(ctx context.Context, j *job, err error) bool {
	if isNotFound(err) {
		j.missing++
	}
	if j.missing < mostMissing {
		return false
	}
	absence := w.absence(ctx, j)
	if absence == queue.Present {
		return false
	}
	w.update(func(s *schedule.Schedule) {
		if j.IsStaged() {
			s.Unstage(j.Job)
		}
	})
	w.buryMissing(ctx, j, absence)
	return true
}

// absence asks the stream's leader whether a job's message is gone. Without its word the job is kept.
func (w *apiWorker) absence(ctx context.Context, j *job) queue.Absence {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	a, err := j.part.bucket.Absence(ctx, j.Seq)
	if err != nil {
		return queue.Present
	}
	return a
}

// unconnected is a call for which there was no connection: nothing was sent. It took no slot, but counts as an attempt,
// unless the breaker was open.
func (w *apiWorker) unconnected(ctx context.Context, j *job, err error) {
	if ctx.Err() != nil {
		w.update(func(s *schedule.Schedule) { s.Unstage(j.Job); w.restLocked(j, schedule.Never-1) })
		return
	}
	now := time.Now()
	w.mu.Lock()
	w.s.Unconnected(j.Job)
	j.Grant, j.At = bucket.Grant{}, bucket.MicrosOf(now)
	j.Calls++
	j.Unseen = false
	w.mu.Unlock()
	w.settle(ctx, j, httpcall.Response{Err: httpcall.ForLetters(err), Started: now, Ended: now})
}

// intend stores a job's intent, together with those of all that want one of the partition now. It blocks until that is stored, and
// reports whether it is; if not, the job rests.
func (w *apiWorker) intend(j *job) bool {
	p, stored := j.part, make(chan bool, 1)
	w.mu.Lock()
	p.intents = append(p.intents, intending{j, stored})
	w.mu.Unlock()
	w.storeIntents(p)
	return <-stored
}

// intending is a job that wants an intent, and where it is told whether that is stored.
type intending struct {
	t      *job
	stored chan<- bool
}

// storeIntents stores the intents that a partition's jobs want, unless some are being stored: those that come meanwhile go together.
func (w *apiWorker) storeIntents(p *partition) {
	w.mu.Lock()
	if p.intending || len(p.intents) == 0 {
		w.mu.Unlock()
		return
	}
	wanted := p.intents
	p.intents, p.intending = nil, true
	intents := make([]queue.Intent, len(wanted))
	for i, one := range wanted {
		j := one.t
		intents[i] = queue.Intent{
			Seq: j.Seq, Call: j.Calls + 1, Deaths: j.Deaths,
			Repeatable: j.terms.api.Idempotency != nil, Idempotency: j.terms.api.KeyIdentity(), Timeout: j.terms.api.Timeout, Price: j.terms.api.Price, Target: j.terms.api.Target(),
			Accepted: j.accepted, KeySum: queue.KeySum(j.Queue.Key),
		}
		j.entry = w.d.opts.Recorder.Prepare(p.callOf(&intents[i], p.markers.Epoch()), j.entry)
		intents[i].Entry = j.entry.ID()
	}
	w.mu.Unlock()
	p.markers.Intend(intents, func(seq uint64, err error) {
		if err == nil {
			fault.Pass(fault.IntentStored)
		}
		w.update(func(s *schedule.Schedule) {
			p.intending = false
			mark := &intentMark{seq: seq, users: len(wanted)}
			for i, one := range wanted {
				if j := one.t; err == nil {
					j.intended, j.intendedBy = intents[i].Call, j.terms
					j.intents = append(j.intents, mark)
					w.madeLocked(j)
				} else {
					j.entry.LetGo()
					j.terms.call.Conns.Release()
					s.Unstage(j.Job)
					w.restLocked(j, w.now().Add(loadRetry))
				}
			}
		})
		if err != nil {
			w.intentFailed(p, err)
		}
		for _, one := range wanted {
			one.stored <- err == nil
		}
		w.storeIntents(p)
	})
}

func (w *apiWorker) intentFailed(p *partition, err error) {
	if errors.Is(err, queue.ErrFenced) {
		w.mu.Lock()
		p.Open = false
		w.mu.Unlock()
		p.broken(err)
		return
	}
	w.log.Error("an intent could not be stored; its calls wait", "err", err)
}

// dropIntentsLocked lets go of a job's intents.
func (w *apiWorker) dropIntentsLocked(j *job) {
	for _, mark := range j.intents {
		if mark.users--; mark.users == 0 && !j.part.lost.Load() {
			j.part.bucket.Discard(mark.seq)
		}
	}
	j.intents, j.intended, j.intendedBy = nil, 0, nil
	j.entry.LetGo()
}

// withdrawIntents takes back, when no call starts any more, the intents of the calls that did not: a restart would
// find them and hold their jobs for called. It blocks until the stream has let go of them, or ctx ends.
func (w *apiWorker) withdrawIntents(ctx context.Context) {
	w.mu.Lock()
	for q := range w.s.Queues() {
		for _, j := range q.Jobs {
			if !j.UnderWay() {
				w.dropIdleIntentsLocked(j)
			}
		}
	}
	w.mu.Unlock()
	tick := time.NewTicker(unsweptCheck)
	defer tick.Stop()
	for _, p := range w.partitions {
		for p != nil && p.bucket.Unswept() > 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				w.log.Warn("stopped before what is finished was deleted; a restart looks it up", "stream", p.bucket.Name())
				return
			}
		}
	}
}

// unsweptCheck is how often a stopping worker looks whether all that is finished is deleted.
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
func (w *apiWorker) sent(j *job) {
	w.mu.Lock()
	waited := j.Unsent
	if waited {
		w.s.Sent(j.Job, w.now())
	}
	w.mu.Unlock()
	if waited {
		w.wakeUp()
	}
}

// call makes a granted call, and reports whether it was made: without the right to its partition the job's slot goes back.
func (w *apiWorker) call(ctx context.Context, j *job) (r httpcall.Response, made bool) {
	if !j.part.mayCall() {
		w.unstart(ctx, j)
		return r, false
	}
	w.mu.Lock()
	j.Calls++
	unseen := j.Unseen
	j.Unseen = false
	first := j.Calls == 1
	tat := max(j.Grant.TAT, w.s.Floor(j.Queue))
	w.mu.Unlock()
	w.trace(j)
	late := j.At.Until(w.now())
	observe(w.metrics.late, late.Seconds(), j)
	if first {
		since := j.accepted
		if at := j.message.NotBefore; !at.IsZero() {
			since = max(since, bucket.MicrosOf(at)) // who asked to wait did not wait until then
		}
		observe(w.metrics.wait, since.Until(w.now()).Seconds(), j)
	}
	fault.Pass(fault.CallNext)
	flight := j.takeOff(tat+w.d.opts.Ahead(), late)
	r = w.send(ctx, j, w.outgoing(j), httpcall.Hooks{
		Wrote: func() { fault.Pass(fault.CallSent); w.sent(j) }, MayWrite: j.part.mayCall, Begins: flight.begins, Left: flight.left,
	})
	if r.Barred && !r.Sent {
		w.mu.Lock()
		j.Calls--
		j.Unseen = unseen
		w.mu.Unlock()
		w.unstart(ctx, j)
		return r, false
	}
	use := bucket.Use{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs}
	use.Actual, j.unsettled = w.actual(j, r)
	if j.taken = j.Costs; use.Actual != nil {
		j.taken = use.Actual
	}
	j.land(flight, r)
	w.sent(j)
	j.answered(r)
	j.terms.call.Conns.Release()
	if j.terms.call.Conns.Unasked() {
		w.log.Warn("the api has sent what no call had asked for, behind its answer to one: an answer to a call just before may be that of another; " +
			"each call has a connection of its own for an hour")
	}
	observe(w.metrics.duration, r.Ended.Sub(r.Started).Seconds(), j)
	w.grants.settle(ctx, []bucket.Use{use})
	w.update(func(s *schedule.Schedule) { s.LearnCall(r.Ended.Sub(r.Started)); s.Ended(j.Job) })
	return r, true
}

// unstart takes back a call that this process had no right to make when it came to it.
func (w *apiWorker) unstart(ctx context.Context, j *job) {
	w.mu.Lock()
	use := w.s.Unstart(j.Job)
	w.mu.Unlock()
	w.grants.settle(ctx, []bucket.Use{use})
	w.wakeUp()
}

// job is what a worker has of a job that is near its call, or past one. The worker's lock guards the embedded schedule.Job, and each other
// field that is read under the lock; the rest belongs to the goroutine that brings the job on its way: there is one at a time.
type job struct {
	*schedule.Job
	part     *partition
	terms    *terms       // it was last made ready by
	message  *ingest.Job  // while near its call
	space    *queue.Space // that it takes in memory then
	orders   chan<- order // to its goroutine, nil while it has none
	accepted bucket.Micros
	staged   bucket.Micros // when it began to be made ready
	missing  int           // times its message was not found

	taken     []int64  // the costs of its last call, as far as its answer told them
	unsettled []string // limits of which that answer was to tell, and did not
	attempts  int      // its calls that count
	status    int      // that the api answered last, 0 if it never did
	doubt     doubt    // what may have come of its calls so far
	crashes   int      // calls over which weir crashed
	// answeredAt is where the record stands in the ledger of the last call that the api answered, 0 for none.
	answeredAt uint64

	lastCall *deadletter.LastCall // what is known of the last call that was sent, for a letter; nil: nothing
	lost     *foundIntent         // of a call nobody knows the outcome of, until that is settled
	flown    *recorder.Found      // what its process noted of that call
	entry    recorder.Entry       // of its call in the flight recorder
	adopted  recorder.Entry       // of its call as a process before intended it, which had not begun
	intents  []*intentMark
	intended int // the call number its newest intent covers, 0 for none
	// intendedBy are the terms that intent tells of.
	intendedBy *terms
	// intendedAt is when that intent was stored, by the server; zero when all that may have come of it has been looked up.
	intendedAt time.Time
	markSeq    uint64   // of its retry mark, 0 for none
	ends       []uint64 // of the marks that say that it ends

	traced  *trace.Job    // its spans, once one was to be written since it was loaded; nil: none are
	settled time.Time     // since when what became of its last call is being stored
	rested  bucket.Micros // since when it waits for another call, 0: since it was accepted, or unknown

	why     string        // an operator cancelled it
	ended   chan struct{} // closed when the job has ended, if somebody waits for that
	outcome string        // then
}

// jobLocked is the worker's own of a job.
func jobLocked(j *schedule.Job) *job {
	if j.Of == nil {
		j.Of = &job{Job: j, part: partitionOf(j.Queue)}
	}
	return j.Of.(*job)
}

// intentMark is one stored intent message; it may go when none of its jobs needs it.
type intentMark struct {
	seq   uint64
	users int
}
