package dispatcher

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"

	"golang.org/x/sync/errgroup"
)

// apiWorker dispatches one api: it steps the api's schedule, and takes partitions over and gives them up. What a step
// decides is carried out by the caller, the settler and the slots.
type apiWorker struct {
	*lane
	d *Dispatcher

	settler  *settler
	caller   *caller
	slots    *slots
	notes    *holdNotes
	pace     *pace
	inquirer *Inquirer

	inventories *inventories
	tenancies   []*tenancy // by number, nil if this process does not own the partition; the lane's lock guards it

	changes chan configChange // for the loop to adopt
	probes  atomic.Bool       // set while the dispatcher must find out whether the api can be reached
	contact contact           // with the api and its limits; the lane's lock guards it

	tailLoaded bool          // the ledger was read for this worker before it ran
	ready      chan struct{} // closed when every partition is open, if this process owns them all
}

func newWorker(d *Dispatcher, o APIOptions) *apiWorker {
	l := newLane(d.env, o.API.Name, o.Queue, o.Clock)
	w := &apiWorker{lane: l, d: d, changes: make(chan configChange, 1), ready: make(chan struct{})}
	w.pace = newPace(l, o.TAT)
	w.terms = d.env.newTerms(o.API, nil)
	w.s = schedule.New(w.terms.policy, schedule.Pace{
		PrepareLead: 4 * schedule.LeastLead, ReserveAhead: schedule.LeastAhead, GrantTTL: schedule.Lateness(&o.API.Rules), MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls,
		Clock: o.Clock, Replica: replicaAt(o.Clock),
	}, w.pace.knownLocked)
	w.notes = newHoldNotes(l)
	w.settler = newSettler(l, w.notes, func(answered bool) { w.contact.called(answered, time.Now()) })
	w.slots = newSlots(l, &o, &d.down, w.notes, func(err error) { w.contact.limits(err, time.Now()) })
	w.caller = newCaller(l, w.settler, w.pace, w.slots.grants)
	w.slots.caller = w.caller
	w.inquirer = newInquirer(l, inquiryOptions{
		Store: o.Store, Checkpoint: o.Checkpoint, Settle: w.slots.grants.settle, Known: w.pace.knownLocked, Terms: d.RedriveTerms,
	})
	w.tenancies = make([]*tenancy, len(l.partitions))
	w.inventories = newInventories(l, w.takeoversLocked)
	if hold, held := d.env.restored.hold(&o.API.Rules, w.now()); held {
		w.s.Hold(nil, hold.Until, hold.Why)
		w.notes.tellHold(hold)
	}
	return w
}

// replicaAt returns a name for this process among those that use a store, "" for a store that no other process uses.
func replicaAt(clock schedule.StoreClock) string {
	if clock == schedule.OwnClock {
		return ""
	}
	return rand.Text()
}

// run dispatches until soft ends, and then lets running calls end until hard ends. It returns when every goroutine of
// the worker has returned.
func (w *apiWorker) run(soft, hard context.Context) error {
	teller := w.slots.grants.run(hard)
	var opening errgroup.Group
	ctx, cancel := context.WithCancelCause(soft)
	defer cancel(nil)
	if w.d.owner == nil {
		opening.Go(func() error {
			err := w.openAll(ctx, hard)
			if err != nil {
				cancel(err)
			}
			return err
		})
	}
	var asking sync.WaitGroup
	asking.Go(func() { w.inquirer.inquireByItself(ctx) })
	asking.Go(func() { w.inventories.keepInventories(ctx) })
	w.loop(ctx, hard)
	asking.Wait()
	err := opening.Wait()
	w.stop(hard)
	teller()
	w.mu.Lock()
	last := w.terms
	w.mu.Unlock()
	last.call.Conns.Close()
	return err
}

// openAll opens every partition for good. It is for a process that shares its partitions with no other replica.
func (w *apiWorker) openAll(ctx, hard context.Context) error {
	var group errgroup.Group
	for number := range w.partitions {
		group.Go(func() error { return w.openPartition(ctx, hard, number, ownership.Tenure{}) })
	}
	err := group.Wait()
	if err == nil {
		close(w.ready)
	} else if ctx.Err() != nil {
		return nil //nolint:nilerr // stopped before they were open
	}
	return err
}

// loop steps the schedule whenever something has happened or a time has come.
func (w *apiWorker) loop(ctx, hard context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		next := w.pump(ctx, hard)
		wait := time.Hour
		if next != schedule.Never {
			wait = min(wait, max(0, w.now().Until(next)))
		}
		if w.d.owner != nil {
			wait = min(wait, leaseCheck) // no event announces that the right to call begins or ends
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

// pump does everything that can be done now, and returns the time at which there is more to do.
func (w *apiWorker) pump(ctx, hard context.Context) bucket.Micros {
	for {
		w.adoptChange()
		w.mu.Lock()
		w.s.Allow(w.d.owner == nil || w.d.owner.Valid())
		forfeited := w.s.Forfeited
		fx := w.s.Step(w.now())
		forfeited = w.s.Forfeited - forfeited
		w.mu.Unlock()
		if forfeited > 0 {
			w.env.metrics.forfeited.WithLabelValues(w.name).Add(float64(forfeited))
		}
		w.slots.grants.settle(ctx, fx.Unused)
		w.caller.restAll(fx.Stale)
		for _, q := range fx.Resumed {
			w.notes.forgetHold(q)
			w.notes.tellHold(schedule.HoldChange{Queue: q, Why: "the hold is over"})
		}
		w.orderAll(hard, &fx)
		if len(fx.Asks) > 0 {
			w.slots.reserve(hard, &fx)
		}
		w.mu.Lock()
		now := w.now()
		next := w.s.Next(now)
		w.mu.Unlock()
		if next > now || ctx.Err() != nil {
			return next
		}
	}
}

// orderAll carries out what a step of the schedule decided about single jobs.
func (w *apiWorker) orderAll(hard context.Context, fx *schedule.Effects) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range fx.Start {
		w.caller.orderLocked(jobLocked(t), toCall)
	}
	for _, t := range fx.Load {
		w.caller.beginLocked(hard, jobLocked(t))
	}
	for _, t := range fx.Cancel {
		j := jobLocked(t)
		w.caller.endLocked(j, toCancel, func() { w.settler.buryCancelled(hard, j) })
	}
	for _, t := range fx.Expire {
		j := jobLocked(t)
		w.caller.endLocked(j, toExpire, func() { w.settler.expire(hard, j) })
	}
}

// stop ends the worker: nothing new starts, running calls may end, and stop waits until their outcomes are stored.
func (w *apiWorker) stop(hard context.Context) {
	close(w.stopping)
	w.slots.rounds.Wait()
	close(w.stopped)
	w.mu.Lock()
	unused := w.s.Stop()
	w.mu.Unlock()
	w.slots.grants.settle(hard, unused)
	w.running.Wait()
	w.withdrawIntents(hard)
	for _, p := range w.tenancies {
		if p != nil {
			p.end(hard)
		}
	}
	w.running.Wait()
}

// ETA implements queue.Forecaster.
func (w *apiWorker) ETA(p queue.Place) bucket.Micros {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.s.At(w.now()).ETA(schedule.Place(p))
}

// Soonest implements queue.Forecaster.
func (w *apiWorker) Soonest(p queue.Place) bucket.Micros {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.s.At(w.now()).Soonest(schedule.Place(p))
}

// NextFree implements queue.Forecaster.
func (w *apiWorker) NextFree(key string, appointments []queue.Appointment) bucket.Micros {
	w.mu.Lock()
	defer w.mu.Unlock()
	unread, p := schedule.Unread{First: schedule.Never}, w.partitions[w.queue.Partition(key).Number()]
	for _, a := range appointments {
		if p != nil && !p.Has(a.Seq) {
			unread.Jobs, unread.First = unread.Jobs+1, min(unread.First, a.NotBefore)
		}
	}
	return w.s.At(w.now()).PlaceFree(key, unread)
}

// Position implements queue.Forecaster.
func (w *apiWorker) Position(key string, seq uint64) (position int, notBefore bucket.Micros) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.s.Find(key); q != nil {
		return q.Rank(seq)
	}
	return 0, 0
}

// Early implements queue.Forecaster.
func (w *apiWorker) Early(key string, at bucket.Micros) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.s.Find(key); q != nil {
		return q.Early(max(at, w.now()))
	}
	return 0
}

var _ queue.Forecaster = (*apiWorker)(nil)

// takeoversLocked returns the takeovers of the partitions that this process owns.
func (w *apiWorker) takeoversLocked() (all []*Takeover) {
	for _, p := range w.tenancies {
		if p != nil {
			all = append(all, p.Takeover)
		}
	}
	return all
}

// withdrawIntents deletes the intents of calls that did not start, once no call starts any more. A restart would find
// them and treat their jobs as called. It blocks until all that is finished is deleted from the stream, or ctx ends.
func (w *apiWorker) withdrawIntents(ctx context.Context) {
	w.mu.Lock()
	for q := range w.s.Queues() {
		for _, j := range q.Jobs {
			if !j.UnderWay() {
				dropIdleIntentsLocked(j)
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
				w.log.Warn("stopped before all finished jobs were deleted; the next start deletes them", "stream", p.bucket.Name())
				return
			}
		}
	}
}

// unsweptCheck is how often a stopping worker checks whether everything finished is deleted.
const unsweptCheck = 5 * time.Millisecond
