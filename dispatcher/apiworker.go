package dispatcher

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/fleet"
	"weir/dispatcher/inquiry"
	"weir/dispatcher/lane"
	"weir/dispatcher/ownership"
	"weir/dispatcher/polling"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
	"weir/dispatcher/takeover"
	"weir/ingest"

	"golang.org/x/sync/errgroup"
)

// apiWorker dispatches one api: it steps the api's schedule, and takes partitions over and gives them up. caller,
// settler and slots carry out what a step decides.
type apiWorker struct {
	*lane.Lane
	d *Dispatcher

	settler  *settle.Settler
	caller   *caller
	slots    *slots
	notes    *settle.HoldNotes
	pace     *takeover.Pace
	inquirer *inquiry.Inquirer
	poller   *polling.Poller
	answers  *answers
	teller   *fleet.Teller // nil: no other replica calls the api

	inventories *takeover.Inventories
	tenancies   []*tenancy // by number, nil if this process does not own the partition; the lane's lock guards it

	changes chan configChange // for the loop to adopt
	probes  atomic.Bool       // set while the dispatcher must test whether the api can be reached
	contact contact           // with the api and its limits; the lane's lock guards it

	slotsKnown bool          // every slot that an operation holds is known; the lane's lock guards it
	slotsAway  atomic.Bool   // what slotsUnknownLocked returned to the loop last
	allKnown   bool          // every slot that operations of the account's other apis hold is known; only the loop uses it
	tailLoaded bool          // the ledger was read for this worker before it ran
	ready      chan struct{} // closed when every partition is open, if this process owns them all
}

func newWorker(d *Dispatcher, o APIOptions) *apiWorker {
	l := lane.New(d.env, o.API.Name, o.Queue, o.Clock)
	w := &apiWorker{Lane: l, d: d, changes: make(chan configChange, 1), ready: make(chan struct{})}
	w.pace = takeover.NewPace(l, o.TAT)
	w.Terms = d.env.NewTerms(o.API, nil)
	w.Sched = schedule.New(w.Terms.Policy, schedule.Pace{
		PrepareLead: 4 * schedule.LeastLead, ReserveAhead: schedule.LeastAhead, GrantTTL: schedule.Lateness(&o.API.Rules), MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls,
		Clock: o.Clock, Replica: replicaAt(o.Clock), Common: d.board != nil,
	}, w.pace.KnownLocked)
	w.AdoptReuseLocked()
	w.answers = newAnswers(l)
	w.answers.recall()
	w.notes = settle.NewHoldNotes(l)
	w.settler = settle.New(l, w.notes, func(answered bool) { w.contact.note(answered, time.Now()) })
	w.slots = newSlots(l, &o, &d.down, w.notes, func(err error) { w.contact.limits(err, time.Now()) })
	w.caller = newCaller(l, w.settler, w.pace, w.slots.grants)
	w.slots.caller = w.caller
	w.slots.beside = w.slotsBeside
	w.settler.HoldAccount = w.holdBeside
	w.poller = polling.New(l, w.settler)
	w.settler.Operations.Use(w.poller.BeginLocked, w.slots.grants.settle, w.caller.beyond)
	w.inquirer = inquiry.New(l, inquiry.Options{
		Store: o.Store, Checkpoint: o.Checkpoint, Settle: w.slots.grants.settle, TAT: w.pace.KnownLocked, Terms: d.RedriveTerms,
		Held: w.notes.Held,
	})
	w.slotsAway.Store(w.slotsUnknownLocked())
	w.tenancies = make([]*tenancy, len(l.Partitions))
	w.inventories = takeover.NewInventories(l, w.takeoversLocked)
	if hold, held := d.env.Restored.Hold(&o.API.Rules, w.Now()); held {
		w.Sched.Holds.Hold(nil, hold.Until, hold.Why)
		w.notes.TellHold(hold)
	}
	if d.board != nil {
		w.teller = d.board.Join(l, w.notes)
	}
	return w
}

// beside returns the workers of the other apis of the account. It returns nil if the api has no account.
func (w *apiWorker) beside() (others []*apiWorker) {
	in := w.Present().Rules.In
	if in == nil {
		return nil
	}
	for _, other := range w.d.workersNow() {
		if of := other.Present().Rules.In; other != w && of != nil && of.Account == in.Account {
			others = append(others, other)
		}
	}
	return others
}

// holdBeside holds the other apis of the account.
func (w *apiWorker) holdBeside(hold schedule.HoldChange) {
	for _, other := range w.beside() {
		other.Mu.Lock()
		news := other.Sched.Holds.HoldLonger(hold.Until, "account: "+hold.Why, other.Now())
		other.Mu.Unlock()
		other.notes.AnnounceHolds(news)
		other.WakeUp()
	}
}

func (w *apiWorker) slotsBeside() (others []*slots) {
	for _, other := range w.beside() {
		others = append(others, other.slots)
	}
	return others
}

// replicaAt returns a random name by which a shared store tells this process from the others that use it. It returns ""
// for a store that only this process uses.
func replicaAt(clock schedule.StoreClock) string {
	if clock == schedule.OwnClock {
		return ""
	}
	return rand.Text()
}

// run dispatches until soft ends, and then lets running calls end until hard ends. It returns when every goroutine of
// the worker has returned.
func (w *apiWorker) run(soft, hard context.Context) error {
	settled := w.slots.grants.run(hard)
	told := w.teller.Start(hard)
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
	asking.Go(func() { w.inquirer.InquireByItself(ctx) })
	asking.Go(func() { w.poller.Run(ctx, hard) })
	asking.Go(func() { w.inventories.KeepInventories(ctx) })
	asking.Go(func() { w.answers.keep(ctx) })
	w.loop(ctx, hard)
	asking.Wait()
	err := opening.Wait()
	w.stop(hard)
	settled()
	told()
	w.Mu.Lock()
	last := w.Terms
	w.Mu.Unlock()
	last.Call.Conns.Close()
	last.Polls.Close()
	return err
}

// openAll opens every partition and keeps it open. It is for a process that shares its partitions with no other
// replica. It returns nil if ctx ends before all are open.
func (w *apiWorker) openAll(ctx, hard context.Context) error {
	var group errgroup.Group
	for number := range w.Partitions {
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

// wallCheck is the longest time between two steps of the schedule. Each step compares the wall clock with the lane's
// clock: no event reports that the wall clock was set.
const wallCheck = 10 * time.Second

// loop steps the schedule whenever something has happened or a time has come.
func (w *apiWorker) loop(ctx, hard context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		if w.d.owner != nil {
			replicas := w.d.owner.Replicas()
			w.Mu.Lock()
			w.Sched.Findings.Divide(replicas)
			w.Mu.Unlock()
		}
		next := w.pump(ctx, hard)
		wait := wallCheck
		if next != schedule.Never {
			wait = min(wait, max(0, w.Now().Until(next)))
		}
		if w.d.owner != nil {
			wait = min(wait, lane.LeaseCheck) // no event announces that the right to call begins or ends
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-w.Wake:
		case <-ctx.Done():
		}
	}
}

// pump does everything that can be done now, and returns the time at which there is more to do.
func (w *apiWorker) pump(ctx, hard context.Context) bucket.Micros {
	for {
		w.adoptChange()
		w.allKnown = w.allKnown || w.othersKnow()
		w.Mu.Lock()
		w.Sched.Queues.FollowWall(w.Env.Ahead())
		unknown := w.slotsUnknownLocked()
		w.Sched.Allow((w.d.owner == nil || w.d.owner.Valid()) && !unknown && w.allKnown)
		forfeited := w.Sched.Forfeited
		fx := w.Sched.Step(w.Now())
		forfeited = w.Sched.Forfeited - forfeited
		unsaid := w.Sched.Findings.HasUnsaid()
		w.Mu.Unlock()
		w.teller.Look(unsaid || fx.Unclaim, fx.Claim)
		if w.slotsAway.Swap(unknown) && !unknown {
			for _, other := range w.beside() {
				other.WakeUp()
			}
		}
		if forfeited > 0 {
			w.Env.Metrics.Forfeited.WithLabelValues(w.Name).Add(float64(forfeited))
		}
		w.slots.grants.settle(ctx, fx.Unused)
		w.caller.restAll(fx.Stale)
		for _, q := range fx.Resumed {
			w.notes.ForgetHold(q)
			w.notes.TellEnd(q, fx.Shared)
		}
		w.orderAll(hard, &fx)
		if len(fx.Asks) > 0 {
			w.slots.reserve(hard, &fx)
		}
		w.Mu.Lock()
		now := w.Now()
		next := w.Sched.Next(now)
		w.Mu.Unlock()
		if next > now || ctx.Err() != nil {
			return next
		}
	}
}

// slotsUnknownLocked reports whether operations may hold slots that this process does not know yet, because it has not
// read all of its partitions far enough. This can happen only if this process owns every partition, and the slots count
// in the process itself: in its own store, or in limits of each replica.
func (w *apiWorker) slotsUnknownLocked() bool {
	o, rules := w.Terms.API.Operation, &w.Terms.API.Rules
	if o == nil || !o.HoldSlot || w.d.owner != nil || w.slotsKnown {
		return false
	}
	inFlight := func(l bucket.Limit) bool { return l.InFlight > 0 }
	if shared := w.Clock == schedule.OwnClock && slices.ContainsFunc(rules.Shared, inFlight); !shared && !slices.ContainsFunc(rules.Replica, inFlight) {
		return false
	}
	for _, p := range w.Partitions {
		if p == nil || p.Reading && !p.Open {
			return true
		}
	}
	w.slotsKnown = true
	return false
}

// othersKnow reports whether the other apis of the account know every slot that their operations hold. An account
// counts its calls in flight over all its apis.
func (w *apiWorker) othersKnow() bool {
	return !slices.ContainsFunc(w.beside(), func(other *apiWorker) bool { return other.slotsAway.Load() })
}

// orderAll carries out what a step of the schedule decided about single jobs.
func (w *apiWorker) orderAll(hard context.Context, fx *schedule.Effects) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, t := range fx.Start {
		w.caller.orderLocked(lane.JobLocked(t), lane.ToCall)
	}
	for _, t := range fx.Look {
		j := lane.JobLocked(t)
		w.Running.Go(func() { w.caller.look(hard, j) })
	}
	for _, t := range fx.Load {
		w.caller.beginLocked(hard, lane.JobLocked(t))
	}
	for _, t := range fx.Cancel {
		j := lane.JobLocked(t)
		w.caller.endLocked(j, lane.ToCancel, func() { w.settler.BuryCancelled(hard, j) })
	}
	for _, t := range fx.Recall {
		w.poller.RecallLocked(lane.JobLocked(t))
	}
	for _, t := range fx.Expire {
		j := lane.JobLocked(t)
		w.caller.endLocked(j, lane.ToExpire, func() { w.settler.Expire(hard, j) })
	}
}

// stop ends the worker: nothing new starts, running calls may end, and stop waits until their outcomes are stored.
func (w *apiWorker) stop(hard context.Context) {
	close(w.Stopping)
	w.slots.rounds.Wait()
	close(w.Stopped)
	w.Mu.Lock()
	unused := w.Sched.Stop()
	w.Mu.Unlock()
	w.slots.grants.settle(hard, unused)
	w.Running.Wait()
	w.withdrawIntents(hard)
	for _, p := range w.tenancies {
		if p != nil {
			p.end(hard)
		}
	}
	w.Running.Wait()
}

// wallLocked converts a forecast from the lane's clock to the wall clock. It returns 0 for 0, which says that there is
// no forecast.
func (w *apiWorker) wallLocked(at bucket.Micros) bucket.Micros {
	if at == 0 {
		return 0
	}
	return w.Sched.Queues.Wall(at)
}

// ETA implements queue.Forecaster.
func (w *apiWorker) ETA(p queue.Place) bucket.Micros {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	p.NotBefore = w.Sched.Queues.Own(p.NotBefore)
	return w.wallLocked(w.Sched.At(w.Now()).ETA(schedule.Place(p)))
}

// Soonest implements queue.Forecaster.
func (w *apiWorker) Soonest(p queue.Place) bucket.Micros {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	p.NotBefore = w.Sched.Queues.Own(p.NotBefore)
	return w.wallLocked(w.Sched.At(w.Now()).Soonest(schedule.Place(p)))
}

// NextFree implements queue.Forecaster.
func (w *apiWorker) NextFree(key string, appointments []queue.Appointment) bucket.Micros {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	unread, p := schedule.Unread{First: schedule.Never}, w.Partitions[w.Queue.Partition(key).Number()]
	for _, a := range appointments {
		if p != nil && !p.Has(a.Seq) {
			unread.Jobs, unread.First = unread.Jobs+1, min(unread.First, w.Sched.Queues.Own(a.NotBefore))
		}
	}
	return w.wallLocked(w.Sched.At(w.Now()).PlaceFree(key, unread))
}

// Position implements queue.Forecaster.
func (w *apiWorker) Position(key string, seq uint64) (position int, notBefore bucket.Micros) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if q := w.Sched.Queues.Find(key); q != nil {
		position, notBefore = q.Rank(seq)
	}
	return position, w.wallLocked(notBefore)
}

// Behind implements queue.Forecaster. If p is high, jobs that this worker has not read count as called after the new
// job. Most unread jobs are not urgent, and an urgent job must not be refused because of them. For other priorities
// they count as called before it.
func (w *apiWorker) Behind(key string, upTo int, at bucket.Micros, p ingest.Priority) int {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	behind, known := w.Sched.At(w.Now()).Behind(key, w.Sched.Queues.Own(at), p), 0
	if q := w.Sched.Queues.Find(key); q != nil {
		known = q.Depth()
	}
	if p == ingest.High && upTo > known {
		behind += upTo - known
	}
	return behind
}

var _ queue.Forecaster = (*apiWorker)(nil)

// takeoversLocked returns the takeovers of the partitions that this process owns.
func (w *apiWorker) takeoversLocked() (all []*takeover.Takeover) {
	for _, p := range w.tenancies {
		if p != nil {
			all = append(all, p.Takeover)
		}
	}
	return all
}

// withdrawIntents deletes the intents of calls that did not start. A restart would find them and treat their jobs as
// called. It must be called only after the last call has started. It blocks until every finished job is deleted from
// the stream, or ctx ends.
func (w *apiWorker) withdrawIntents(ctx context.Context) {
	w.Mu.Lock()
	for q := range w.Sched.Queues.All() {
		for _, j := range q.Jobs {
			if !j.UnderWay() {
				dropIdleIntentsLocked(j)
			}
		}
	}
	w.Mu.Unlock()
	tick := time.NewTicker(unsweptCheck)
	defer tick.Stop()
	for _, p := range w.Partitions {
		for p != nil && p.Bucket.Unswept() > 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				w.Log.Warn("stopped before all finished jobs were deleted; the next start deletes them", "stream", p.Bucket.Name())
				return
			}
		}
	}
}

// unsweptCheck is how often a stopping worker checks whether every finished job is deleted.
const unsweptCheck = 5 * time.Millisecond
