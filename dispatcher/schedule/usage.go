package schedule

import (
	"time"

	"weir/bucket"
)

// LimitUse is how much of a rate, or of the calls in flight, that all keys share is used here now.
type LimitUse struct {
	Limit string
	Used  int64         // units of calls that started within Per; of in_flight, calls that run
	Count int64         // the most that there may be
	Per   time.Duration // 0 for in_flight
}

// usedSlots is into how many parts the period of a rate is divided to count what started in it. The count is off
// by at most one part.
const usedSlots = 10

// leastUsedPer is the shortest period reported: the use of ten milliseconds informs no reader.
const leastUsedPer = time.Second

// rateUse counts the units of calls that started, by parts of the last period.
type rateUse struct {
	units [usedSlots]int64
	part  bucket.Micros // the number of the newest part since 1970
}

func usedPer(r *bucket.Rate) time.Duration { return max(r.Per, leastUsedPer) }

// at drops the parts that are over, and returns the index of the present one.
func (u *rateUse) at(r *bucket.Rate, now bucket.Micros) (place int) {
	part := now / max(1, bucket.Micros((usedPer(r)/usedSlots).Microseconds()))
	for n := 0; u.part < part && n < usedSlots; n++ {
		u.part++
		u.units[u.part%usedSlots] = 0
	}
	u.part = max(u.part, part)
	return int(part % usedSlots)
}

// usage is what calls use of the shared limits, in the order of the rules.
type usage []rateUse

// count counts a call that starts.
func (u usage) count(shared []bucket.Limit, costs []int64, now bucket.Micros) {
	for i := range min(len(u), len(costs)) {
		if r := shared[i].Rate; r != nil {
			u[i].units[u[i].at(r, now)] += costs[i]
		}
	}
}

// Uses returns how much of the shared rates and calls in flight is used here.
func (v View) Uses() []LimitUse {
	var uses []LimitUse
	for i := range v.s.rules.Shared {
		l := &v.s.rules.Shared[i]
		u := LimitUse{Limit: l.Name}
		switch l.Kind() {
		case bucket.KindRate:
			u.Per = usedPer(l.Rate)
			u.Count = int64(float64(v.s.rules.Lowered(l.Rate.Count)) * float64(u.Per) / float64(l.Rate.Per))
			v.s.uses[i].at(l.Rate, v.now)
			for _, units := range v.s.uses[i].units {
				u.Used += units
			}
		case bucket.KindInFlight:
			u.Used, u.Count = int64(v.s.calls), v.s.rules.Lowered(l.InFlight)
		case bucket.KindQuota, bucket.KindBudget:
			continue // the store counts them: see bucket.Level
		}
		uses = append(uses, u)
	}
	return uses
}
