package whatif

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"
)

// Candidate is a set of rules to try on a trace.
type Candidate struct {
	Rules    bucket.Rules
	Price    int64         // of a call, in millionths, for budgets
	CallTime time.Duration // duration of each call
}

// rehearsal is one run of a trace under a candidate's rules. It uses weir's own schedule and store, in virtual time.
type rehearsal struct {
	trace   *Trace
	policy  *schedule.Policy
	took    time.Duration
	now     bucket.Micros
	s       *schedule.Schedule
	store   *bucket.Memory
	part    *schedule.Partition
	running []end // running calls in the order of their ends, because all calls take the same time
	out     tally
}

type end struct {
	at  bucket.Micros
	job *schedule.Job
}

// Run runs a trace under a candidate's rules until every accepted job has been called. It calls progress with the
// number of arrivals that the run has reached. It fails if ctx ends, or if no store can keep the rules.
func Run(ctx context.Context, t *Trace, c *Candidate, progress func(jobs int)) (*Outcome, error) {
	rules := c.Rules.Alone()
	r := &rehearsal{
		trace: t, took: max(0, c.CallTime), part: &schedule.Partition{Open: true},
		policy: &schedule.Policy{Rules: rules, Price: c.Price, Retry: schedule.Retry{Attempts: 1}},
	}
	var err error
	if r.store, err = bucket.NewMemory(rules, func() bucket.Micros { return r.now }); err != nil {
		return nil, fmt.Errorf("these limits cannot be kept: %w", err)
	}
	r.s = schedule.New(r.policy, schedule.Pace{
		PrepareLead: schedule.LeastLead, ReserveAhead: schedule.LeastAhead, GrantTTL: schedule.Lateness(&r.policy.Rules),
		MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls,
	}, func(key string) bucket.Micros { tat, _ := r.store.TAT(key); return tat })
	for next := range t.arrivals {
		if next%lookAfter == 0 {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			progress(next)
		}
		if err := r.until(ctx, t.arrivals[next].at); err != nil {
			return nil, err
		}
		r.arrive(next)
	}
	if err := r.until(ctx, schedule.Never); err != nil {
		return nil, err
	}
	progress(len(t.arrivals))
	return r.out.outcome(t, c), nil
}

// lookAfter is the number of arrivals or steps between two checks of ctx.
const lookAfter = 4096

// until runs everything that happens up to and including a time.
func (r *rehearsal) until(ctx context.Context, at bucket.Micros) error {
	for steps := 1; ; steps++ {
		if steps%lookAfter == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		next := r.s.Next(r.now)
		if len(r.running) > 0 {
			next = min(next, r.running[0].at)
		}
		if next > at || next == schedule.Never {
			if at != schedule.Never {
				r.now = max(r.now, at)
			} else if r.s.At(r.now).Unfinished() > 0 {
				return fmt.Errorf("%d jobs could never be called", r.s.At(r.now).Unfinished())
			}
			return nil
		}
		r.now = max(r.now, next)
		if err := r.step(ctx); err != nil {
			return err
		}
	}
}

// arrive accepts or refuses an arriving job, as the intake would.
func (r *rehearsal) arrive(number int) {
	a := &r.trace.arrivals[number]
	key, depth := r.trace.keys[a.key], 0
	limits := r.policy.LimitsOf(key)
	if q := r.s.Find(key); q != nil {
		depth = q.Depth()
	}
	switch {
	case !r.payable(a):
		r.out.refused++
		return
	case int64(depth) >= limits.Capacity, limits.MaxWait > 0 && r.wait(key, depth) > limits.MaxWait:
		r.out.overflowed++
		return
	}
	r.out.take(a.key, depth+1)
	r.s.Push(key, uint64(number)+1, r.part)
}

// payable reports whether the limits could ever let a job with this cost pass.
func (r *rehearsal) payable(a *arrival) bool {
	for i := range r.policy.Rules.Shared {
		l := &r.policy.Rules.Shared[i]
		if l.Kind() != bucket.KindInFlight && !l.Shadow && r.cost(l, a) > r.policy.Rules.Capacity(*l) {
			return false
		}
	}
	return true
}

// wait returns how long a job that arrives now would wait, by weir's forecast.
func (r *rehearsal) wait(key string, depth int) time.Duration {
	at := r.s.At(r.now).ETA(schedule.Place{Key: key, Position: depth + 1, Others: r.s.At(r.now).Unfinished() - depth})
	if at == 0 {
		return 0
	}
	return r.now.Until(at)
}

// cost returns what a job takes from a shared limit. It is the cost in the trace if the limit reads the cost from the
// job.
func (r *rehearsal) cost(l *bucket.Limit, a *arrival) int64 {
	switch {
	case l.Budget != nil:
		return r.policy.Price
	case l.Cost.Varies():
		return a.cost
	}
	return max(1, l.Cost.Usual())
}

// actual returns what a call took from the shared limits. It returns nil if the call took what it had reserved.
func (r *rehearsal) actual(j *schedule.Job) []int64 {
	took := r.trace.arrivals[j.Seq-1].took
	if took == unknown {
		return nil
	}
	actual := slices.Clone(j.Costs)
	for i := range actual {
		if l := &r.policy.Rules.Shared[i]; l.Budget == nil && l.Cost.Settles() {
			actual[i] = took
		}
	}
	return actual
}

// costs returns what a job reserves from the shared limits.
func (r *rehearsal) costs(a *arrival) []int64 {
	if len(r.policy.Rules.Shared) == 0 {
		return nil
	}
	costs := make([]int64, len(r.policy.Rules.Shared))
	for i := range costs {
		costs[i] = r.cost(&r.policy.Rules.Shared[i], a)
	}
	return costs
}

// step does everything that is due now.
func (r *rehearsal) step(ctx context.Context) error {
	for len(r.running) > 0 && r.running[0].at <= r.now {
		j := r.running[0].job
		r.running = r.running[1:]
		actual := r.actual(j)
		use := bucket.Use{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs, Actual: actual}
		if err := r.store.Settle(ctx, []bucket.Use{use}); err != nil {
			return err
		}
		r.s.Pipe.LearnCall(r.took)
		r.s.Ended(j, actual, r.now)
		r.s.Finished(j)
	}
	fx := r.s.Step(r.now)
	if len(fx.Unused) > 0 {
		if err := r.store.Settle(ctx, fx.Unused); err != nil {
			return err
		}
	}
	for _, j := range fx.Start {
		r.out.call(r.trace.arrivals[j.Seq-1].at.Until(r.now))
		j.Calls++
		r.s.Sent(j, r.now)
		r.running = append(r.running, end{r.now.Add(r.took), j})
	}
	for _, j := range fx.Load {
		j.Policy, j.Costs = r.policy, r.costs(&r.trace.arrivals[j.Seq-1])
		r.s.Loaded(j)
	}
	if len(fx.Asks) == 0 {
		return nil
	}
	answers, err := r.store.Reserve(ctx, fx.Asks)
	out := r.s.Answer(&fx, schedule.Reply{Sent: r.now, Came: r.now, Answers: answers, Err: err})
	if err != nil {
		return err
	}
	for _, j := range out.OverBudget {
		r.out.overBudget++
		r.s.Finished(j)
	}
	for _, j := range out.Impossible {
		r.out.refused++
		r.s.Finished(j)
	}
	if len(out.Unused) > 0 {
		return r.store.Settle(ctx, out.Unused)
	}
	return nil
}
