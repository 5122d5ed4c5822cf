package whatif

import (
	"context"
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"
)

// member is one api in a rehearsal.
type member struct {
	*rehearsal

	trace   *Trace
	next    int // the next arrival
	policy  *schedule.Policy
	took    time.Duration
	retry   [2]time.Duration
	columns []int // by shared limit: its column in the trace's takes; -1: none
	s       *schedule.Schedule
	store   *bucket.Memory
	part    *schedule.Partition
	running []end         // running calls in the order of their ends
	due     bucket.Micros // when the member has something to do next
	parts   []float64     // by key: the fraction of a job that has not come yet; nil if every job comes once
	out     tally
}

type end struct {
	at  bucket.Micros
	job *schedule.Job
}

// nextStep returns when the member has something to do next.
func (m *member) nextStep() bucket.Micros {
	next := m.s.Next(m.now)
	if len(m.running) > 0 {
		next = min(next, m.running[0].at)
	}
	return next
}

// arrives lets the jobs of one arrival come: one job, or more if the load is above 1.
func (m *member) arrives(number int) {
	if m.parts == nil {
		m.arrive(number, 0)
		return
	}
	part := &m.parts[m.trace.arrivals[number].key]
	*part += m.load
	for copied := uint64(0); *part >= 1 && copied < m.copies; copied++ {
		*part--
		m.arrive(number, copied)
	}
}

// arrive accepts or refuses an arriving job, as the intake would.
func (m *member) arrive(number int, copied uint64) {
	a := &m.trace.arrivals[number]
	key, depth := m.trace.keys[a.key], 0
	m.out.jobs++
	m.out.keys[a.key].Jobs++
	limits := m.policy.LimitsOf(key)
	if q := m.s.Queues.Find(key); q != nil {
		depth = q.Depth()
	}
	switch {
	case !m.payable(a):
		m.out.refused++
		return
	case int64(depth) >= limits.Capacity, limits.MaxWait > 0 && m.wait(key, depth) > limits.MaxWait:
		m.out.overflow(a.key)
		return
	}
	m.out.take(a.key, depth+1)
	m.s.Push(key, uint64(number)*m.copies+copied+1, m.part) //nolint:gosec // a number of arrivals
}

// arrivalOf returns the arrival of a job.
func (m *member) arrivalOf(j *schedule.Job) *arrival { return &m.trace.arrivals[(j.Seq-1)/m.copies] }

// payable reports whether the limits could ever let a job with this cost pass.
func (m *member) payable(a *arrival) bool {
	for i := range m.policy.Rules.Shared {
		l := &m.policy.Rules.Shared[i]
		if l.Kind() != bucket.KindInFlight && !l.Shadow && m.cost(i, a) > m.policy.Rules.Capacity(*l) {
			return false
		}
	}
	return true
}

// wait returns how long a job that arrives now would wait, by weir's forecast.
func (m *member) wait(key string, depth int) time.Duration {
	at := m.s.At(m.now).ETA(schedule.Place{Key: key, Position: depth + 1, Others: m.s.At(m.now).Unfinished() - depth})
	if at == 0 {
		return 0
	}
	return m.now.Until(at)
}

// cost returns what a call takes from the shared limit at a place. If the trace knows what the recorded calls took, the
// cost is that, but at most what the limit lets pass at once. Otherwise, if the limit reads the cost from the job, it
// is the cost in the trace.
func (m *member) cost(place int, a *arrival) int64 {
	l := &m.policy.Rules.Shared[place]
	if column := m.columns[place]; column >= 0 {
		if units, known := m.trace.units(a, column); known {
			return min(units, m.policy.Rules.Capacity(*l))
		}
	}
	switch {
	case l.Budget != nil:
		return m.policy.Price
	case l.Cost.Varies():
		return a.cost
	}
	return max(1, l.Cost.Usual())
}

// actual returns what a call took from the shared limits. It returns nil if the call took what it had reserved.
func (m *member) actual(j *schedule.Job) []int64 {
	took := m.arrivalOf(j).took
	if took == unknown {
		return nil
	}
	actual := slices.Clone(j.Costs)
	for i := range actual {
		if l := &m.policy.Rules.Shared[i]; l.Budget == nil && l.Cost.Settles() {
			actual[i] = took
		}
	}
	return actual
}

// costs returns what a job reserves from the shared limits.
func (m *member) costs(a *arrival) []int64 {
	if len(m.policy.Rules.Shared) == 0 {
		return nil
	}
	costs := make([]int64, len(m.policy.Rules.Shared))
	for i := range costs {
		costs[i] = m.cost(i, a)
	}
	return costs
}

// step does everything that is due now.
func (m *member) step(ctx context.Context) error {
	if err := m.endCalls(ctx); err != nil {
		return err
	}
	fx := m.s.Step(m.now)
	if len(fx.Unused) > 0 {
		if err := m.store.Settle(ctx, fx.Unused); err != nil {
			return err
		}
	}
	for _, j := range fx.Start {
		m.start(j)
	}
	for _, j := range fx.Load {
		j.Policy, j.Costs = m.policy, m.costs(m.arrivalOf(j))
		m.s.Loaded(j)
	}
	if len(fx.Asks) == 0 {
		return nil
	}
	answers, err := m.store.Reserve(ctx, fx.Asks)
	out := m.s.Answer(&fx, schedule.Reply{Sent: m.now, Came: m.now, Answers: answers, Err: err})
	if err != nil {
		return err
	}
	for _, j := range out.OverBudget {
		m.out.overBudget++
		m.s.Finished(j)
	}
	for _, j := range out.Impossible {
		m.out.refused++
		m.s.Finished(j)
	}
	if len(out.Unused) > 0 {
		return m.store.Settle(ctx, out.Unused)
	}
	return nil
}

// start begins a job's call. Only the wait for the job's first call counts.
func (m *member) start(j *schedule.Job) {
	a := m.arrivalOf(j)
	if j.Calls++; j.Calls == 1 {
		m.out.call(a.at.Until(m.now))
	}
	m.s.Sent(j, m.now)
	ends := end{m.now.Add(m.lasts(a)), j}
	at := len(m.running)
	for at > 0 && m.running[at-1].at > ends.at {
		at--
	}
	m.running = slices.Insert(m.running, at, ends)
}

// lasts returns how long a call of a job lasts.
func (m *member) lasts(a *arrival) time.Duration {
	if a.lasts > 0 {
		return time.Duration(a.lasts) * time.Microsecond
	}
	return m.took
}

// endCalls ends the calls that are over. A job that needs another call rests before it.
func (m *member) endCalls(ctx context.Context) error {
	for len(m.running) > 0 && m.running[0].at <= m.now {
		j := m.running[0].job
		m.running = slices.Delete(m.running, 0, 1)
		actual := m.actual(j)
		use := bucket.Use{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs, Actual: actual}
		if err := m.store.Settle(ctx, []bucket.Use{use}); err != nil {
			return err
		}
		a := m.arrivalOf(j)
		m.s.Pipe.LearnCall(m.lasts(a))
		m.s.Ended(j, actual, m.now)
		if j.Calls < int(a.calls) {
			m.s.Rest(j, m.now.Add(schedule.Backoff(m.retry[0], m.retry[1], j.Calls, 0.5)))
			continue
		}
		m.s.Finished(j)
	}
	return nil
}
