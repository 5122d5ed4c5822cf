package schedule

import (
	"math"
	"time"

	"weir/bucket"
)

// Policy is the configuration that the schedule follows for one api. It is immutable: another configuration is
// another Policy. The same policy makes a job ready and judges its call. If a new policy comes while a job is
// ready and has no slot, the new one makes the job ready again.
type Policy struct {
	Rules   bucket.Rules
	Price   int64 // of a usual call, in millionths
	Settles bool  // answers say what their calls cost
	Retry   Retry
	Breaker BreakerPolicy
	Reuse   bool     // jobs may end with the answer of an equal job (look.go)
	Packs   *Packing // nil: each call has one job
}

// LimitsOf returns a key's limits. All keys without an override share one value.
func (p *Policy) LimitsOf(key string) *bucket.KeyLimits {
	if len(p.Rules.Overrides) == 0 {
		return &p.Rules.Key
	}
	limits := p.Rules.For(key)
	return &limits
}

// DrainTime returns how long a full bucket takes to drain.
func (p *Policy) DrainTime(limits *bucket.KeyLimits) time.Duration {
	return p.interval(limits) * time.Duration(limits.Rate.Burst)
}

// interval returns the time between two calls of a key.
func (p *Policy) interval(limits *bucket.KeyLimits) time.Duration {
	return p.Rules.Interval(limits.Rate).Duration()
}

// slot returns the slot of a key's n-th call from a time on, counted from 1, by the key's own rate.
func (p *Policy) slot(limits *bucket.KeyLimits, tat, from bucket.Micros, n int) bucket.Micros {
	return bucket.Forecast(*limits, p.Rules.Interval(limits.Rate), tat, from, n)
}

// NextSlot returns the earliest slot of a key by its own rate, as far as this process knows.
func (p *Policy) NextSlot(q *KeyQueue, now bucket.Micros) bucket.Micros {
	return p.slot(q.Limits, q.TAT, now, 1)
}

// Retry holds the rules for failed calls that decide when the next call may start.
type Retry struct {
	Attempts int           // calls that count, including the first
	Min, Max time.Duration // of the backoff
	HoldAPI  bool          // pushback holds the api, not only the key
	// HoldAccount says that pushback holds all apis of the account.
	HoldAccount bool
	Adaptive    *Adaptive // nil: pushback does not lower the rate
}

// Backoff returns the delay after the n-th failure in a row (the first is 1). It grows exponentially from least
// to most. jitter, from 0 to 1, spreads it over the upper half, so that jobs that failed together do not come
// back together.
func Backoff(least, most time.Duration, n int, jitter float64) time.Duration {
	d := float64(least) * math.Pow(2, float64(min(n, 40)-1))
	d = math.Min(d, float64(most))
	return time.Duration(d/2 + jitter*d/2)
}

// Lateness returns how long after its slot a call may still leave: four fifths of the jitter. The rest is the
// network's.
func Lateness(r *bucket.Rules) time.Duration { return max(r.Jitter*4/5, time.Millisecond) }

// Policy returns the policy in force.
func (s *Schedule) Policy() *Policy { return s.policy }

// Adopt puts a new policy in force. The shared limits are asked again at once. The caller must then rebind every
// queue.
func (s *Schedule) Adopt(next *Policy) {
	s.policy = next
	s.Pipe.pace.GrantTTL = Lateness(&next.Rules)
	s.gate.open()
	if next.Breaker.Failures == 0 && !s.holds.breaker.denied {
		s.holds.breaker = breaker{}
		s.holds.common.turned, s.holds.common.alone, s.holds.common.claim = false, false, 0
	}
	s.grants = s.grants.under(s.sharesStore())
	s.Shared = newSharedLimits(s.policy, s.grants)
	s.replica = newReplicaLimits(&next.Rules, s.replica)
	s.turns.reset(next.Rules.Weights)
}

// Rebind gives a queue the present rules. The queue's TAT was computed with the former rate, so Rebind limits it to
// that of a full bucket of the present rate. The store knows the exact state.
func (s *Schedule) Rebind(q *KeyQueue, now bucket.Micros) {
	if s.byKey[q.Key] != q {
		return // it has been dropped since
	}
	q.Limits = s.policy.LimitsOf(q.Key)
	s.turns.rejoin(q, s.policy.Rules.Tenant(q.Key))
	if q.waits.classes != nil {
		q.waits.classes.weigh(s.policy.Rules.Weights)
	}
	full := now.Add(s.policy.DrainTime(q.Limits))
	q.lower(full, s.store.offset.theirs(full))
	q.rouse(now)
	s.Touch(q)
}

// Bounds of one api's dispatch.
const (
	MaxCalls  = 4096 // running at once, over all keys
	MaxStaged = 256  // jobs with their message in memory, near their call
)

// How far ahead of a slot a job is made ready and the slot is asked for. A job is made ready (its message loaded, a
// connection made, its intent stored) ahead of its slot by the lead. The lead is one and a half times what that took
// lately, and no more: a crash makes every job with an intent unknown, even if it was not called. The slot itself is
// asked for only shortly before, since a missed slot is lost for every key.
const (
	LeastLead  = 6 * time.Millisecond
	mostLead   = 60 * time.Millisecond
	LeastAhead = 4 * time.Millisecond

	// MostAhead bounds how far ahead slots are asked for if the round trip to the store is slow.
	MostAhead = 100 * time.Millisecond
)
