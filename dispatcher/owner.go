package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket"
)

// owner shares the partitions out with the other replicas: a shell around ownership, which decides, and the registry,
// where it is written down. One lease at a time is its place among them; when that is lost it lets go of everything and
// begins another.
type owner struct {
	d        *Dispatcher
	registry *bucket.Registry
	lease    atomic.Pointer[bucket.Membership] // nil while there is none
	wake     chan struct{}
	room     chan struct{} // bounds the deeds under way
	open     func(ctx context.Context, l *lane, number int, t tenure) error

	mu     sync.Mutex
	o      *ownership // nil while there is no lease
	queued map[bucket.PartitionID]*errand
	doing  sync.WaitGroup
}

// errand is what is to be done about one partition, one after the other.
type errand struct {
	deeds  []deed
	cancel context.CancelFunc // of the one under way
}

// Bounds of sharing out.
const (
	maxDeeds   = 64 // under way at once
	planEvery  = 250 * time.Millisecond
	watchRetry = time.Second
	joinRetry  = time.Second
)

func newOwner(d *Dispatcher, r *bucket.Registry) *owner {
	return &owner{
		d: d, registry: r, wake: make(chan struct{}, 1), room: make(chan struct{}, maxDeeds), queued: map[bucket.PartitionID]*errand{},
	}
}

// valid reports whether this replica's lease can be trusted now.
func (w *owner) valid() bool {
	l := w.lease.Load()
	return l != nil && l.Valid()
}

// run takes part until soft ends, and then gives everything up; what has not ended when hard ends it leaves as it is.
// It fails when this replica may not dispatch beside those that do.
func (w *owner) run(soft, hard context.Context) error {
	w.open = func(ctx context.Context, l *lane, number int, t tenure) error {
		return l.openPart(ctx, hard, number, t)
	}
	for first := true; ; first = false {
		err := w.join(soft)
		if err == nil {
			err = w.serve(soft, hard)
		}
		switch {
		case soft.Err() != nil:
			return nil
		case errors.Is(err, ErrElsewhere):
			return err
		case errors.Is(err, bucket.ErrLeaseLost):
			w.d.log.Warn("this replica was not heard of for too long: others dispatch what it did, and it begins anew", "err", err)
		case err != nil && first:
			return err
		case err != nil:
			w.d.log.Warn("this replica cannot dispatch now; trying again", "err", err)
			select {
			case <-time.After(joinRetry):
			case <-soft.Done():
			}
		}
	}
}

// ErrElsewhere says that jobs are called elsewhere from now on.
var ErrElsewhere = errors.New("jobs are not called here any more")

// join begins a lease. Whoever moves the jobs away, pauses them or changes the configuration has said so before he looks for
// leases: so one of the two sees the other.
func (w *owner) join(ctx context.Context) error {
	lease, err := w.registry.Join(ctx, bucket.Member{
		Instance: w.d.opts.Instance, SharedBy: w.d.opts.SharedBy, Partitions: w.d.partitions(),
	})
	if err != nil {
		return err
	}
	if err := w.d.opts.MayBegin(ctx); err != nil {
		return errors.Join(err, lease.End(ctx))
	}
	w.mu.Lock()
	w.o = newOwnership(lease.Session(), w.d.opts.Instance, time.Now())
	w.o.dispatches(w.d.partitions())
	w.mu.Unlock()
	w.lease.Store(lease)
	return nil
}

// serve plans and does until everything is given up, or the lease is lost.
func (w *owner) serve(soft, hard context.Context) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(soft))
	defer cancel(nil)
	defer context.AfterFunc(hard, func() { cancel(context.Cause(hard)) })()
	lease := w.lease.Load()
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := lease.Keep(ctx, func() { w.tell(func(o *ownership) { o.renew(time.Now()) }) }); err != nil {
			cancel(err)
		}
	})
	parts.Go(func() { w.watch(ctx) })
	err := w.plan(ctx, soft, lease)
	if err != nil {
		w.lease.Store(nil)
	}
	if err != nil && !errors.Is(err, bucket.ErrLeaseLost) {
		err = errors.Join(err, lease.End(ctx))
	}
	cancel(err)
	parts.Wait()
	w.doing.Wait()
	w.mu.Lock()
	w.o = nil
	w.mu.Unlock()
	if err != nil {
		for _, l := range w.d.lanesNow() {
			l.loseAll(lease)
		}
	}
	return err
}

// plan does what ownership says, until everything is given up or ctx ends.
func (w *owner) plan(ctx, soft context.Context, lease *bucket.Membership) error {
	tick := time.NewTicker(planEvery)
	defer tick.Stop()
	left := soft.Done()
	for {
		w.mu.Lock()
		deeds, err := w.whatNow(lease)
		done := w.o.leaving && w.o.empty()
		w.mu.Unlock()
		if err != nil {
			return err
		}
		for _, d := range deeds {
			w.do(ctx, lease, d)
		}
		if done {
			return nil
		}
		select {
		case <-w.wake:
		case <-tick.C:
		case <-left:
			left = nil
			w.tell((*ownership).leave)
			if err := lease.Announce(ctx, func(m *bucket.Member) { m.Leaving = true }); err != nil {
				w.d.log.Warn("the others could not be told that this replica stops", "err", err)
			}
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(cause, bucket.ErrLeaseLost) {
				return cause
			}
			return nil // out of time: the lease ends when the calls have
		}
	}
}

// whatNow plans. It is called with the lock held.
func (w *owner) whatNow(lease *bucket.Membership) ([]deed, error) {
	switch err := w.refused(lease); {
	case errors.Is(err, errUndecided):
		return w.o.expelDead(time.Now()), nil
	case err != nil:
		return nil, err
	}
	return w.o.plan(time.Now()), nil
}

// watch follows the registry until ctx ends.
func (w *owner) watch(ctx context.Context) {
	for ctx.Err() == nil {
		w.tell((*ownership).watchBegins)
		err := w.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		w.d.log.Warn("who owns what cannot be followed; trying again", "err", err)
		select {
		case <-time.After(watchRetry):
		case <-ctx.Done():
		}
	}
}

var errDeafWatch = errors.New("this replica does not see its own renewals")

// watchOnce follows the registry until the watch breaks, or goes deaf.
func (w *owner) watchOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lease := w.lease.Load()
	var heard atomic.Int64
	heard.Store(time.Now().UnixNano())
	looked := make(chan struct{})
	defer func() { cancel(nil); <-looked }()
	go func() {
		defer close(looked)
		tick := time.NewTicker(bucket.MemberRenew)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if silent := time.Since(time.Unix(0, heard.Load())); silent > bucket.LeaseTerm && lease.Valid() {
				cancel(errDeafWatch)
			}
		}
	}()
	err := w.registry.Watch(ctx, func(s bucket.Sighting) {
		if s.Session == lease.Session() {
			heard.Store(time.Now().UnixNano())
		}
		w.tell(func(o *ownership) { o.see(s, time.Now()) })
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// tell changes what ownership knows, and has it plan again.
func (w *owner) tell(change func(o *ownership)) {
	w.mu.Lock()
	if w.o != nil {
		change(w.o)
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// update tells the others what this replica dispatches, when that has changed.
func (w *owner) update(ctx context.Context) {
	partitions := w.d.partitions()
	w.tell(func(o *ownership) { o.dispatches(partitions) })
	if lease := w.lease.Load(); lease != nil {
		if err := lease.Announce(ctx, func(m *bucket.Member) { m.Partitions = partitions }); err != nil {
			w.d.log.Warn("the others could not be told of a new api; the next renewal tells them", "err", err)
		}
	}
}

// dropPart lets go of a partition that cannot be worked any more. It does not block.
func (w *owner) dropPart(l *lane, p *part) {
	w.tell(func(o *ownership) { o.dropped(bucket.PartitionID{API: l.name, Number: p.number}, time.Now()) })
	l.running.Go(func() { l.losePart(p) })
}

// do has a deed done: those of one partition one after the other.
func (w *owner) do(ctx context.Context, lease *bucket.Membership, d deed) {
	if d.do == deedExpel {
		w.doing.Go(func() { w.expel(ctx, d) })
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.queued[d.part]
	if e != nil {
		if e.deeds = append(e.deeds, d); d.do == deedLose {
			e.cancel()
		}
		return
	}
	e = &errand{deeds: []deed{d}}
	each, cancel := context.WithCancel(ctx)
	e.cancel = cancel
	w.queued[d.part] = e
	w.doing.Go(func() { w.run1(ctx, each, lease, e) })
}

// run1 does the deeds of one partition until there are none.
func (w *owner) run1(ctx, each context.Context, lease *bucket.Membership, e *errand) {
	for {
		d := e.deeds[0]
		w.room <- struct{}{}
		w.done(each, lease, d)
		<-w.room
		w.mu.Lock()
		e.cancel()
		if e.deeds = e.deeds[1:]; len(e.deeds) == 0 {
			delete(w.queued, d.part)
			w.mu.Unlock()
			return
		}
		each, e.cancel = context.WithCancel(ctx)
		w.mu.Unlock()
	}
}

// done does one deed and tells its end.
func (w *owner) done(ctx context.Context, lease *bucket.Membership, d deed) {
	l := w.d.lane(d.part.API)
	switch d.do {
	case deedClaim:
		revision, err := w.registry.Claim(ctx, d.part, lease.Session(), d.revision)
		w.tell(func(o *ownership) { o.claimed(d.part, revision, err, time.Now()) })
	case deedOpen:
		start := time.Now()
		err := w.open(ctx, l, d.part.Number, tenure{lease: lease, clean: d.clean, ended: d.session != "" && w.registry.Gone(d.session)})
		if err != nil && ctx.Err() == nil {
			w.d.log.Error("a partition could not be opened; trying again", "api", d.part.API, "stream", bucket.StreamName(d.part.API, d.part.Number), "err", err)
		} else if err == nil {
			w.d.log.Debug("partition opened", "api", d.part.API, "stream", bucket.StreamName(d.part.API, d.part.Number),
				"wait", time.Since(start).Round(time.Millisecond), "clean", d.clean)
		}
		w.tell(func(o *ownership) { o.opened(d, err, time.Now()) })
	case deedClose:
		if p := l.part(d.part.Number); p != nil {
			if err := l.closePart(ctx, p); err != nil {
				if ctx.Err() == nil {
					w.d.log.Error("a partition could not be given up", "err", err)
				}
				return // out of time, or lost
			}
		}
		w.tell(func(o *ownership) { o.closed(d) })
	case deedRelease:
		revision, err := w.registry.Release(ctx, d.part, d.revision)
		w.tell(func(o *ownership) { o.released(d.part, revision, err, time.Now()) })
	case deedLose:
		if p := l.part(d.part.Number); p != nil {
			l.losePart(p)
		}
	default:
		panic(fmt.Sprintf("dispatcher: unknown deed %d", d.do))
	}
}

func (w *owner) expel(ctx context.Context, d deed) {
	ended, stands, err := w.registry.Expel(ctx, d.session, d.revision)
	switch {
	case err != nil && ctx.Err() == nil:
		w.d.log.Warn("a replica that is not heard of could not be expelled; trying again", "err", err)
	case ended:
		w.d.log.Warn("a replica is not heard of any more: its partitions are shared out", "session", d.session)
	}
	w.tell(func(o *ownership) { o.expelled(d.session, ended, stands, time.Now()) })
}

// end gives the lease up when every call has ended.
func (w *owner) end(ctx context.Context) {
	if lease := w.lease.Swap(nil); lease != nil {
		if err := lease.End(ctx); err != nil {
			w.d.log.Warn("the others will find out in some seconds that this replica has stopped", "err", err)
		}
	}
}

// unready says why a job might not be dispatched now, "" when it would be.
func (w *owner) unready() string {
	if !w.valid() {
		return "the right to dispatch could not be renewed: calls hold"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.o == nil {
		return "this replica does not take part yet"
	}
	return w.o.unready()
}
