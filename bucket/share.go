package bucket

import (
	"fmt"
	"time"
)

// Shares of a limit.
//
// Several sites may call one vendor's account without a common store. Each site then enforces its share of each limit
// of the account, alone. Counts are rounded down, so the limits of the sites never add up to more than the whole. A
// rate in tokens has no count in a period, so its share is exact unless its numbers would become too large.
//
// If a site's share is lowered, the calls that the site made before still count in the account's windows. Another site
// may be raised when Over reports no limit, and PassedAfter has passed since the share came into force.

// WholeShare is the share of an account that no other site uses, in percent.
const WholeShare = 100

// Part returns a limit with the given share of it, in percent. It returns an error if nothing would be left.
func (l Limit) Part(percent int64) (Limit, error) {
	if percent == WholeShare {
		return l, nil
	}
	if percent < 1 || percent > WholeShare {
		return l, fmt.Errorf("a share of %d%% is not within 1%% to %d%%", percent, WholeShare)
	}
	l.Share = percent
	switch l.Kind() {
	case KindRate:
		rate := l.Rate.part(percent)
		if l.Rate = &rate; rate.Count < 1 || rate.Burst < 1 {
			return l, fmt.Errorf("%d%% of the rate leaves no call", percent)
		}
	case KindQuota:
		quota := *l.Quota
		if l.Quota, quota.Count = &quota, partOf(quota.Count, percent); quota.Count < 1 {
			return l, fmt.Errorf("%d%% of the quota leaves no unit", percent)
		}
	case KindBudget:
		budget := *l.Budget
		if l.Budget, budget.Count = &budget, partOf(budget.Count, percent); budget.Count < 1 {
			return l, fmt.Errorf("%d%% of the budget leaves no money", percent)
		}
	case KindInFlight:
		if l.InFlight = partOf(l.InFlight, percent); l.InFlight < 1 {
			return l, fmt.Errorf("%d%% of in_flight leaves no call", percent)
		}
	}
	return l, nil
}

// part returns the share of a rate. A field of the result is 0 if nothing is left of it.
func (r Rate) part(percent int64) Rate {
	r.Counts = r.Counted()
	burst := partOf(r.Burst, percent)
	if r.Counts == ByWindow {
		// The burst bounds no count of the vendor's: a window with more calls than one lets the first through.
		r.Count = partOf(r.Count, percent)
		r.Burst = max(1, burst)
		return r
	}
	count, per := r.Count*percent, r.Per*WholeShare
	g := gcd(count, int64(per))
	count, per = count/g, per/time.Duration(g)
	if count > maxCount || per > maxPer {
		count, per = partOf(r.Count, percent), r.Per
	}
	r.Count, r.Per, r.Burst = count, per, burst
	return r
}

// partOf returns a share of n, rounded down.
func partOf(n, percent int64) int64 { return n/WholeShare*percent + n%WholeShare*percent/WholeShare }

// PassedAfter returns how long a call may count in the account's rates after a change of the site's share is in force.
// whole are the account's limits without shares, which count by these rules. ahead is how far ahead slots are given.
func (r Rules) PassedAfter(whole []Limit, ahead time.Duration) time.Duration {
	late := ahead + 2*r.Jitter + time.Second
	longest := time.Duration(0)
	for i := range whole {
		l := &whole[i]
		if l.Kind() != KindRate || l.Shadow {
			continue
		}
		passes := l.Rate.Per
		if l.Rate.Counted() == ByTokens { // the time in which an empty bucket fills
			passes = time.Duration(min(float64(maxPer), float64(l.Rate.Per)/float64(l.Rate.Count)*float64(l.Rate.Burst)))
		}
		longest = max(longest, passes)
	}
	return longest + late
}

// Gone returns when no call that was made until now can count in the account's limits any more: for a site that makes
// no calls and cannot say what it has used. whole are the account's limits without shares. lasts is how long a call may
// take.
func (r Rules) Gone(whole []Limit, now Micros, ahead, lasts time.Duration) Micros {
	gone := now.Add(max(r.PassedAfter(whole, ahead), lasts+ahead+r.Jitter))
	for i := range whole {
		q := whole[i].quota()
		switch {
		case q == nil || whole[i].Shadow:
		case q.Window == Sliding:
			gone = max(gone, now.Add(q.Per+ahead+2*r.Jitter+time.Second))
		default:
			gone = max(gone, q.spanAt(now.Add(ahead+2*r.Jitter)).end.Add(ahead+2*r.Jitter+time.Second))
		}
	}
	return gone
}

// Over returns the names of the limits of an account that have more in use than they allow, and so would wait before
// they grant anything. levels are those of a Store, running the calls that count as in flight, both read at now, the
// time of calendars. Unknown use counts as more. So does a period that began within the last jitter: by the vendor's
// clock the period before may still last.
func (r Rules) Over(levels []Level, running int64, now Micros) (over []string) {
	for i := range r.Shared {
		l := &r.Shared[i]
		if l.Account == "" || l.Shadow {
			continue
		}
		if l.InFlight > 0 && running > r.By(l).Lowered(l.InFlight) || l.quota() != nil && r.levelOver(levels, l, now) {
			over = append(over, l.Name)
		}
	}
	return over
}

// levelOver reports whether a quota or a budget has more in use than it allows, or has no level.
func (r Rules) levelOver(levels []Level, l *Limit, now Micros) bool {
	for i := range levels {
		if of := &levels[i]; of.Limit.Name == l.Name {
			early := of.Start < of.End && now < of.Start.Add(2*r.By(l).Jitter)
			return of.Unknown || of.Used > of.Count || early
		}
	}
	return true
}

// Running returns how many calls may be under way that count in the limits of the api's account, or in its own limits
// if it has none.
func (m *Memory) Running() int64 {
	defer m.enter()()
	e := &m.engine
	now := e.follow(m.now())
	e.expire(now)
	if e.pool != nil {
		e = e.pool
	}
	return e.permits.all(now)
}
