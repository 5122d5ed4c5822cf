package bucket

import (
	"fmt"
	"time"
)

// Shares of a limit.
//
// Several sites may call one vendor's account without a common store. Each site then enforces its share of each limit
// of the account, alone. Part rounds counts down, so the limits of all sites never add up to more than the whole limit.
// It does not round the pace of a token bucket, unless the numbers would become too large.
//
// If a site's share is lowered, the calls that the site made before still count in the account's windows. So raise
// another site only when Over returns no limit, and when the time that PassedAfter returns has passed since the lower
// share came into force.

// WholeShare is the share, in percent, of a site that has the account for itself.
const WholeShare = 100

// Part returns the given percentage of a limit. It fails if nothing would be left.
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

// part returns the given percentage of a rate. A field of the result is 0 if nothing is left of that field.
func (r Rate) part(percent int64) Rate {
	r.Counts = r.Counted()
	burst := partOf(r.Burst, percent)
	if r.Counts == ByWindow {
		// The vendor counts calls by window, and no bursts. So a burst of one call is within its limit, even if the
		// share of the burst is less.
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

// partOf returns the given percentage of n, rounded down.
func partOf(n, percent int64) int64 { return n/WholeShare*percent + n%WholeShare*percent/WholeShare }

// PassedAfter returns how long to wait after a change of the site's share has come into force. After that time no
// earlier call counts in the account's rates. whole are the account's limits, not the site's shares of them. ahead is
// how long before its time a slot may be granted.
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

// Gone returns the time from which no call that was made until now counts in the account's limits. It is for a site
// that makes no more calls and cannot say what it has used. whole and ahead are as in PassedAfter. lasts is how long a
// call may take.
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

// Over returns the names of the account's limits, apart from rates, of which more is in use than they allow. levels are
// the levels of a Store, and running is how many calls are in flight. Both were read at now, by the clock that
// calendars follow.
//
// A limit whose use is unknown is over. So is one whose calendar period began less than twice the jitter ago: by the
// vendor's clock the former period may still last.
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

// levelOver is Over for one quota or budget. A limit that has no level is over.
func (r Rules) levelOver(levels []Level, l *Limit, now Micros) bool {
	for i := range levels {
		if of := &levels[i]; of.Limit.Name == l.Name {
			early := of.Start < of.End && now < of.Start.Add(2*r.By(l).Jitter)
			return of.Unknown || of.Used > of.Count || early
		}
	}
	return true
}

// Running returns how many calls may be under way that count in the limits of the api's account, or in the api's own
// limits if it has no account.
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
