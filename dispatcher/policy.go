package dispatcher

import (
	"time"

	"weir/bucket"
	"weir/dispatcher/httpcall"
)

// Policy is what the schedule goes by for one api. It is immutable: another configuration is another policy. A job is made ready and
// its call is judged by the same one; a job that is ready when another comes, and has no slot yet, is made ready again by that.
type Policy struct {
	Rules   bucket.Rules
	Price   int64 // of one call, in millionths
	Retry   Retry
	Breaker httpcall.Breaker
}

// Retry says what becomes of a job whose call failed, as far as it decides when a call may start.
type Retry struct {
	Attempts int                // that count, the first included
	Min, Max time.Duration      // of the backoff
	HoldAPI  bool               // pushback holds the api, not only the key
	Adaptive *httpcall.Adaptive // nil: pushback does not lower the rate
}

// lateness is how long after its slot a call may still leave: the rest of the jitter is the network's.
func lateness(r *bucket.Rules) time.Duration { return max(r.Jitter*4/5, time.Millisecond) }

// adopt puts a new policy in force. The shared limits are asked again at once; every line is then to be rebound.
func (s *schedule) adopt(next *Policy) {
	s.policy, s.rules = next, &next.Rules
	s.pace.late = lateness(s.rules)
	s.until, s.by, s.levels = 0, "", nil
	s.habits.costs, s.habits.tats = nil, nil
	if next.Breaker.Failures == 0 && !s.breaker.denied {
		s.breaker, s.probe = breaker{}, nil
	}
	s.reseat()
}

// unready lets what is ready rest that cannot be called next: what a former policy made ready, and what stands behind a job
// that was never called and rests, or waits for room in memory. It would keep room from that very job.
func (s *schedule) unready(l *line, now bucket.Micros, fx *effects) {
	gap := false
	for _, t := range l.tasks {
		if t.phase == ready && (gap || t.policy != s.policy || !s.mayCall(t)) {
			s.withdraw(t, now)
			s.touch(l)
			fx.stale = append(fx.stale, t)
		}
		gap = gap || t.first() && (t.phase == resting || t.phase == staging && t.cramped)
	}
}

// rebind gives a line the present rules. What the line knows of its bucket it knows in intervals of the former rate: a
// full bucket of the present one is the most it can mean. The store has it exactly.
func (s *schedule) rebind(l *line, now bucket.Micros) {
	if s.lines[l.key] != l {
		return // it has been let go of since
	}
	l.limits = s.limitsOf(l.key)
	if l.tenant == nil || s.tenants[l.tenant.name] != l.tenant {
		l.blocked, l.queued, l.costly, l.pass, l.toll, l.lent = false, false, false, 0, 0, 0
		s.join(l)
	}
	full := now.Add(s.drainTime(l.limits))
	l.tat, l.slipped = min(l.tat, full), min(l.slipped, full)
	if theirs := s.offset.theirs(full); theirs != 0 {
		l.floor = min(l.floor, theirs)
	}
	l.askAt = 0
	for _, t := range l.tasks {
		if t.phase == resting && t.limited {
			t.notBefore = now
		}
	}
	s.touch(l)
}

// drainTime is how long a full bucket takes to drain.
func (s *schedule) drainTime(limits *bucket.KeyLimits) time.Duration {
	return s.rules.Interval(limits.Rate).Duration() * time.Duration(limits.Rate.Burst)
}
