package limits

import (
	"time"

	"weir/bucket"
)

// Use says how much this process now uses of a rate, or of a limit of calls in flight.
type Use struct {
	Limit string
	Used  int64         // units of calls that started within Per; of in_flight, calls that run
	Count int64         // how much Used may be
	Per   time.Duration // 0 for in_flight
	Share int64         // the part of the limit that this site enforces, in percent; 0: all of it
	// Replica says that the limit counts only this process's calls. Any other limit is shared.
	Replica bool
}

// Use returns how much of the limit this process uses. calls is how many calls run now. counted is false for quotas and
// budgets, because only the store counts them.
func (l *Limit) Use(r *bucket.Rules, now bucket.Micros, calls int) (u Use, counted bool) {
	u.Limit, u.Share = l.Name, l.Share
	switch l.Kind() {
	case bucket.KindRate:
		u.Used, u.Per = l.started.sum(l.Rate, now), usedPer(l.Rate)
		u.Count = mostUsed(l.Rate, r.By(l.Limit).Lowered(l.Rate.Count))
	case bucket.KindInFlight:
		u.Used, u.Count = int64(calls), l.most
	case bucket.KindQuota, bucket.KindBudget:
		return u, false
	}
	return u, true
}

// usedSlots is the number of parts into which a rate's period is divided, so that the calls that started in each part
// can be counted. The sum is off by at most one part.
const usedSlots = 10

// leastUsedPer is the shortest period for which a rate's use is reported. The use within ten milliseconds would say
// little.
const leastUsedPer = time.Second

// rateUse counts the units of the calls that started in each part of the last period.
type rateUse struct {
	units [usedSlots]int64
	part  bucket.Micros // the number of the newest part since 1970
}

func usedPer(r *bucket.Rate) time.Duration { return max(r.Per, leastUsedPer) }

// mostUsed returns how many units of a rate may be used within usedPer. count is how many it lets pass within its own
// period.
func mostUsed(r *bucket.Rate, count int64) int64 {
	return int64(float64(count) * float64(usedPer(r)) / float64(r.Per))
}

// sum returns how many units were used within the last usedPer.
func (u *rateUse) sum(r *bucket.Rate, now bucket.Micros) (used int64) {
	u.at(r, now)
	for _, units := range u.units {
		used += units
	}
	return used
}

// correct adds units, which may be negative, for a call that began at began. If that time is before the last period,
// correct drops negative units, and counts positive ones as used now.
func (u *rateUse) correct(r *bucket.Rate, began, now bucket.Micros, units int64) {
	place := u.at(r, now)
	part := began / partOf(r)
	switch {
	case part > u.part-usedSlots:
		place = int(part % usedSlots)
	case units < 0:
		return
	}
	u.units[place] += units
}

// partOf returns the length of a part.
func partOf(r *bucket.Rate) bucket.Micros {
	return max(1, bucket.Micros((usedPer(r) / usedSlots).Microseconds()))
}

// at clears the parts that are older than the last period, and returns the index of the present part.
func (u *rateUse) at(r *bucket.Rate, now bucket.Micros) (place int) {
	part := now / partOf(r)
	for n := 0; u.part < part && n < usedSlots; n++ {
		u.part++
		u.units[u.part%usedSlots] = 0
	}
	u.part = max(u.part, part)
	return int(part % usedSlots)
}
