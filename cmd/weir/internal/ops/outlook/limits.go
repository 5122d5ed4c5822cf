package outlook

import (
	"math"
	"slices"
	"strconv"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/ops/whatif"
	"weir/dispatcher/ledger"
)

// LimitUse is how much of a limit that keys share the busiest whole day took.
type LimitUse struct {
	API     string  `json:"api,omitempty"` // absent for a limit of an account
	Limit   string  `json:"limit"`
	Shadow  bool    `json:"shadow,omitempty"` // it only counts, and holds no call
	Day     string  `json:"busiest_day"`
	Used    string  `json:"used"`    // by the recorded calls of the jobs that came on that day; money for a budget
	Allowed string  `json:"allowed"` // on a day: of a quota or a budget with another period, its part
	Percent float64 `json:"percent"`
	// InDays is when the growth uses up the limit every day; absent if that is not within a year, or if no clear growth is
	// known.
	InDays *int `json:"in_days,omitempty"`
}

// limitUses returns how much the busiest whole day took of each rate, quota and budget that keys share. It returns nil
// if there is no whole day.
func (r *Recorded) limitUses(g *Growth) (uses []LimitUse) {
	of := map[string]int{} // the place of an account's limit
	var sums [][]int64     // of each use, by whole days
	var rules []bucket.Rules
	var limits []*bucket.Limit
	whole := r.whole(r.days())
	if len(whole) == 0 {
		return nil
	}
	for _, p := range r.Pasts {
		c := whatif.CandidateOf(p.API)
		days := p.trace.Days(mostDays)
		for i := range c.Rules.Shared {
			l := &c.Rules.Shared[i]
			if l.Kind() == bucket.KindInFlight {
				continue
			}
			place, known := of[l.Name]
			if !known || l.Account == "" {
				place = len(uses)
				uses = append(uses, LimitUse{API: p.API.Name, Limit: l.Name, Shadow: l.Shadow})
				sums, rules, limits = append(sums, make([]int64, len(whole))), append(rules, c.Rules), append(limits, l)
			}
			if l.Account != "" {
				of[l.Name], uses[place].API = place, ""
			}
			for k, d := range whole {
				sums[place][k] += unitsOn(days, d.Begin, l, &c, p.trace.Limits())
			}
		}
	}
	for i := range uses {
		uses[i].conclude(whole, sums[i], rules[i], limits[i], g)
	}
	return uses
}

// unitsOn returns how many units of a limit the recorded calls took, of the jobs that came on the day that begins at
// begin.
func unitsOn(days []whatif.Day, begin bucket.Micros, l *bucket.Limit, c *whatif.Candidate, columns []string) int64 {
	i := slices.IndexFunc(days, func(d whatif.Day) bool { return d.Begin == begin })
	if i < 0 {
		return 0
	}
	if column := slices.Index(columns, l.Name); column >= 0 {
		return days[i].Takes[column]
	}
	if l.Budget != nil {
		return c.Price * int64(days[i].Calls)
	}
	return max(1, l.Cost.Usual()) * int64(days[i].Calls)
}

// conclude finds the busiest day and fills in its use.
func (u *LimitUse) conclude(whole []whatif.Day, units []int64, rules bucket.Rules, l *bucket.Limit, g *Growth) {
	busiest := 0
	for i, n := range units {
		if n > units[busiest] {
			busiest = i
		}
	}
	used, allowed := units[busiest], aDay(rules, l)
	u.Day = whole[busiest].Begin.Time().Format(time.DateOnly)
	u.Used, u.Allowed = strconv.FormatInt(used, 10), strconv.FormatInt(int64(allowed), 10)
	if l.Budget != nil {
		u.Used, u.Allowed = ledger.Money(used), ledger.Money(int64(allowed))
	}
	u.Percent = math.Round(float64(used)/allowed*1000) / 10
	if used > 0 {
		u.InDays = g.until(allowed / float64(used))
	}
}

// aDay returns how many units a limit lets pass on a day, on average over its periods.
func aDay(rules bucket.Rules, l *bucket.Limit) float64 {
	rules = rules.By(l)
	const day = 24 * time.Hour
	if l.Rate != nil {
		return max(1, rules.Interval(*l.Rate).PerSecond()*day.Seconds())
	}
	q := l.Quota
	if l.Budget != nil {
		q = &l.Budget.Quota
	}
	length := q.Length()
	if q.Window == bucket.Calendar && q.Unit == bucket.Month {
		length = 30 * day
	}
	return max(1, float64(rules.Lowered(q.Count))*float64(day)/float64(length))
}
