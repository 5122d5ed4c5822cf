package dispatcher

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
)

// roundTrip is the longest time that a store on another machine may take to answer.
const roundTrip = 2 * time.Second

// slots asks an api's store of slots for grants.
type slots struct {
	*lane.Lane
	store      Store
	grants     *grantEnds // reports the ends of grants to the store
	caller     *caller    // makes the calls that get slots
	notes      *settle.HoldNotes
	rounds     sync.WaitGroup                               // of asks under way
	slotTime   func(context.Context) (bucket.Micros, error) // APIOptions.SlotTime
	checkpoint func()                                       // makes the store save its state at once: slots wait for that
	answers    func(err error)                              // called under the lock after each ask, with its error
	beside     func() []*slots                              // returns the slots of the account's other apis
	down       time.Time                                    // when the store stopped answering, zero while it answers; under the lane's lock
	refusal    *bucket.Refusal                              // why the store grants nothing although it answers; nil unless down is set; under the lane's lock
	allDown    *atomic.Int32                                // how many workers have a store that does not answer
}

func newSlots(l *lane.Lane, o *APIOptions, allDown *atomic.Int32, notes *settle.HoldNotes, answers func(err error)) *slots {
	w := &slots{Lane: l, store: o.Store, slotTime: o.SlotTime, checkpoint: o.Checkpoint, notes: notes, answers: answers, allDown: allDown}
	w.grants = &grantEnds{store: o.Store, clock: o.Clock, log: l.Log, tell: make(chan struct{}, 1), heard: w.heardOfEnds}
	return w
}

// reserve asks the store for slots, without holding the lock. It asks a store on another machine in the background, one
// round at a time, so that calls start meanwhile.
func (w *slots) reserve(hard context.Context, fx *schedule.Effects) {
	if w.Clock == schedule.OwnClock {
		w.round(hard, fx)
		return
	}
	asked := *fx
	w.rounds.Go(func() {
		w.round(hard, &asked)
		w.WakeUp()
	})
}

// round asks the store and applies the answer. It continues after the worker was told to stop, so that granted slots
// are given back.
func (w *slots) round(hard context.Context, fx *schedule.Effects) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), roundTrip)
	defer cancel()
	r := schedule.Reply{Sent: w.Now()}
	if r.Err = w.reachable(ctx); r.Err == nil {
		r.Sent = w.Now()
		r.Answers, r.Err = w.store.Reserve(ctx, fx.Asks)
	}
	r.Came = w.Now()
	w.measure(ctx, &r)
	for _, a := range r.Answers {
		if a.Wait.Limit == bucket.OwnCheckpoint {
			w.checkpoint()
		}
	}
	w.heard(r.Err)
	w.Mu.Lock()
	out := w.Sched.Answer(fx, r)
	for _, j := range out.Withdrawn {
		w.caller.restOrderedLocked(j)
	}
	for _, j := range out.Impossible {
		w.caller.orderLocked(lane.JobLocked(j), lane.ToRefuse)
	}
	for _, j := range out.OverBudget {
		w.caller.orderLocked(lane.JobLocked(j), lane.ToOverdraw)
	}
	w.Mu.Unlock()
	w.notes.AnnounceHolds(out.News)
	w.grants.settle(hard, out.Unused)
	if out.PutOff {
		w.askAgain()
	}
}

// measureWait bounds the time for the further round trips after one reply.
const measureWait = schedule.MostAhead

// measure makes further round trips to a store on another machine until the reply tells the store's clock precisely
// enough. If the store does not answer one in time, measure leaves the reply as it is.
func (w *slots) measure(ctx context.Context, r *schedule.Reply) {
	ctx, cancel := context.WithTimeout(ctx, measureWait)
	defer cancel()
	for w.slotTime != nil && w.isRough(r) {
		trip := schedule.Trip{Sent: w.Now()}
		var err error
		if trip.Now, err = w.slotTime(ctx); err != nil {
			return
		}
		trip.Came = w.Now()
		r.Trips = append(r.Trips, trip)
	}
}

func (w *slots) isRough(r *schedule.Reply) bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.Sched.At(w.Now()).IsRough(r)
}

// heardOfEnds resumes calls that waited for other grants to end, now that the store has counted these ends.
func (w *slots) heardOfEnds(uses []bucket.Use) {
	back := slices.ContainsFunc(uses, func(u bucket.Use) bool { return u.Returned || u.Actual != nil })
	if w.Clock == schedule.OwnClock && !back {
		return // a store in this process is asked again within milliseconds while permits are missing
	}
	w.cameBack(back)
	for _, other := range w.beside() {
		other.cameBack(back)
	}
}

// cameBack resumes calls that wait for permits. If units is true, it also resumes calls that wait for units of a limit.
func (w *slots) cameBack(units bool) {
	w.Mu.Lock()
	w.Sched.PermitFreed()
	putOff := units && w.Sched.UnitsCameBack(w.Now())
	w.Mu.Unlock()
	if putOff {
		w.askAgain()
	}
	w.WakeUp()
}

// askAgain makes every job that waits for a shared limit ask again.
func (w *slots) askAgain() {
	w.Mu.Lock()
	queues, now := slices.Collect(w.Sched.Queues.All()), w.Now()
	w.Mu.Unlock()
	w.EachLocked(slices.Values(queues), func(q *schedule.KeyQueue) { w.Sched.AskAgain(q, now) })
	w.WakeUp()
}

// reachable tests a store that did not answer last time, with a request that takes no slot. A real ask could reach the
// store after its round was given up, and would then use up slots and permits.
func (w *slots) reachable(ctx context.Context) error {
	w.Mu.Lock()
	down := !w.down.IsZero()
	w.Mu.Unlock()
	if !down {
		return nil
	}
	return w.store.Settle(ctx, nil)
}

// heard notes whether the store answered, and logs each change once.
func (w *slots) heard(err error) {
	var refusal *bucket.Refusal
	errors.As(err, &refusal)
	w.Mu.Lock()
	w.answers(err)
	was := w.down
	w.refusal = refusal
	switch {
	case err != nil && was.IsZero():
		w.down = time.Now()
	case err == nil:
		w.down = time.Time{}
	}
	w.Mu.Unlock()
	switch {
	case err != nil && was.IsZero():
		w.Env.Metrics.LimiterLost(w.allDown.Add(1))
		what := "the limiter does not answer: calls wait until it does"
		if refusal != nil {
			what = "the limiter refuses calls: they wait until it grants them"
		}
		w.Log.Warn(what, "err", err)
	case err == nil && !was.IsZero():
		w.Env.Metrics.LimiterLost(w.allDown.Add(-1))
		w.Log.Info("the limiter answers again: calls continue", "wait", time.Since(was).Round(time.Millisecond))
	}
}

// HeardOfLimiter notes whether the caller could just reach an api's limits. The worker itself notices an outage only
// while calls wait.
func (d *Dispatcher) HeardOfLimiter(api string, err error) {
	if w := d.worker(api); w != nil {
		w.slots.heard(err)
	}
}

// LimitersDown returns the apis whose calls wait because their limits did not answer the last request or refused it.
// The refusal is nil if the limits did not answer.
func (d *Dispatcher) LimitersDown() map[string]*bucket.Refusal {
	apis := map[string]*bucket.Refusal{}
	for _, w := range d.workersNow() {
		w.Mu.Lock()
		if down, refusal := w.slots.isDownLocked(); down {
			apis[w.Name] = refusal
		}
		w.Mu.Unlock()
	}
	return apis
}

// isDownLocked reports whether the store did not answer the last request, or refused it. refusal is nil if it did not
// answer.
func (w *slots) isDownLocked() (down bool, refusal *bucket.Refusal) {
	return !w.down.IsZero(), w.refusal
}

// CalendarMoved makes an api's jobs ask its shared limits again, because the clock of the calendars was set.
func (d *Dispatcher) CalendarMoved(api string) {
	if w := d.worker(api); w != nil {
		w.slots.askAgain()
	}
}

// HeardOfLevels tells the api's forecasts how much of its shared limits is used. If a vendor now reports more left of a
// limit than before, jobs that wait for that limit ask again. The caller must not change levels afterwards.
func (d *Dispatcher) HeardOfLevels(api string, levels []bucket.Level) {
	w := d.worker(api)
	if w == nil {
		return
	}
	w.Mu.Lock()
	putOff := w.Sched.Shared.Learn(levels) && w.Sched.UnitsCameBack(w.Now())
	w.Mu.Unlock()
	if putOff {
		w.slots.askAgain()
	}
}

// Price returns what a usual call of an api costs now, in millionths. It is 0 for an api that is not dispatched here.
func (d *Dispatcher) Price(api string) int64 {
	if of := d.presentAPI(api); of != nil {
		return of.Price
	}
	return 0
}

// FixedPrice returns what each call of an api costs now, in millionths. fixed is false if calls cost different amounts,
// and for an api that is not dispatched here.
func (d *Dispatcher) FixedPrice(api string) (price int64, fixed bool) {
	of := d.presentAPI(api)
	if of == nil || !of.PriceTerms().Fixed() {
		return 0, false
	}
	return of.Price, true
}

// presentAPI returns an api's present configuration, nil for an api that is not dispatched here.
func (d *Dispatcher) presentAPI(name string) *httpcall.API {
	if w := d.worker(name); w != nil {
		return w.Present()
	}
	return nil
}
