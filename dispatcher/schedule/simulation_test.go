package schedule

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// simulation drives the schedule through virtual time: jobs arrive, loading and calls take their time, the loop
// wakes late, the api pushes back. The seed alone decides what happens.
type simulation struct {
	t     testing.TB
	rnd   *rand.Rand
	now   bucket.Micros
	s     *Schedule
	store *bucket.Memory
	next  events
	part  *Partition

	accepted     map[string][]uint64
	seq          uint64
	starts       map[string][]bucket.Arrival // by key
	shared       map[string][]bucket.Arrival // by limit
	made         map[uint64][]string         // the limits that a job has costs for
	priced       map[uint64]int64            // jobs with a cost of their own
	cancelled    map[uint64]bool
	firsts       map[lane]uint64 // the newest first call of each priority of a key
	calling      map[string]int
	inFlight     int
	finished     int
	jobs         int
	late         time.Duration // how late the loop may wake
	busy         time.Duration // how late a call may leave
	outcome      int           // one call in so many is pushed back or fails
	tenants      int           // that the keys are of
	costs        []int64       // a job takes one of these from every weighted limit
	words        int           // of the operator: one arrival in so many is followed by a pause or a cancellation, 0 for none
	crashes      crashes
	life         int // of the process: it grows with every crash
	deadlines    deadlines
	appointments appointments
	equals       equals
	priorities   priorities
	packing      packing
	maxInAPI     int
	steps        int

	policy  *Policy
	obey    bool // headers of an answer that say that no call is left
	outages []outage
	grudges map[*KeyQueue]*grudge
	probing *Job
	free    int // calls that failed and used up no attempt

	skew      time.Duration // of a store that is elsewhere: its clock is this much ahead
	way, back time.Duration // there and back, at best
	losses    int           // one round of asks in so many is lost, 0 for none

	digest *digest
}

// event is something that will happen.
type event struct {
	at bucket.Micros
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func newSimulation(t testing.TB, seed uint64) *simulation {
	m := &simulation{
		policy: &Policy{},
		t:      t, digest: digestOf(t), rnd: rand.New(rand.NewPCG(seed, 1)), now: 1_700_000_000_000_000, accepted: map[string][]uint64{},
		starts: map[string][]bucket.Arrival{}, firsts: map[lane]uint64{}, calling: map[string]int{},
		part: &Partition{Open: true}, shared: map[string][]bucket.Arrival{}, cancelled: map[uint64]bool{}, made: map[uint64][]string{}, priced: map[uint64]int64{},
	}
	m.policy.Rules = bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{
		Rate:     bucket.Rate{Count: 1 + m.rnd.Int64N(200), Per: time.Second, Burst: 1},
		Capacity: 1000, InFlight: 1 + m.rnd.Int64N(8),
	}}
	if m.rnd.IntN(3) == 0 {
		m.policy.Rules.Key.Rate.Burst = 1 + m.rnd.Int64N(m.policy.Rules.Key.Rate.Count)
	}
	if m.rnd.IntN(2) == 0 {
		rate := bucket.Rate{Count: 1 + m.rnd.Int64N(300), Per: time.Second, Burst: 1}
		m.policy.Rules.Shared = append(m.policy.Rules.Shared, bucket.Limit{Name: "account", Rate: &rate})
	}
	if m.rnd.IntN(3) == 0 {
		m.policy.Rules.Shared = append(m.policy.Rules.Shared, bucket.Limit{Name: "concurrent", InFlight: 1 + m.rnd.Int64N(10)})
	}
	m.costs = []int64{1}
	if m.rnd.IntN(4) == 0 {
		rate := bucket.Rate{Count: 100 + m.rnd.Int64N(2000), Per: time.Second, Burst: 20 + m.rnd.Int64N(50)}
		m.policy.Rules.Shared = append(m.policy.Rules.Shared, bucket.Limit{Name: "tokens", Rate: &rate, Cost: ingest.FromHeader("Weir-Cost")})
		m.costs = []int64{1, 1, 1, 2, 5, 20}
	}
	if m.rnd.IntN(3) == 0 {
		m.policy.Rules.TenantUntil = "."
	}
	m.words = []int{0, 0, 10}[m.rnd.IntN(3)]
	m.tenants = 1 + m.rnd.IntN(3)
	m.openStore()
	m.deadlines = newDeadlines(seed)
	m.appointments = newAppointments(seed)
	m.priorities = newPriorities(seed)
	m.policy.Rules.Weights = m.priorities.weights
	m.late = []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond, 30 * time.Millisecond}[m.rnd.IntN(4)]
	m.busy = m.late / 4
	m.outcome = []int{0, 20, 5}[m.rnd.IntN(3)]
	m.openAPI()
	m.s = New(m.policy, Pace{
		PrepareLead: 25 * time.Millisecond, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: 1 + m.rnd.IntN(64), MaxCalls: 1 + m.rnd.IntN(32),
	}, func(key string) bucket.Micros { tat, _ := m.store.TAT(key); return tat })
	return m
}

func (m *simulation) openStore() {
	var err error
	if m.store, err = bucket.NewMemory(m.policy.Rules, func() bucket.Micros { return m.now.Add(m.skew) }); err != nil {
		m.t.Fatal(err)
	}
}

func (m *simulation) settle(uses []bucket.Use) {
	if err := m.store.Settle(context.Background(), uses); err != nil {
		m.t.Fatal(err)
	}
	m.s.PermitFreed()
}

// tell reports the ends of grants to the store.
func (m *simulation) tell(uses []bucket.Use) {
	if m.s.store.clock == OwnClock {
		m.settle(uses)
		return
	}
	m.after(m.leg(m.way), func() { m.settle(uses) })
}

// after runs an action of the process later, unless the process has died by then.
func (m *simulation) after(d time.Duration, do func()) {
	life := m.life
	m.outside(d, func() {
		if m.life == life {
			do()
		}
	})
}

// outside runs an action of the rest of the world.
func (m *simulation) outside(d time.Duration, do func()) {
	heap.Push(&m.next, event{m.now.Add(d), do})
}

func (m *simulation) upTo(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(m.rnd.Int64N(int64(most)))
}

// run lets jobs arrive and continues until every one has finished.
func (m *simulation) run(keys, jobs int) {
	for range jobs {
		key := fmt.Sprintf("t%d.k%d", m.rnd.IntN(m.tenants), m.rnd.IntN(keys))
		m.outside(m.upTo(500*time.Millisecond), func() {
			m.seq++
			m.accepted[key] = append(m.accepted[key], m.seq)
			m.push(key, m.seq)
			if m.words > 0 && m.rnd.IntN(m.words) == 0 {
				m.speak(key, m.seq)
			}
		})
	}
	m.drain(jobs)
}

// speak plays the operator: it cancels a job after a while, or pauses a key or the api for a while.
func (m *simulation) speak(key string, seq uint64) {
	if m.rnd.IntN(2) == 0 {
		m.outside(m.upTo(300*time.Millisecond), func() {
			if _, c := m.s.Cancel(key, seq); c == CancelTaken {
				m.cancelled[seq] = true
			}
		})
		return
	}
	if m.rnd.IntN(3) == 0 {
		key = ""
	}
	m.s.Holds.Pause(key, Pause{})
	m.outside(m.upTo(400*time.Millisecond), func() { m.s.Holds.Resume(key, m.now) })
}

// drain continues until this many jobs have finished.
func (m *simulation) drain(jobs int) {
	for m.jobs = jobs; m.finished < m.jobs; m.steps++ {
		if m.steps > 80_000 {
			m.t.Fatalf("stuck at %s: %d of %d finished, %d staged, %d calling, turns %d, queue %d, blocked %d, until +%s",
				m.now.Time(), m.finished, m.jobs, m.s.Pipe.staged, m.s.Pipe.calls, len(m.s.Queues.active), m.s.turns.RoomWaiting(), m.s.turns.Waiting(), m.now.Until(m.s.gate.opens))
		}
		m.step()
		wake := m.s.Next(m.now)
		if wake != Never {
			wake = max(wake, m.now).Add(m.upTo(m.late))
		}
		if len(m.next) > 0 && m.next[0].at <= wake {
			e := heap.Pop(&m.next).(event)
			m.now = max(m.now, e.at)
			e.do()
			continue
		}
		if wake == Never {
			m.t.Fatalf("nothing will ever happen again: %d of %d finished", m.finished, m.jobs)
		}
		m.now = max(m.now, wake)
	}
}

// rest lets an hour pass, in which queues without jobs are dropped. A queue may still wait for a turn of each priority,
// and while the store is down each step invites only one queue.
func (m *simulation) rest() {
	m.now = m.now.Add(time.Hour)
	for range 1 + len(bucket.Priorities)*len(m.s.Queues.byKey) {
		m.step()
	}
}

func (m *simulation) step() {
	m.follow()
	fx := m.s.Step(m.now)
	m.digest.effects(m.s, m.now, &fx)
	if len(fx.Stale) > 0 {
		m.follow()
	}
	if len(fx.Unused) > 0 {
		m.tell(fx.Unused)
	}
	for _, j := range fx.Start {
		m.start(j)
	}
	m.checkOpen(fx)
	m.expire(fx.Expire)
	m.checkLapsed()
	for _, j := range fx.Load {
		j.Policy, j.Costs = m.s.policy, m.costsOf(j.Seq)
		m.after(m.upTo(3*time.Millisecond), func() {
			j.Deadline = m.deadlines.of[j.Seq]
			if !m.assemble(j) {
				return
			}
			if m.unreachable() {
				m.unconnected(j)
				return
			}
			m.compare(j, func() { m.s.Loaded(j) })
		})
	}
	for _, j := range fx.Look {
		m.after(m.upTo(3*time.Millisecond), func() {
			j.Deadline = m.deadlines.of[j.Seq]
			m.compare(j, func() { m.t.Fatalf("job %d became ready at a look", j.Seq) })
		})
	}
	for _, q := range fx.Resumed {
		m.resumed(q)
	}
	for _, j := range fx.Cancel {
		if !m.cancelled[j.Seq] {
			m.t.Fatalf("job %d was cancelled by nobody", j.Seq)
		}
		m.after(m.upTo(5*time.Millisecond), func() { m.s.Finished(j); m.finished++ })
	}
	if len(fx.Asks) > 0 {
		m.reserve(fx)
	}
}

// costsOf returns a job's costs, drawn from its sequence so that they are the same whenever it is loaded.
func (m *simulation) costsOf(seq uint64) []int64 {
	costs := make([]int64, len(m.policy.Rules.Shared))
	m.made[seq] = m.policy.Rules.Names()
	for i := range costs {
		if costs[i] = 1; m.policy.Rules.Shared[i].Cost.Varies() {
			costs[i] = m.costs[seq%uint64(len(m.costs))]
			if cost := m.priced[seq]; cost > 0 {
				costs[i] = cost
			}
		}
	}
	return costs
}

// start is one call: it checks the schedule against its promises and decides how the call ends.
func (m *simulation) start(j *Job) {
	key := j.Queue.Key
	if slot := j.Grant.At.Add(-m.skew); m.now < slot || m.now < j.At || m.now > j.last {
		m.t.Fatalf("S1: a call started %s after its slot", slot.Until(m.now))
	}
	if _, paused := m.s.Holds.paused.keys[key]; paused || m.s.Holds.paused.api != nil {
		m.t.Fatalf("a call of %s started while it is paused", key)
	}
	if hold := max(j.Queue.brake.held, m.s.Holds.held); m.now < hold {
		m.t.Fatalf("a call started %s before its hold ends", m.now.Until(hold))
	}
	if m.packing.rnd != nil {
		m.packing.firsts[j] = m.firsts[lane{key, j.Priority}]
	}
	m.mayCall(j)
	if j.Calls == 0 {
		m.priorities.start(j)
		came := m.appointments.came[j.Seq]
		if h := m.s.At(m.now).HoldupOf(j, came); came != 0 && h.Took > came.Until(m.now) || (h.For == "") != (h.String() == "") {
			m.t.Fatalf("of job %d, which waited %s, %+v is told", j.Seq, came.Until(m.now), h)
		}
	}
	m.checkPack(j)
	m.checkBreaker(j)
	m.checkSlowStart(j)
	if of := &m.s.suspects; j.Deaths >= suspectFrom && (of.alone != nil && len(of.underWay) > 1 || len(of.underWay) > manySuspects) {
		m.t.Fatal("a job that may have killed a worker was called beside another such")
	}
	j.Calls++
	m.calling[key]++
	m.inFlight++
	m.maxInAPI = max(m.maxInAPI, m.inFlight)
	if int64(m.calling[key]) > m.policy.Rules.Key.InFlight {
		m.t.Fatalf("S3: %d calls of %s run at once, %d may", m.calling[key], key, m.policy.Rules.Key.InFlight)
	}
	started := m.now
	m.after(m.upTo(m.busy), func() { m.leave(j, started) })
}

// mayCall checks that a job may be called now, and that its first call comes in its turn.
func (m *simulation) mayCall(j *Job) {
	if at := m.deadlines.of[j.Seq]; at != 0 && at <= m.now {
		m.t.Fatalf("job %d was called %s after its deadline", j.Seq, at.Until(m.now))
	}
	m.checkAppointment(j)
	if m.cancelled[j.Seq] {
		m.t.Fatalf("job %d was called after it was cancelled", j.Seq)
	}
	if j.Calls > 0 {
		return
	}
	own := lane{j.Queue.Key, j.Priority}
	if last := m.firsts[own]; last != 0 && m.appointments.compare(j.Seq, last) < 0 {
		m.t.Fatalf("S2: the %s job %d of %s was first called after job %d", j.Priority, j.Seq, j.Queue.Key, last)
	}
	m.firsts[own] = j.Seq
}

// leave is the moment when a call's first byte can leave, which is late on a busy machine. A call that has missed its
// slot by then is taken back. The rest of the request leaves later.
func (m *simulation) leave(j *Job, started bucket.Micros) {
	key := j.Queue.Key
	if m.now > m.s.At(m.now).Latest(j) {
		m.missed(j)
		m.calling[key]--
		m.inFlight--
		if m.probing == j {
			m.probing = nil
		}
		m.s.Unstart(j)
		return
	}
	m.after(m.upTo(m.busy), func() { m.s.Sent(j, m.now) })
	m.mayLeave(j)
	m.digest.add("left", j.Seq, m.now)
	at := int64(m.now) * 1000
	m.starts[key] = append(m.starts[key], bucket.Arrival{At: at})
	for i, name := range m.made[j.Seq] {
		m.shared[name] = append(m.shared[name], bucket.Arrival{At: at, Cost: j.Costs[i]})
	}
	m.after(m.busy+m.upTo(40*time.Millisecond), func() { m.end(j, started) })
}

func (m *simulation) end(j *Job, started bucket.Micros) {
	m.calling[j.Queue.Key]--
	m.inFlight--
	m.tell([]bucket.Use{{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs}})
	m.s.Pipe.LearnCall(started.Until(m.now))
	jobs := inCall(j)
	m.s.Ended(j, nil, m.now)
	e := m.fate(j, started)
	if m.packing.rnd != nil {
		m.endPack(j, jobs, e)
	}
	m.heard(j, e)
}

// claim is what a shared limit must keep.
func (m *simulation) claim(l bucket.Limit) bucket.Expectation {
	return bucket.Expectation{Limit: l, Jitter: m.policy.Rules.Jitter}
}

func (m *simulation) check() {
	claim := bucket.Expectation{Limit: bucket.Limit{Name: "rate", Rate: &m.policy.Rules.Key.Rate}, Jitter: m.policy.Rules.Jitter}
	for key, arrivals := range m.starts {
		if v := bucket.Check(arrivals, claim); v.Outcome == bucket.Fail {
			m.t.Fatalf("key %s: %s", key, v)
		}
	}
	for _, l := range m.policy.Rules.Shared {
		if l.Rate == nil {
			if m.maxInAPI > int(l.InFlight) {
				m.t.Fatalf("%d calls ran at once, %d may", m.maxInAPI, l.InFlight)
			}
			continue
		}
		if v := bucket.Check(m.shared[l.Name], m.claim(l)); v.Outcome == bucket.Fail {
			m.t.Fatalf("limit %s: %s", l.Name, v)
		}
	}
	for _, of := range bucket.Priorities {
		tenants, coming, asked := m.s.turns.Left(of)
		waits, onWay := m.s.turns.Callable(of)
		if tenants+coming+asked+onWay+waits != 0 {
			m.t.Fatalf("of %s jobs %d tenants, %d turns, %d jobs on their way to a slot and %d that wait are left", of, tenants, asked, onWay, waits)
		}
	}
	if n := len(m.s.Queues.byKey) + m.s.turns.Waiting() + m.s.turns.RoomWaiting() + m.s.census.unfinished + m.s.census.early + m.s.census.kept + m.s.Pipe.staged + m.s.Pipe.calls + m.s.Pipe.exit.leaving; n != 0 {
		m.t.Fatalf("something is left of finished jobs: %d queues, %d blocked, %d queued, %d jobs, %d kept queues, %d staged, %d calls, %d leaving",
			len(m.s.Queues.byKey), m.s.turns.Waiting(), m.s.turns.RoomWaiting(), m.s.census.unfinished, m.s.census.kept, m.s.Pipe.staged, m.s.Pipe.calls, m.s.Pipe.exit.leaving)
	}
}
