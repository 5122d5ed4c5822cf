package schedule

import (
	"math"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// Policy is the configuration that the schedule follows for one api. It is immutable: another configuration is another
// Policy. The same policy makes a job ready and judges its call. If a new policy comes while a job is ready and has no
// slot, the job is made ready again by the new one.
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

// slot returns the slot that the key's own rate gives its n-th call after the time from, counted from 1.
func (p *Policy) slot(limits *bucket.KeyLimits, tat, from bucket.Micros, n int) bucket.Micros {
	return bucket.Forecast(*limits, p.Rules.Interval(limits.Rate), tat, from, n)
}

// NextSlot returns the earliest slot that a key's own rate allows, as far as this process knows.
func (p *Policy) NextSlot(q *KeyQueue, now bucket.Micros) bucket.Micros {
	return p.slot(q.Limits, q.TAT, now, 1)
}

// Retry holds the rules that decide when the next call may start after a failed one.
type Retry struct {
	Attempts int           // calls that may count as attempts, including the first
	Min, Max time.Duration // bounds of the backoff
	HoldAPI  bool          // pushback holds the api, not only the key
	// HoldAccount says that pushback holds all apis of the account.
	HoldAccount bool
	Adaptive    *Adaptive // nil: pushback does not lower the rate
}

// Backoff returns the delay after the n-th failure in a row, counted from 1. It grows exponentially from least to most.
// jitter, from 0 to 1, spreads it over its upper half, so that jobs that failed together do not come back together.
func Backoff(least, most time.Duration, n int, jitter float64) time.Duration {
	d := float64(least) * math.Pow(2, float64(min(n, 40)-1))
	d = math.Min(d, float64(most))
	return time.Duration(d/2 + jitter*d/2)
}

// Lateness returns how long after its slot a call may still leave: four fifths of the jitter. The last fifth is left to
// the network.
func Lateness(r *bucket.Rules) time.Duration { return max(r.Jitter*4/5, time.Millisecond) }

// Policy returns the policy in force.
func (s *Schedule) Policy() *Policy { return s.policy }

// Adopt puts a new policy in force. It also ends any wait before the store may be asked again for slots under shared
// limits. The caller must then call Rebind for every queue.
func (s *Schedule) Adopt(next *Policy) {
	s.policy = next
	s.Pipe.pace.GrantTTL = Lateness(&next.Rules)
	s.gate.open()
	s.Holds.adopt(next)
	s.grants = s.grants.Under(s.Pipe.pace.sharesStore(&s.policy.Rules))
	s.Shared = limits.NewShared(&next.Rules, next.Price, next.Settles, s.grants)
	s.gate.replica = limits.NewReplica(&next.Rules, s.gate.replica)
	s.turns.Reset(next.Rules.Weights)
}

// Rebind gives a queue the present rules. The queue's TAT was computed with the former rate. Rebind bounds it by the
// TAT of a full bucket of the present rate. Only the store knows the exact TAT.
func (s *Schedule) Rebind(q *KeyQueue, now bucket.Micros) {
	if s.byKey[q.Key] != q {
		return // the queue has been dropped meanwhile
	}
	q.Limits = s.policy.LimitsOf(q.Key)
	s.turns.Rejoin(q, s.policy.Rules.Tenant(q.Key))
	q.waits.Weigh(s.policy.Rules.Weights)
	full := now.Add(s.policy.DrainTime(q.Limits))
	q.lower(full, s.store.offset.theirs(full))
	q.Jobs.rouse(now)
	s.Touch(q)
}

// Bounds of one api's dispatch.
const (
	MaxCalls  = 4096          // that run at the same time, over all keys
	MaxStaged = limits.Plenty // jobs with their message in memory, near their call
)

// How far ahead of its slot a job is made ready, and how far ahead the slot is asked for. To make a job ready, the
// dispatcher loads its message, connects, and stores its intent. It begins ahead of the slot by the lead: one and a
// half times as long as this took lately. The lead is not longer, because after a crash the outcome of every job with
// an intent is unknown, even if the job was not called. The slot itself is asked for only shortly before it, because a
// missed slot is lost for every key.
const (
	LeastLead  = 6 * time.Millisecond
	mostLead   = 60 * time.Millisecond
	LeastAhead = 4 * time.Millisecond

	// MostAhead bounds how far ahead slots are asked for. It takes effect if round trips to the store are slow.
	MostAhead = 100 * time.Millisecond
)
