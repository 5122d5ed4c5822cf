package storetest

import (
	"cmp"
	"slices"
	"time"

	"weir/bucket"
)

// What rules in force mean while they change.
//
// A slot is judged by the rules under which it was granted, and everything granted before it counts, under whatever
// rules. Let m be the slot in a window [a, b] that was granted last, and let its rules be in force until b. Then a
// shared rate lets at most its burst and what drains between a and b into the window, drained at each time by the rate
// in force then. A quota lets at most its count into a period or window of its length. No more calls run at once than
// an in-flight limit allows. So a lowered limit binds at once. It waits until earlier grants have drained, and takes no
// slot back. A shadow limit counts what it would have let pass; it is not judged for slots that were granted while it
// was a shadow limit.
//
// A change stops no call for longer than a window of the limit. So a rate is checked over any stretch within one era,
// and across a change only over stretches within a window. changes.go checks how many calls a window across a change
// may hold, and the rates of keys.
//
// These checks are about slots, by the store's clock. Calls come later by up to the jitter, for which the intervals
// have room.

// neverOverInForce checks every slot that was used against the rules in force.
func (s *scene) neverOverInForce(fail func(string, ...any)) {
	calls := slices.Clone(s.calls)
	slices.SortFunc(calls, func(a, b call) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.number, b.number)) })
	for k := range s.keys {
		for e := range s.eras {
			slots := s.slots(calls, func(c *call) int64 {
				if c.key == k && c.era == e {
					return 1
				}
				return 0
			})
			s.holdRate(slots, "key", fail, func(e int) bucket.Rate { return s.eras[e].rules.Key.Rate })
		}
	}
	for i, l := range s.rules.Shared {
		slots := s.slots(calls, func(c *call) int64 {
			if s.eras[c.era].rules.Shared[i].Shadow {
				return 0
			}
			return c.costs[i]
		})
		switch {
		case l.Rate != nil:
			s.holdRate(slots, l.Name, fail, func(e int) bucket.Rate { return *s.eras[e].rules.Shared[i].Rate })
		case l.Quota != nil:
			s.holdQuota(slots, i, fail)
		default:
			s.holdInFlight(i, fail)
		}
	}
}

// slot is a used slot, with what it took.
type slot struct {
	at          bucket.Micros
	cost        int64
	number, era int
}

func (s *scene) slots(calls []call, cost func(*call) int64) (slots []slot) {
	for i := range calls {
		c := &calls[i]
		if n := cost(c); n > 0 {
			slots = append(slots, slot{c.At, n, c.number, c.era})
		}
	}
	return slots
}

// lasts reports whether an era's rules are in force at that time.
func (s *scene) lasts(e int, at bucket.Micros) bool {
	return e == len(s.eras)-1 || at < s.eras[e+1].from
}

// holdRate checks every window.
func (s *scene) holdRate(slots []slot, name string, fail func(string, ...any), rate func(era int) bucket.Rate) {
	drained := make([]float64, len(slots)) // from the start to each slot, in units
	for i, x := range slots {
		for e := range s.eras {
			until := x.at
			if e+1 < len(s.eras) {
				until = min(until, s.eras[e+1].from)
			}
			if until > s.eras[e].from {
				drained[i] += float64(until-s.eras[e].from) * perMicro(s.eras[e].rules, rate(e))
			}
		}
	}
	for i := range slots {
		sum, last := int64(0), slots[i]
		for j := i; j < len(slots); j++ {
			x := slots[j]
			sum += x.cost
			if x.number > last.number {
				last = x
			}
			if !s.lasts(last.era, x.at) {
				continue
			}
			r, rules := rate(last.era), s.eras[last.era].rules
			if slots[i].era != last.era && x.at-slots[i].at >= max(rules.Window(r), bucket.Micros(rules.Interval(r).Duration()/time.Microsecond)) {
				continue
			}
			// Slots are whole microseconds: 1 µs more at either end.
			let := float64(r.Burst) + drained[j] - drained[i] + 2*perMicro(s.eras[last.era].rules, r) + 1e-6
			if float64(sum) > let {
				fail("%s: %d units in slots %d to %d µs, %.3f are allowed by %+v, in force from %d µs\n%+v", name, sum,
					slots[i].at-Start, x.at-Start, let, r, s.eras[last.era].from-Start, s.plan)
			}
		}
	}
}

// holdQuota checks every period, or every window of a sliding quota.
func (s *scene) holdQuota(slots []slot, limit int, fail func(string, ...any)) {
	for i := range slots {
		sum, last := int64(0), slots[i]
		for _, x := range slots[i:] {
			q := s.rules.Shared[limit].Quota
			if q.Window == bucket.Sliding && x.at-slots[i].at >= bucket.Micros(q.Per/time.Microsecond) {
				break
			}
			if q.Window != bucket.Sliding {
				if _, end := q.Period(slots[i].at); x.at >= end {
					break
				}
			}
			sum += x.cost
			if x.number > last.number {
				last = x
			}
			rules := s.eras[last.era].rules
			let := max(1, rules.Shared[limit].Quota.Count*(100-rules.Headroom)/100)
			if sum > let && s.lasts(last.era, x.at) {
				fail("%s: %d units in slots %d to %d µs, %d are allowed\n%+v", rules.Shared[limit].Name, sum, slots[i].at-Start, x.at-Start, let, s.plan)
			}
		}
	}
}

// holdInFlight checks every start of a call.
func (s *scene) holdInFlight(limit int, fail func(string, ...any)) {
	for _, c := range s.calls {
		running, last := int64(0), c
		for _, x := range s.calls {
			if x.at <= c.at && c.at < x.end || x.number == c.number {
				running++
				if x.number > last.number {
					last = x
				}
			}
		}
		rules := s.eras[last.era].rules
		l := rules.Shared[limit]
		if let := max(1, l.InFlight*(100-rules.Headroom)/100); running > let && !l.Shadow {
			fail("%s: %d calls at once, %d are allowed\n%+v", l.Name, running, let, s.plan)
		}
	}
}

// neverIdleInForce checks that in every era at least 95 % of the tightest rate in force was used, because jobs were
// always waiting. What the era before had granted ahead counts as used.
func (s *scene) neverIdleInForce(fail func(string, ...any)) {
	if len(s.calls) >= most || len(s.calls) == 0 {
		return // cut short
	}
	for e, x := range s.eras {
		until := Start.Add(s.length)
		if e+1 < len(s.eras) {
			until = s.eras[e+1].from
		}
		if until <= x.from {
			continue
		}
		length, window := float64(until-x.from), float64(x.rules.Window(x.rules.Key.Rate))
		allowed := float64(s.keys) * length * perMicro(x.rules, x.rules.Key.Rate)
		owed := float64(s.want * s.keys)
		for i, l := range x.rules.Shared {
			if !l.Shadow {
				allowed = min(allowed, length*perMicro(x.rules, *l.Rate)/unitsOf(x.rules, *l.Rate, s.costs[i]))
			}
			window = max(window, float64(x.rules.Window(*l.Rate)))
			owed += s.owedBefore(e, func(r *bucket.Rules) int64 { return r.Shared[i].Rate.Burst / s.costs[i] })
		}
		owed += float64(s.keys) * s.owedBefore(e, func(r *bucket.Rules) int64 { return r.Key.Rate.Burst })
		if e > 0 { // the use of the window before the era is not known
			owed += allowed / length * window
		}
		got := 0
		for _, c := range s.calls {
			if c.At >= x.from && c.At < until {
				got++
			}
		}
		if float64(got) < 0.95*allowed-owed-2 {
			fail("era %d: %d calls of %.1f allowed in %.0f µs, with %.0f owed\n%+v", e, got, allowed, length, owed, s.plan)
		}
	}
}

// owedBefore returns how many calls a limit may owe when an era begins, and must pay off in it: the largest burst of
// all eras up to this one.
func (s *scene) owedBefore(e int, burst func(*bucket.Rules) int64) float64 {
	most := int64(0)
	for i := range s.eras[:e+1] {
		most = max(most, burst(&s.eras[i].rules))
	}
	return float64(most)
}
