package whatif

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
	"weir/dispatcher/schedule"
)

// Candidate is a set of rules to try on a trace.
type Candidate struct {
	Rules    bucket.Rules
	Price    int64         // of a call, in millionths, for budgets
	CallTime time.Duration // duration of each call, if the trace does not say it
	// RetryMin and RetryMax bound the pause before a further call of a job that needed several.
	RetryMin, RetryMax time.Duration
}

// CandidateOf returns the rules that a configuration has for an api.
func CandidateOf(api *config.API) Candidate {
	return Candidate{Rules: api.CallRules(), Price: int64(api.Price), RetryMin: api.Retry.Min, RetryMax: api.Retry.Max}
}

// Part is one of the apis that are tried together. If they have an account, its limits count the calls of all of them.
type Part struct {
	Trace     *Trace
	Candidate Candidate
}

// MostLoad is the largest load that RunAll takes.
const MostLoad = 16

// rehearsal is one run of traces under their candidates' rules. It uses weir's own schedules and stores, in virtual
// time.
type rehearsal struct {
	now    bucket.Micros
	load   float64
	copies uint64 // the most jobs that one arrival may become; used to number them
	all    []*member
}

// Run runs a trace under a candidate's rules until every accepted job has been called. It calls progress with the
// number of arrivals that the run has reached. It fails if ctx ends, or if no store can keep the rules. It ignores
// other apis of the api's account.
func Run(ctx context.Context, t *Trace, c *Candidate, progress func(jobs int)) (*Outcome, error) {
	alone := *c
	alone.Rules = c.Rules.Alone()
	all, err := RunAll(ctx, []Part{{t, alone}}, 1, progress)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// RunAll is Run for several apis at once. If they have an account, parts must have all of its apis. Each job comes load
// times. load must be from 1 to MostLoad; with 1.5, every second job of a key comes twice.
func RunAll(ctx context.Context, parts []Part, load float64, progress func(jobs int)) ([]*Outcome, error) {
	return runUntil(ctx, parts, load, func(*tally) bool { return false }, progress)
}

// runUntil is RunAll, but ends as soon as enough returns true. It asks enough about an api after each arrival of the
// api.
func runUntil(ctx context.Context, parts []Part, load float64, enough func(*tally) bool, progress func(jobs int)) ([]*Outcome, error) {
	if load < 1 || load > MostLoad {
		panic(fmt.Sprintf("whatif: a load of %g", load))
	}
	r := &rehearsal{load: load, copies: uint64(math.Ceil(load))}
	pools := &bucket.Pools{}
	for i := range parts {
		if err := r.join(&parts[i], pools); err != nil {
			return nil, fmt.Errorf("these limits cannot be kept: %w", err)
		}
	}
	for done := 0; ; done++ {
		if done%lookAfter == 0 {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			progress(done)
		}
		m := r.first()
		if m == nil {
			break
		}
		if err := r.until(ctx, m.trace.arrivals[m.next].at); err != nil {
			return nil, err
		}
		m.arrives(m.next)
		if m.next++; enough(&m.out) {
			return r.outcomes(parts), nil
		}
	}
	if err := r.until(ctx, schedule.Never); err != nil {
		return nil, err
	}
	return r.outcomes(parts), nil
}

func (r *rehearsal) outcomes(parts []Part) (all []*Outcome) {
	for i, m := range r.all {
		all = append(all, m.out.outcome(m.trace, &parts[i].Candidate))
	}
	return all
}

// join adds an api to the rehearsal.
func (r *rehearsal) join(p *Part, pools *bucket.Pools) (err error) {
	c, now := &p.Candidate, func() bucket.Micros { return r.now }
	if in := c.Rules.In; in != nil && pools.Of(in.Account) == nil {
		pool, err := bucket.NewMemory(c.Rules.Pool(), now)
		if err != nil {
			return err
		}
		pools.Add(in.Account, pool)
	}
	m := &member{
		rehearsal: r, trace: p.Trace, took: max(0, c.CallTime), retry: [2]time.Duration{max(c.RetryMin, time.Millisecond), max(c.RetryMax, time.Millisecond)},
		policy: &schedule.Policy{Rules: c.Rules, Price: c.Price, Retry: schedule.Retry{Attempts: 1}}, part: &schedule.Partition{Open: true},
	}
	if m.store, err = bucket.NewMember(c.Rules, pools, now); err != nil {
		return err
	}
	m.s = schedule.New(m.policy, schedule.Pace{
		PrepareLead: schedule.LeastLead, ReserveAhead: schedule.LeastAhead, GrantTTL: schedule.Lateness(&m.policy.Rules),
		MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls,
	}, func(key string) bucket.Micros { tat, _ := m.store.TAT(key); return tat })
	for i := range c.Rules.Shared {
		m.columns = append(m.columns, slices.Index(p.Trace.limits, c.Rules.Shared[i].Name))
	}
	m.out.keys = make([]OfKey, len(p.Trace.keys))
	for i, key := range p.Trace.keys {
		m.out.keys[i].Key = key
	}
	if r.load > 1 {
		m.parts = make([]float64, len(p.Trace.keys))
	}
	r.all = append(r.all, m)
	return nil
}

// first returns the member with the next arrival, or nil if all have arrived.
func (r *rehearsal) first() (first *member) {
	for _, m := range r.all {
		if m.next < len(m.trace.arrivals) && (first == nil || m.trace.arrivals[m.next].at < first.trace.arrivals[first.next].at) {
			first = m
		}
	}
	return first
}

// lookAfter is the number of arrivals or steps between two checks of ctx.
const lookAfter = 4096

// until runs everything that happens up to and including a time.
func (r *rehearsal) until(ctx context.Context, at bucket.Micros) error {
	for steps := 1; ; steps++ {
		if steps%lookAfter == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		next := schedule.Never
		for _, m := range r.all {
			m.due = m.nextStep()
			next = min(next, m.due)
		}
		if next > at || next == schedule.Never {
			if at != schedule.Never {
				r.now = max(r.now, at)
				return nil
			}
			return r.allCalled()
		}
		r.now = max(r.now, next)
		for _, m := range r.all {
			if m.due > r.now {
				continue
			}
			if err := m.step(ctx); err != nil {
				return err
			}
		}
	}
}

// allCalled returns an error if a job could never be called.
func (r *rehearsal) allCalled() error {
	for _, m := range r.all {
		if n := m.s.At(r.now).Unfinished(); n > 0 {
			return fmt.Errorf("%d jobs could never be called", n)
		}
	}
	return nil
}
