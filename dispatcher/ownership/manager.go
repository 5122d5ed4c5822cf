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

// Host opens, works and closes the partitions that a Manager takes for this replica. Its methods are safe for
// concurrent use. For each partition, the Manager calls them one after the other.
type Host interface {
	// Partitions returns the number of partitions of each api that this replica dispatches.
	Partitions() map[string]int
	// Rules returns the rules in force, by api.
	Rules() map[string]bucket.Rules
	// Open opens a partition, and blocks until calls of the partition may start. The calls may run until hard ends. If
	// Open fails, nothing of the partition is open.
	Open(ctx, hard context.Context, p lease.PartitionID, t Tenure) error
	// Close blocks until no call of a partition runs and the outcome of each is stored. If Close fails, the partition
	// is not given up: the Manager calls Lose, unless ctx ended.
	Close(ctx context.Context, p lease.PartitionID) error
	// Lose drops a partition that another replica may own by now.
	Lose(p lease.PartitionID)
	// LoseAll drops every partition that depends on a lease.
	LoseAll(lease *lease.Membership)
	// Contact returns what this replica reports to other replicas about which apis it reaches. others returns the
	// reports of the other replicas about an api. The Manager calls Contact before every renewal. Contact does not
	// block.
	Contact(others func(api string) Others) Contact
}

// Contact lists the apis that a replica leaves to other replicas (CutOff), those for which it seeks a replica that
// reaches them (Seeks), and those that it reaches itself (Reaches).
type Contact struct{ CutOff, Seeks, Reaches []string }

// Others is what the other replicas report about an api.
type Others struct {
	Reach bool // a replica reaches it and has not left it to others
	Stay  bool // a replica dispatches it and has not left it to others
	Seek  bool // a replica seeks another one that reaches it
}

// Tenure is the right by which a replica owns a partition.
type Tenure struct {
	Lease *lease.Membership // nil if no other replica can own it
	// Clean says that the previous owner released the partition. Its markers say whether its calls had ended.
	Clean bool
	// Ended says that the previous owner's process is known to have ended. Its calls have then ended, too.
	Ended bool
}

// Valid reports whether no other replica can own the partition now.
func (t Tenure) Valid() bool { return t.Lease == nil || t.Lease.Valid() }

// ManagerOptions are what a Manager needs. All but SharedBy are required.
type ManagerOptions struct {
	Registry *lease.Registry // where the replicas claim partitions
	Instance string          // the name of this replica, by which partitions are divided
	SharedBy string          // where limits shared by all keys are counted: an address, empty for this process
	// MayBegin is called when a lease has begun, before any call is made under the lease. If its error wraps
	// ErrElsewhere, Run ends. On any other error, Run ends if this was its first lease, and otherwise tries again.
	MayBegin func(ctx context.Context) error
	Host     Host
	Log      *slog.Logger
}

// Manager distributes the partitions among the replicas. It is a shell around state, which decides, and the registry,
// which stores the claims. It holds one lease at a time: the lease is this replica's place among the replicas. If the
// Manager loses the lease, it drops all partitions and begins another lease. It is safe for concurrent use.
type Manager struct {
	opts  ManagerOptions
	lease atomic.Pointer[lease.Membership] // nil while there is none
	wake  chan struct{}
	room  chan struct{} // has one element for each action under way

	mu     sync.Mutex // guards the fields below
	o      *state     // nil while there is no lease
	queued map[lease.PartitionID]*actionQueue
	doing  sync.WaitGroup
}

// actionQueue holds the actions for one partition, which run one after the other.
type actionQueue struct {
	actions []action
	cancel  context.CancelFunc // cancels the action under way
}

// Bounds and delays of a Manager.
const (
	maxActions = 64 // actions under way at the same time
	planEvery  = 100 * time.Millisecond
	watchRetry = time.Second
	joinRetry  = time.Second
)

// NewManager returns a Manager that has no lease until it runs.
func NewManager(o ManagerOptions) *Manager {
	return &Manager{
		opts: o, wake: make(chan struct{}, 1), room: make(chan struct{}, maxActions), queued: map[lease.PartitionID]*actionQueue{},
	}
}

// Valid reports whether this replica's lease is valid now.
func (m *Manager) Valid() bool {
	l := m.lease.Load()
	return l != nil && l.Valid()
}

// Session returns the name of the lease under which this replica dispatches, empty if it has none.
func (m *Manager) Session() string {
	if l := m.lease.Load(); l != nil {
		return l.Session()
	}
	return ""
}

// Run takes partitions until soft ends, and then gives all of them up. When hard ends, Run returns without giving up
// the partitions whose calls have not ended. It fails if jobs are called elsewhere (ErrElsewhere). It also fails if
// this replica cannot dispatch under its first lease, for example because it may not dispatch beside the other
// replicas.
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
			m.opts.Log.Warn("this replica did not renew its lease in time: other replicas may own its partitions, and it joins again", "err", err)
		case err != nil && first:
			return err
		case err != nil:
			m.opts.Log.Warn("this replica cannot dispatch; trying again", "err", err)
			stream.Sleep(soft, joinRetry)
		}
	}
}

// ErrElsewhere says that jobs are called elsewhere from now on.
var ErrElsewhere = errors.New("jobs are not called here any more")

// join begins a lease. A process that moves the jobs away, pauses them or changes the configuration writes that before
// it looks for leases. So either join sees that write, or that process sees the lease.
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

// serve plans and acts until all partitions are given up, the lease is lost, or hard ends.
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
	cancel(err)
	parts.Wait()
	m.doing.Wait()
	m.mu.Lock()
	called := m.o.hasOpened()
	m.o = nil
	m.mu.Unlock()
	if err == nil {
		return nil
	}
	m.opts.Host.LoseAll(membership)
	if !called && !errors.Is(err, lease.ErrLeaseLost) { // the lease must not end while calls run: it lapses instead
		err = errors.Join(err, membership.End(context.WithoutCancel(ctx)))
	}
	return err
}

// contact adds this replica's report about the apis to a renewal.
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

// plan runs the actions that the state returns, until all partitions are given up or ctx ends.
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
				m.opts.Log.Warn("could not announce to the other replicas that this one stops", "err", err)
			}
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(cause, lease.ErrLeaseLost) {
				return cause
			}
			return nil // out of time: the lease ends when the calls have
		}
	}
}

// planLocked returns the actions to take now.
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
		m.opts.Log.Warn("cannot follow the claims of partitions; trying again", "err", err)
		stream.Sleep(ctx, watchRetry)
	}
}

var errDeafWatch = errors.New("this replica does not see its own renewals")

// watchOnce follows the registry until the watch breaks or stalls.
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

// tell applies a change to the state, and makes plan run again.
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

// Update tells the other replicas which apis this replica dispatches. The caller calls it after a change.
func (m *Manager) Update(ctx context.Context) {
	partitions := m.opts.Host.Partitions()
	m.tell(func(o *state) { o.dispatches(partitions) })
	if membership := m.lease.Load(); membership != nil {
		if err := membership.Announce(ctx, func(self *lease.Member) { self.Partitions = partitions }); err != nil {
			m.opts.Log.Warn("could not announce a new api to the other replicas; the next renewal does", "err", err)
		}
	}
}

// Dropped notes that the Host drops a partition that it cannot work any more.
func (m *Manager) Dropped(p lease.PartitionID) {
	m.tell(func(o *state) { o.dropped(p, time.Now()) })
}

// do runs an action. Actions of one partition run one after the other.
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

// drain runs the actions of one partition until none is left.
func (m *Manager) drain(ctx, each, hard context.Context, membership *lease.Membership, e *actionQueue) {
	for {
		m.mu.Lock()
		d := e.actions[0]
		m.mu.Unlock()
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

// execute runs one action and reports its end.
func (m *Manager) execute(ctx, hard context.Context, membership *lease.Membership, d action) {
	switch d.do {
	case actionClaim:
		revision, err := m.opts.Registry.Claim(ctx, d.part, membership.Session(), d.revision)
		if errors.Is(err, lease.ErrUnreadable) {
			m.opts.Log.Error("could not take a partition; trying again", "api", d.part.API, "stream", queue.StreamName(d.part.API, d.part.Number), "err", err)
		}
		m.tell(func(o *state) { o.claimed(d.part, revision, err, time.Now()) })
	case actionOpen:
		start := time.Now()
		err := m.opts.Host.Open(ctx, hard, d.part, Tenure{Lease: membership, Clean: d.clean, Ended: d.session != "" && m.opts.Registry.Gone(d.session)})
		if err != nil && ctx.Err() == nil {
			m.opts.Log.Error("could not open a partition; trying again", "api", d.part.API, "stream", queue.StreamName(d.part.API, d.part.Number), "err", err)
		} else if err == nil {
			m.opts.Log.Debug("partition opened", "api", d.part.API, "stream", queue.StreamName(d.part.API, d.part.Number),
				"wait", time.Since(start).Round(time.Millisecond), "clean", d.clean)
		}
		m.tell(func(o *state) { o.opened(d, err, time.Now()) })
	case actionClose:
		err := m.opts.Host.Close(ctx, d.part)
		switch {
		case err != nil && ctx.Err() != nil:
			return // out of time, or lost
		case err != nil:
			m.opts.Log.Error("could not give up a partition in order; dropping it",
				"api", d.part.API, "stream", queue.StreamName(d.part.API, d.part.Number), "err", err)
			m.opts.Host.Lose(d.part)
		}
		m.tell(func(o *state) { o.closed(d, err, time.Now()) })
	case actionRelease:
		revision, err := m.opts.Registry.Release(ctx, d.part, d.revision)
		m.tell(func(o *state) { o.released(d.part, revision, err, time.Now()) })
	case actionLose:
		m.opts.Host.Lose(d.part)
	default:
		panic(fmt.Sprintf("ownership: unknown action %d", d.do))
	}
}

func (m *Manager) expel(ctx context.Context, d action) {
	ended, newest, err := m.opts.Registry.Expel(ctx, d.session, d.revision)
	switch {
	case err != nil && ctx.Err() == nil:
		m.opts.Log.Warn("could not expel a replica that no longer renews its lease; trying again", "err", err)
	case ended:
		m.opts.Log.Warn("a replica no longer renews its lease; other replicas take its partitions", "session", d.session)
	}
	m.tell(func(o *state) { o.expelled(d.session, ended, newest, time.Now()) })
}

// End gives up the lease. Every call must have ended.
func (m *Manager) End(ctx context.Context) {
	if membership := m.lease.Swap(nil); membership != nil {
		if err := membership.End(ctx); err != nil {
			m.opts.Log.Warn("the other replicas will notice in a few seconds that this one has stopped", "err", err)
		}
	}
}

// Unready returns why a job might not be dispatched now, "" if every job would be dispatched.
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
