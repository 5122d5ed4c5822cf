package schedule

import (
	"time"

	"weir/bucket"
)

// Policy is the configuration that the schedule follows for one api. It is immutable: another configuration is
// another Policy. The same policy makes a job ready and judges its call. If a new policy comes while a job is
// ready and has no slot, the new one makes the job ready again.
type Policy struct {
	Rules   bucket.Rules
	Price   int64 // of one call, in millionths
	Retry   Retry
	Breaker BreakerPolicy
}

// Retry says what becomes of a job whose call failed, as far as that decides when a call may start.
type Retry struct {
	Attempts int           // calls that count, including the first
	Min, Max time.Duration // of the backoff
	HoldAPI  bool          // pushback holds the api, not only the key
	Adaptive *Adaptive     // nil: pushback does not lower the rate
}

// Lateness returns how long after its slot a call may still leave: four fifths of the jitter. The rest is the
// network's.
func Lateness(r *bucket.Rules) time.Duration { return max(r.Jitter*4/5, time.Millisecond) }

// Adopt puts a new policy in force. The shared limits are asked again at once. The caller must then rebind every
// queue.
func (s *Schedule) Adopt(next *Policy) {
	s.policy, s.rules = next, &next.Rules
	s.pace.GrantTTL = Lateness(s.rules)
	s.gate.open()
	if next.Breaker.Failures == 0 && !s.breaker.denied {
		s.breaker = breaker{}
	}
	s.shared = newSharedLimits(s.policy)
	s.turns.reset()
}

// unready withdraws ready jobs that cannot be called next: those that a former policy made ready, and those
// behind a job that was never called and rests or waits for memory. They would keep room from that very job.
func (s *Schedule) unready(q *KeyQueue, now bucket.Micros, fx *Effects) {
	gap := false
	for _, j := range q.Jobs {
		if j.Phase == ready && (gap || j.Policy != s.policy || !s.breaker.mayCall(j)) {
			s.withdraw(j, now)
			s.Touch(q)
			fx.Stale = append(fx.Stale, j)
		}
		gap = gap || j.First() && (j.Phase == resting || j.Phase == staging && j.Cramped)
	}
}

// Rebind gives a queue the present rules. The queue knows its bucket's state in intervals of the former rate;
// that can mean at most a full bucket of the present rate. The store knows the exact state.
func (s *Schedule) Rebind(q *KeyQueue, now bucket.Micros) {
	if s.byKey[q.Key] != q {
		return // it has been dropped since
	}
	q.Limits = s.LimitsOf(q.Key)
	s.turns.rejoin(q, s.rules.Tenant(q.Key))
	full := now.Add(s.DrainTime(q.Limits))
	q.TAT, q.slipped = min(q.TAT, full), min(q.slipped, full)
	if theirs := s.store.offset.theirs(full); theirs != 0 {
		q.floor = min(q.floor, theirs)
	}
	q.askAt = 0
	for _, j := range q.Jobs {
		if j.Phase == resting && j.limited {
			j.NotBefore = now
		}
	}
	s.Touch(q)
}

// DrainTime returns how long a full bucket takes to drain.
func (s *Schedule) DrainTime(limits *bucket.KeyLimits) time.Duration {
	return s.rules.Interval(limits.Rate).Duration() * time.Duration(limits.Rate.Burst)
}

// Bounds of one api's dispatch.
const (
	MaxCalls  = 4096 // running at once, over all keys
	MaxStaged = 256  // jobs with their message in memory, near their call
)

// How far ahead of a slot things are done. A job is made ready (its message loaded, a connection made, its
// intent stored) ahead of its slot by the lead. The lead is one and a half times what that took lately, and no
// more: after a crash every job with an intent that was not called is unknown. The slot itself is asked for only
// shortly before, since a missed slot is lost for every key.
const (
	LeastLead  = 6 * time.Millisecond
	mostLead   = 60 * time.Millisecond
	LeastAhead = 4 * time.Millisecond

	// MostAhead is the farthest ahead that slots are asked for: of a store that is a slow round trip away.
	MostAhead = 100 * time.Millisecond
)
