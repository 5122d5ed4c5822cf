package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"

	"golang.org/x/sync/errgroup"
)

// lane dispatches one api: a thin shell around its schedule. The lock guards the schedule and the parts; nothing is
// waited for under it.
type lane struct {
	d     *Dispatcher
	name  string // of the api
	log   *slog.Logger
	queue *queue.Queue
	store Store
	clock schedule.StoreClock // by which the store counts
	now   func() bucket.Micros
	// tat is the theoretical arrival time that the store knows of a key, 0 if none.
	tat func(key string) bucket.Micros
	// checkpoint asks for the limits' state to be stored at once: slots wait for it.
	checkpoint func()

	changes chan change // to be adopted by the loop
	told    tellings

	mu    sync.Mutex
	s     *schedule.Schedule
	terms *terms        // in force
	since bucket.Micros // when they came into force
	parts []*part       // by number, nil where it is not this process's
	down  time.Time     // since when the store does not answer, zero while it does
	ended []bucket.Use  // to be told to a store that is elsewhere
	marks map[string]holdMark
	// shortTold says that it has been told that the ledger begins too late for slow keys.
	shortTold bool
	learned   bool // the ledger was read for it before it ran
	// unrecorded are jobs of whose call before this process nothing is in the ledger yet; unlogged is how many may have been
	// called then of which nothing ever will be.
	unrecorded map[*job]struct{}
	unlogged   int
	wake       chan struct{}
	tell       chan struct{} // there is something in ended

	rounds  sync.WaitGroup // of asks under way
	running sync.WaitGroup // goroutines of tasks
	ready   chan struct{}  // closed when every part is open, where all are this process's

	stopping chan struct{} // closed when nothing new starts: who waits for room in memory waits in vain
	stopped  chan struct{} // closed when no slot comes any more: who waits for one waits in vain
}

func newLane(d *Dispatcher, o LaneOptions) *lane {
	l := &lane{
		d: d, name: o.API.Name, log: d.log.With("api", o.API.Name), queue: o.Queue, store: o.Store, now: d.opts.Now, checkpoint: o.Checkpoint,
		tat: o.TAT, since: d.opts.Now(), changes: make(chan change, 1), marks: map[string]holdMark{},
		wake: make(chan struct{}, 1), tell: make(chan struct{}, 1), ready: make(chan struct{}), stopping: make(chan struct{}), stopped: make(chan struct{}),
	}
	l.terms = d.newTerms(o.API, nil)
	l.s = schedule.New(l.terms.policy, schedule.Pace{
		PrepareLead: 4 * schedule.LeastLead, ReserveAhead: schedule.LeastAhead, GrantTTL: schedule.Lateness(&o.API.Rules), MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls,
	}, l.knownLocked)
	l.clock, l.s.Clock = o.Clock, o.Clock
	l.parts = make([]*part, len(o.Queue.Partitions()))
	return l
}

// run dispatches until soft ends, and then lets running calls end until hard ends. It returns when every goroutine of
// the lane has.
func (l *lane) run(soft, hard context.Context) error {
	teller := l.startTelling(hard)
	var opening errgroup.Group
	ctx, cancel := context.WithCancelCause(soft)
	defer cancel(nil)
	if l.d.owner == nil {
		opening.Go(func() error {
			err := l.openAll(ctx, hard)
			if err != nil {
				cancel(err)
			}
			return err
		})
	}
	l.loop(ctx, hard)
	err := opening.Wait()
	l.stop(hard)
	teller()
	l.mu.Lock()
	last := l.terms
	l.mu.Unlock()
	last.call.Conns.Close()
	return err
}

// openAll opens every part for good: nobody else can own them.
func (l *lane) openAll(ctx, hard context.Context) error {
	var group errgroup.Group
	for number := range l.parts {
		group.Go(func() error { return l.openPart(ctx, hard, number, ownership.Tenure{}) })
	}
	err := group.Wait()
	if err == nil {
		close(l.ready)
	} else if ctx.Err() != nil {
		return nil //nolint:nilerr // stopped before they were open
	}
	return err
}

// loop steps the schedule whenever something happened or a time has come.
func (l *lane) loop(ctx, hard context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		next := l.pump(ctx, hard)
		wait := time.Hour
		if next != schedule.Never {
			wait = min(wait, max(0, l.now().Until(next)))
		}
		if l.d.owner != nil {
			wait = min(wait, leaseCheck) // the right to call comes and goes unasked
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-l.wake:
		case <-ctx.Done():
		}
	}
}

// leaseCheck is how often a lane without anything to do looks whether it may call.
const leaseCheck = 250 * time.Millisecond

// pump does all that can be done now and returns when there will be more.
func (l *lane) pump(ctx, hard context.Context) bucket.Micros {
	for {
		l.adoptChange()
		l.mu.Lock()
		l.s.Allow(l.d.owner == nil || l.d.owner.Valid())
		forfeited := l.s.Forfeited
		fx := l.s.Step(l.now())
		forfeited = l.s.Forfeited - forfeited
		l.mu.Unlock()
		if forfeited > 0 {
			l.d.metrics.forfeited.WithLabelValues(l.name).Add(float64(forfeited))
		}
		l.settleGrants(ctx, fx.Unused)
		l.letGo(fx.Stale)
		for _, q := range fx.Resumed {
			l.forgetHold(q)
			l.tellHold(schedule.HoldChange{Line: q, Why: "the hold is over"})
		}
		l.orderAll(hard, &fx)
		if len(fx.Asks) > 0 {
			l.reserve(hard, &fx)
		}
		l.mu.Lock()
		now := l.now()
		next := l.s.Next(now)
		l.mu.Unlock()
		if next > now || ctx.Err() != nil {
			return next
		}
	}
}

// orderAll has done what a step decided of single jobs.
func (l *lane) orderAll(hard context.Context, fx *schedule.Effects) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range fx.Start {
		l.orderLocked(jobLocked(t), toCall)
	}
	for _, t := range fx.Load {
		l.beginLocked(hard, jobLocked(t))
	}
	for _, t := range fx.Cancel {
		j := jobLocked(t)
		l.endLocked(j, toCancel, func() { l.buryCancelled(hard, j) })
	}
	for _, t := range fx.Expire {
		j := jobLocked(t)
		l.endLocked(j, toExpire, func() { l.expire(hard, j) })
	}
}

// kick makes the loop step again.
func (l *lane) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// change does something to the schedule and makes the loop look at it.
func (l *lane) change(do func(s *schedule.Schedule)) {
	l.mu.Lock()
	do(l.s)
	l.mu.Unlock()
	l.kick()
}

// take books in a job that the reader found.
func (l *lane) take(ctx context.Context, p *part, e queue.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p.replay == nil:
		if l.meetTwinLocked(ctx, p, e) {
			return
		}
		p.expectLocked(e)
		l.s.Push(e.Key, e.Seq, &p.Partition)
		p.keepLocked(e)
		l.kick()
	case !p.closing: // otherwise it is the next owner's
		p.expectLocked(e)
		q := l.s.Push(e.Key, e.Seq, &p.Partition)
		p.keepLocked(e)
		l.takeFoundLocked(ctx, p, q, e)
	}
}

// stop ends the lane: nothing new starts, what runs may end, and what is stored about it is awaited.
func (l *lane) stop(hard context.Context) {
	close(l.stopping)
	l.rounds.Wait()
	close(l.stopped)
	l.mu.Lock()
	unused := l.s.Stop()
	l.mu.Unlock()
	l.settleGrants(hard, unused)
	l.running.Wait()
	l.withdrawIntents(hard)
	for _, p := range l.parts {
		if p != nil {
			read := p.replay == nil
			l.removePart(p)
			p.stopMarkers()
			_ = p.writer.Wait() // what waits was answered
			if read && hard.Err() == nil && p.bucket.Unswept() == 0 {
				l.giveUp(hard, p)
			}
		}
	}
	l.running.Wait()
}

// laneCounts are what a lane has to do.
type laneCounts struct {
	schedule.Counts
	owned int // partitions
}

func (l *lane) counts() laneCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	ours := func(key string) bool { return l.parts[l.queue.Partition(key).Number()] != nil }
	n := laneCounts{Counts: l.s.Count(l.now(), ours)}
	for _, p := range l.parts {
		if p != nil && p.Open {
			n.owned++
		}
	}
	return n
}

// ETA implements queue.Outlook.
func (l *lane) ETA(p queue.Place) bucket.Micros {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.Eta(schedule.Place(p), l.s.KnownTAT(p.Key), l.now())
}

// Room implements queue.Outlook.
func (l *lane) Room(key string) bucket.Micros {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.PlaceFree(key, l.s.KnownTAT(key), l.now())
}

// Position implements queue.Outlook.
func (l *lane) Position(key string, seq uint64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.s.Find(key); q != nil {
		return q.Rank(seq)
	}
	return 0
}

var _ queue.Outlook = (*lane)(nil)
