package storetest

import (
	"math"
	"time"

	"weir/bucket"
)

// neverOver checks all arrivals against every limit, less the headroom.
func (s *scene) neverOver(fail func(string, ...any)) {
	for k := range s.keys {
		v := bucket.Check(s.arrivals(k, -1), s.claim(bucket.Limit{Rate: &s.rules.Key.Rate}))
		if v.Outcome != bucket.Pass {
			fail("key %d, rate %+v: %v\n%+v", k, s.rules.Key.Rate, v, s.plan)
		}
	}
	for i, l := range s.rules.Shared {
		if l.Shadow {
			continue
		}
		v := bucket.Check(s.arrivals(-1, i), s.claim(l))
		if v.Outcome != bucket.Pass {
			fail("%s: %v\n%+v", l.Name, v, s.plan)
		}
	}
}

// arrivals returns the calls of one key, with the cost that each has for one shared limit. key -1 stands for all keys,
// and limit -1 for a cost of 1. It leaves out calls that cost nothing in the end.
func (s *scene) arrivals(key, limit int) (a []bucket.Arrival) {
	for _, c := range s.calls {
		x := bucket.Arrival{At: c.at, End: c.end, Cost: 1}
		if limit >= 0 && s.rules.Shared[limit].InFlight == 0 {
			x.Cost = c.costs[limit]
		}
		if (key < 0 || c.key == key) && x.Cost > 0 {
			a = append(a, x)
		}
	}
	return a
}

// claim returns the expectation that weir promises for a limit under the rules' headroom and jitter. Slots are whole
// microseconds, which blurs a burst as 1 µs more of jitter would.
func (s *scene) claim(l bucket.Limit) bucket.Expectation {
	left := 100 - s.rules.Headroom
	if l.Rate != nil {
		r := *l.Rate
		if r.Counted() == bucket.ByWindow {
			r.Count = max(r.Burst, r.Count*left/100)
		}
		l.Rate = &r
	}
	if l.Quota != nil {
		q := *l.Quota
		q.Count = max(1, q.Count*left/100)
		l.Quota = &q
	}
	if l.InFlight > 0 {
		l.InFlight = max(1, l.InFlight*left/100)
	}
	return bucket.Expectation{Limit: l, Jitter: s.rules.Jitter + time.Microsecond}
}

// afterOverages checks every slot of every rate against all that was granted, or became known, before the slot. An
// overage counts when the store hears of it: it may exceed the limit, and later slots wait for it.
func (s *scene) afterOverages(fail func(string, ...any)) {
	for i, l := range s.rules.Shared {
		if l.Rate == nil {
			continue
		}
		interval := s.rules.Interval(*l.Rate)
		each := float64(interval.P) / float64(interval.Q)
		taken := make([]func(tat float64) float64, s.given)
		for _, c := range s.calls {
			taken[c.number] = func(tat float64) float64 {
				at, cost := float64(c.At-Start), c.grant.costs[i]
				if early := tat + float64(cost-s.rules.Burst(*l.Rate))*each - at; early > 1 {
					fail("%s: slot %d of %d units comes %.0f µs too early\n%+v", l.Name, c.number, cost, early, s.plan)
				}
				return max(tat, at) + float64(min(cost, c.costs[i]))*each
			}
		}
		for _, o := range s.over {
			if o.limit == i {
				taken[o.number] = func(tat float64) float64 { return max(tat, float64(o.at-Start)) + float64(o.units)*each }
			}
		}
		tat := 0.0
		for _, take := range taken {
			if take != nil { // the slot was used
				tat = take(tat)
			}
		}
	}
}

// neverIdle checks that at least 95 % of what the limits allow was used, because jobs were always waiting. For rates
// that is the tightest rate over the whole time, for quotas the count of every whole period.
func (s *scene) neverIdle(fail func(string, ...any)) {
	if len(s.calls) >= most || len(s.calls) == 0 {
		return // cut short: the last key to ask may not have had its turn
	}
	length := s.length - s.horizon
	allowed := float64(s.keys) * float64(length.Microseconds()) * perMicro(s.rules, s.rules.Key.Rate)
	for i, l := range s.rules.Shared {
		switch {
		case l.Shadow:
		case l.Rate != nil:
			allowed = min(allowed, float64(length.Microseconds())*perMicro(s.rules, *l.Rate)/unitsOf(s.rules, *l.Rate, s.costs[i]))
		case l.Quota != nil:
			allowed = min(allowed, s.quotaCalls(*l.Quota, s.costs[i], allowed/float64(length)))
		}
	}
	if got := float64(len(s.calls)); got < 0.95*allowed-float64(s.want*s.keys)-2 {
		fail("%g calls of %.1f allowed in %s\n%+v", got, allowed, s.length, s.plan)
	}
}

// quotaCalls returns how many calls a quota lets pass at least, counted in whole periods, if pace calls per nanosecond
// come.
func (s *scene) quotaCalls(q bucket.Quota, cost int64, pace float64) float64 {
	count := float64(max(1, q.Count*(100-s.rules.Headroom)/100) / cost)
	per := q.Per + s.rules.Jitter
	if q.Window == bucket.Calendar {
		per = time.Hour
	}
	usable := per - 2*s.rules.Jitter
	whole := float64(s.length / per)
	if q.Window == bucket.Calendar && whole < 1 {
		return min(count, pace*float64(s.length-2*s.rules.Jitter))
	}
	return whole * min(count, pace*float64(usable))
}

// perMicro returns the rate in units per microsecond that a store must reach, by the formula and not by Rules.Interval.
func perMicro(r bucket.Rules, rate bucket.Rate) float64 {
	window := float64((rate.Per + r.Jitter).Microseconds())
	left := float64(100-r.Headroom) / 100
	n := rate.Count * (100 - r.Headroom) / 100
	switch {
	case rate.Counted() == bucket.ByTokens:
		return tokensPerMicro(r, rate)
	case n >= rate.Burst:
		return float64(n+1-rate.Burst) / window
	default:
		return left / window
	}
}

// tokensPerMicro is perMicro for a token bucket. It returns at most the rate at which tokens come in, and leaves room
// for late calls.
func tokensPerMicro(r bucket.Rules, rate bucket.Rate) float64 {
	left, each, late := float64(100-r.Headroom)/100, float64(rate.Per.Microseconds())/float64(rate.Count), lateTokens(r, rate)
	if spare := float64(rate.Burst) - usedTokens(r, rate); spare < late {
		return left * (spare + 1) / (each + each*late)
	}
	return left / each
}

// lateTokens returns how many tokens come in while a call may be late.
func lateTokens(r bucket.Rules, rate bucket.Rate) float64 {
	each, jitter := float64(rate.Per.Microseconds())/float64(rate.Count), float64(r.Jitter.Microseconds())
	if each < 1000 {
		jitter++
	}
	return jitter / each
}

// usedTokens returns how many tokens of a bucket weir uses.
func usedTokens(r bucket.Rules, rate bucket.Rate) float64 {
	used, late := math.Floor(float64(rate.Burst*(100-r.Headroom))/100), lateTokens(r, rate)
	if late > 0.05 {
		used = min(used, float64(rate.Burst)-math.Ceil(late))
	}
	return max(1, used)
}

// unitsOf returns how many units each of several calls in a row takes from a rate. A call that costs more than the used
// part of a token bucket also waits for the difference.
func unitsOf(r bucket.Rules, rate bucket.Rate, cost int64) float64 {
	if rate.Counted() == bucket.ByWindow {
		return float64(cost)
	}
	return float64(cost) + max(0, float64(cost)-usedTokens(r, rate))
}
