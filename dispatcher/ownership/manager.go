package ownership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/bucket/stream"
)

// Host works the partitions that a Manager gets for this replica. Its methods are safe for concurrent use; those about one
// partition are called one after the other.
type Host interface {
	// Partitions is how many partitions each api has that this replica dispatches.
	Partitions() map[string]int
	// Rules are those in force, by api.
	Rules() map[string]bucket.Rules
	// Open blocks until calls of a partition may start, which then run until hard ends. With an error nothing of it is open.
	Open(ctx, hard context.Context, p lease.PartitionID, t Tenure) error
	// Close blocks until no call of a partition runs and what came of each is stored. With an error the partition is not given
	// up.
	Close(ctx context.Context, p lease.PartitionID) error
	// Lose lets go of a partition that somebody else may own by now.
	Lose(p lease.PartitionID)
	// LoseAll lets go of every partition that hangs on a lease.
	LoseAll(lease *lease.Membership)
	// Contact decides what the others are told of the apis' being reached from here; others says what they tell. It is asked
	// before every renewal, and does not block.
	Contact(others func(api string) Others) Contact
}

// Contact are the apis that a replica leaves to others, of which it looks for somebody who reaches them, and which it reaches itself.
type Contact struct{ CutOff, Seeks, Reaches []string }

// Others is what other replicas tell of an api.
type Others struct {
	Reach bool // one reaches it, and takes more partitions
	Stay  bool // one dispatches it that has not left it to others
	Seek  bool // one looks for somebody who reaches it
}

// Tenure is by what right a partition is owned.
type Tenure struct {
	Lease *lease.Membership // nil where nobody else can own it
	// Clean says that the owner before, if there was one, ended all its calls and stored what came of them.
	Clean bool
	// Ended says that the process of the owner before is known to have ended, and its calls with it.
	Ended bool
}

// Valid reports whether nobody else can own the partition now.
func (t Tenure) Valid() bool { return t.Lease == nil || t.Lease.Valid() }

// ManagerOptions are what a Manager needs. All are required.
type ManagerOptions struct {
	Registry *lease.Registry // where the replicas share the partitions out
	Instance string          // this replica's name
	SharedBy string          // where limits shared by all keys are counted: an address, empty for this process
	// MayBegin is asked after every lease that is begun, before anything is called by it. With an error that wraps
	// ErrElsewhere Run ends, with another one it begins anew.
	MayBegin func(ctx context.Context) error
	Host     Host
	Log      *slog.Logger
}

// Manager shares the partitions out with the other replicas: a shell around state, which decides, and the registry,
// where it is written down. One lease at a time is its place among them; when that is lost it lets go of everything and
// begins another. It is safe for concurrent use.
type Manager struct {
	opts  ManagerOptions
	lease atomic.Pointer[lease.Membership] // nil while there is none
	wake  chan struct{}
	room  chan struct{} // bounds the actions under way

	mu     sync.Mutex // guards what follows
	o      *state     // nil while there is no lease
	queued map[lease.PartitionID]*actionQueue
	doing  sync.WaitGroup
}

// actionQueue is what is to be done about one partition, one after the other.
type actionQueue struct {
	actions []action
	cancel  context.CancelFunc // of the one under way
}

// Bounds of sharing out.
const (
	maxActions = 64 // under way at once
	planEvery  = 100 * time.Millisecond
	watchRetry = time.Second
	joinRetry  = time.Second
)

// NewManager is a Manager that has no lease until it runs.
func NewManager(o ManagerOptions) *Manager {
	return &Manager{
		opts: o, wake: make(chan struct{}, 1), room: make(chan struct{}, maxActions), queued: map[lease.PartitionID]*actionQueue{},
	}
}

// Valid reports whether this replica's lease can be trusted now.
func (m *Manager) Valid() bool {
	l := m.lease.Load()
	return l != nil && l.Valid()
}

// Session names the lease by which this replica dispatches; empty where it has none.
func (m *Manager) Session() string {
	if l := m.lease.Load(); l != nil {
		return l.Session()
	}
	return ""
}

// Run takes part until soft ends, and then gives everything up; what has not ended when hard ends it leaves as it is.
// It fails when this replica may not dispatch beside those that do.
func (m *Manager) Run(soft, hard context.Context) error {
	for first := true; ; first = false {
		err := m.join(soft)
		if err == nil {
			err = m.serve(soft, hard)
		}
		switch {
		case soft.Err() != nil:
			return nil
		case errors.Is(err, ErrElsewhere):
			return err
		case errors.Is(err, lease.ErrLeaseLost):
			m.opts.Log.Warn("this replica was not heard of for too long: others dispatch what it did, and it begins anew", "err", err)
		case err != nil && first:
			return err
		case err != nil:
			m.opts.Log.Warn("this replica cannot dispatch now; trying again", "err", err)
			stream.Sleep(soft, joinRetry)
		}
	}
}

// ErrElsewhere says that jobs are called elsewhere from now on.
var ErrElsewhere = errors.New("jobs are not called here any more")

// join begins a lease. Whoever moves the jobs away, pauses them or changes the configuration has said so before he looks for
// leases: so one of the two sees the other.
func (m *Manager) join(ctx context.Context) error {
	membership, err := m.opts.Registry.Join(ctx, lease.Member{
		Instance: m.opts.Instance, SharedBy: m.opts.SharedBy, Partitions: m.opts.Host.Partitions(),
	})
	if err != nil {
		return err
	}
	if err := m.opts.MayBegin(ctx); err != nil {
		return errors.Join(err, membership.End(ctx))
	}
	m.mu.Lock()
	m.o = newState(membership.Session(), m.opts.Instance, time.Now())
	m.o.dispatches(m.opts.Host.Partitions())
	m.mu.Unlock()
	m.lease.Store(membership)
	return nil
}

// serve plans and does until everything is given up, or the lease is lost.
func (m *Manager) serve(soft, hard context.Context) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(soft))
	defer cancel(nil)
	defer context.AfterFunc(hard, func() { cancel(context.Cause(hard)) })()
	membership := m.lease.Load()
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := membership.Keep(ctx, m.contact, func() { m.tell(func(o *state) { o.renew(time.Now()) }) }); err != nil {
			cancel(err)
		}
	})
	parts.Go(func() { m.watch(ctx) })
	err := m.plan(ctx, soft, hard, membership)
	if err != nil {
		m.lease.Store(nil)
	}
	if err != nil && !errors.Is(err, lease.ErrLeaseLost) {
		err = errors.Join(err, membership.End(ctx))
	}
	cancel(err)
	parts.Wait()
	m.doing.Wait()
	m.mu.Lock()
	m.o = nil
	m.mu.Unlock()
	if err != nil {
		m.opts.Host.LoseAll(membership)
	}
	return err
}

// contact tells the others with a renewal which apis are reached from here.
func (m *Manager) contact(self *lease.Member) {
	now := m.opts.Host.Contact(func(api string) Others {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.o == nil {
			return Others{}
		}
		return m.o.others(api)
	})
	self.CutOff, self.Seeks, self.Reaches = now.CutOff, now.Seeks, now.Reaches
}

// plan does what ownership says, until everything is given up or ctx ends.
func (m *Manager) plan(ctx, soft, hard context.Context, membership *lease.Membership) error {
	tick := time.NewTicker(planEvery)
	defer tick.Stop()
	left := soft.Done()
	for looking := true; ; {
		m.mu.Lock()
		if looking {
			m.o.lookFor(m.opts.Registry.Gone)
		}
		actions, err := m.planLocked(membership)
		done := m.o.leaving && m.o.empty()
		m.mu.Unlock()
		if err != nil {
			return err
		}
		for _, d := range actions {
			m.do(ctx, hard, membership, d)
		}
		if done {
			return nil
		}
		looking = false
		select {
		case <-m.wake:
		case <-tick.C:
			looking = true
		case <-left:
			left = nil
			m.tell((*state).leave)
			if err := membership.Announce(ctx, func(self *lease.Member) { self.Leaving = true }); err != nil {
				m.opts.Log.Warn("the others could not be told that this replica stops", "err", err)
			}
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(cause, lease.ErrLeaseLost) {
				return cause
			}
			return nil // out of time: the lease ends when the calls have
		}
	}
}

// planLocked is what is to be done now.
func (m *Manager) planLocked(membership *lease.Membership) ([]action, error) {
	switch err := m.refusedLocked(membership); {
	case errors.Is(err, errUndecided):
		return m.o.expelDead(time.Now()), nil
	case err != nil:
		return nil, err
	}
	return m.o.plan(time.Now()), nil
}

// watch follows the registry until ctx ends.
func (m *Manager) watch(ctx context.Context) {
	for ctx.Err() == nil {
		m.tell((*state).watchBegins)
		err := m.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		m.opts.Log.Warn("who owns what cannot be followed; trying again", "err", err)
		stream.Sleep(ctx, watchRetry)
	}
}

var errDeafWatch = errors.New("this replica does not see its own renewals")

// watchOnce follows the registry until the watch breaks, or stalls.
func (m *Manager) watchOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	membership := m.lease.Load()
	var heard atomic.Int64
	heard.Store(time.Now().UnixNano())
	looked := make(chan struct{})
	defer func() { cancel(nil); <-looked }()
	go func() {
		defer close(looked)
		tick := time.NewTicker(lease.MemberRenew)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if silent := time.Since(time.Unix(0, heard.Load())); silent > lease.Term && membership.Valid() {
				cancel(errDeafWatch)
			}
		}
	}()
	err := m.opts.Registry.Watch(ctx, func(s lease.Sighting) {
		if s.Session == membership.Session() {
			heard.Store(time.Now().UnixNano())
		}
		m.tell(func(o *state) { o.see(s, time.Now()) })
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// tell changes what ownership knows, and has it plan again.
func (m *Manager) tell(change func(o *state)) {
	m.mu.Lock()
	if m.o != nil {
		change(m.o)
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Update tells the others what this replica dispatches, when that has changed.
func (m *Manager) Update(ctx context.Context) {
	partitions := m.opts.Host.Partitions()
	m.tell(func(o *state) { o.dispatches(partitions) })
	if membership := m.lease.Load(); membership != nil {
		if err := membership.Announce(ctx, func(self *lease.Member) { self.Partitions = partitions }); err != nil {
			m.opts.Log.Warn("the others could not be told of a new api; the next renewal tells them", "err", err)
		}
	}
}

// Dropped tells that its Host lets go of a partition that it cannot work any more.
func (m *Manager) Dropped(p lease.PartitionID) {
	m.tell(func(o *state) { o.dropped(p, time.Now()) })
}

// do has a action done: those of one partition one after the other.
func (m *Manager) do(ctx, hard context.Context, membership *lease.Membership, d action) {
	if d.do == actionExpel {
		m.doing.Go(func() { m.expel(ctx, d) })
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.queued[d.part]
	if e != nil {
		if e.actions = append(e.actions, d); d.do == actionLose {
			e.cancel()
		}
		return
	}
	e = &actionQueue{actions: []action{d}}
	each, cancel := context.WithCancel(ctx)
	e.cancel = cancel
	m.queued[d.part] = e
	m.doing.Go(func() { m.drain(ctx, each, hard, membership, e) })
}

// drain does the actions of one partition until there are none.
func (m *Manager) drain(ctx, each, hard context.Context, membership *lease.Membership, e *actionQueue) {
	for {
		d := e.actions[0]
		m.room <- struct{}{}
		m.execute(each, hard, membership, d)
		<-m.room
		m.mu.Lock()
		e.cancel()
		if e.actions = e.actions[1:]; len(e.actions) == 0 {
			delete(m.queued, d.part)
			m.mu.Unlock()
			return
		}
		each, e.cancel = context.WithCancel(ctx)
		m.mu.Unlock()
	}
}

// execute does one action and tells its end.
func (m *Manager) execute(ctx, hard context.Context, membership *lease.Membership, d action) {
	switch d.do {
	case actionClaim:
		revision, err := m.opts.Registry.Claim(ctx, d.part, membership.Session(), d.revision)
		if errors.Is(err, lease.ErrUnreadable) {
			m.opts.Log.Error("a partition cannot be taken; trying again", "api", d.part.API, "stream", queue.StreamName(d.part.API, d.part.Number), "err", err)
		}
		m.tell(func(o *state) { o.claimed(d.part, revision, err, time.Now()) })
	case actionOpen:
		start := time.Now()
		err := m.opts.Host.Open(ctx, hard, d.part, Tenure{Lease: membership, Clean: d.clean, Ended: d.session != "" && m.opts.Registry.Gone(d.session)})
		if err != nil && ctx.Err() == nil {
			m.opts.Log.Error("a partition could not be opened; trying again", "api", d.part.API, "stream", queue.StreamName(d.part.API, d.part.Number), "err", err)
		} else if err == nil {
			m.opts.Log.Debug("partition opened", "api", d.part.API, "stream", queue.StreamName(d.part.API, d.part.Number),
				"wait", time.Since(start).Round(time.Millisecond), "clean", d.clean)
		}
		m.tell(func(o *state) { o.opened(d, err, time.Now()) })
	case actionClose:
		if err := m.opts.Host.Close(ctx, d.part); err != nil {
			if ctx.Err() == nil {
				m.opts.Log.Error("a partition could not be given up", "err", err)
			}
			return // out of time, or lost
		}
		m.tell(func(o *state) { o.closed(d) })
	case actionRelease:
		revision, err := m.opts.Registry.Release(ctx, d.part, d.revision)
		m.tell(func(o *state) { o.released(d.part, revision, err, time.Now()) })
	case actionLose:
		m.opts.Host.Lose(d.part)
	default:
		panic(fmt.Sprintf("dispatcher: unknown action %d", d.do))
	}
}

func (m *Manager) expel(ctx context.Context, d action) {
	ended, stands, err := m.opts.Registry.Expel(ctx, d.session, d.revision)
	switch {
	case err != nil && ctx.Err() == nil:
		m.opts.Log.Warn("a replica that is not heard of could not be expelled; trying again", "err", err)
	case ended:
		m.opts.Log.Warn("a replica is not heard of any more: its partitions are shared out", "session", d.session)
	}
	m.tell(func(o *state) { o.expelled(d.session, ended, stands, time.Now()) })
}

// End gives the lease up when every call has ended.
func (m *Manager) End(ctx context.Context) {
	if membership := m.lease.Swap(nil); membership != nil {
		if err := membership.End(ctx); err != nil {
			m.opts.Log.Warn("the others will find out in some seconds that this replica has stopped", "err", err)
		}
	}
}

// Unready says why a job might not be dispatched now, "" when it would be.
func (m *Manager) Unready() string {
	if !m.Valid() {
		return "the right to dispatch could not be renewed: calls hold"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.o == nil {
		return "this replica does not take part yet"
	}
	return m.o.unready()
}
