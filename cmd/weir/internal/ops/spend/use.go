package spend

import (
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/limitstate"
)

// Use shows the last day in parts of a quarter of an hour.
const (
	UseSpan = 24 * time.Hour
	usePart = 15 * time.Minute
)

// Use is how the limits of an api were used in the last day, by the ledger. It survives restarts with the ledger.
type Use struct {
	API    string      `json:"api"`
	From   time.Time   `json:"from"` // of the first part
	PartMS int64       `json:"part_ms"`
	Limits []*LimitUse `json:"limits"`
	// Begins is from when on the ledger is complete, or the sums are, if a period that the parts show began before.
	Begins time.Time `json:"ledger_begins,omitzero"`
	// Reading says that older records are still being read: Begins will soon be earlier.
	Reading bool `json:"reading,omitempty"`
	// Behind is how many of the newest records were not read in time: what their calls took is not included yet.
	Behind uint64 `json:"behind,omitempty"`
	// Unreadable counts records that cannot be read: what their calls took is not included.
	Unreadable int `json:"unreadable,omitempty"`
}

// LimitUse is the use of one limit shared by all keys.
type LimitUse struct {
	Limit string          `json:"limit"`
	Unit  limitstate.Unit `json:"unit"`
	// Allowance is what the limit allows in its period, or, of a rate, in a part.
	Allowance int64 `json:"allowance"`
	// Period says that the limit counts over a period of its own. Then Level holds what had been used of it at the end of
	// each part; PeriodMS is how long a sliding one is. Without it, as of a rate, Level is absent.
	Period   bool    `json:"period,omitempty"`
	PeriodMS int64   `json:"period_ms,omitempty"`
	Used     []int64 `json:"used"` // in each part, the oldest first
	Level    []int64 `json:"level,omitempty"`

	limit *bucket.Limit
	quota *bucket.Quota // for a quota or a budget
	// taken is what calls took from the limit, by the beginning of the part in which they count. It covers the periods
	// that the parts show. So the periods bound the memory, and not the number of calls.
	taken map[bucket.Micros]int64
}

func newUse(api *config.API, now time.Time) *Use {
	u := &Use{API: api.Name, From: now.UTC().Truncate(usePart).Add(usePart - UseSpan), PartMS: usePart.Milliseconds(), Limits: []*LimitUse{}}
	rules := api.CallRules()
	for i := range rules.Shared {
		l := &rules.Shared[i]
		use := &LimitUse{Limit: l.Name, Unit: limitstate.InUnits, Used: make([]int64, UseSpan/usePart), limit: l}
		switch {
		case l.Rate != nil:
			use.Allowance = int64(float64(l.Rate.Count) * float64(usePart) / float64(l.Rate.Per))
		case l.Quota != nil:
			use.quota = l.Quota
		case l.Budget != nil:
			use.quota, use.Unit = &l.Budget.Quota, limitstate.InMoney
		default:
			continue
		}
		if q := use.quota; q != nil {
			use.Allowance, use.Period, use.Level, use.taken = q.Count, true, make([]int64, UseSpan/usePart), map[bucket.Micros]int64{}
			if q.Window == bucket.Sliding {
				use.PeriodMS = q.Per.Milliseconds()
			}
		}
		u.Limits = append(u.Limits, use)
	}
	return u
}

// begin returns the start of the earliest period that u shows. Calls from then on are counted.
func (u *Use) begin() time.Time {
	begin := u.From
	for _, l := range u.Limits {
		if from := l.began(u.From); from.Before(begin) {
			begin = from
		}
	}
	return begin
}

// began returns the beginning of the period that contains at.
func (l *LimitUse) began(at time.Time) time.Time {
	switch {
	case l.quota == nil:
		return at
	case l.quota.Window == bucket.Sliding:
		return at.Add(-l.quota.Per)
	}
	start, _ := l.quota.Period(bucket.MicrosOf(at))
	return start.Time()
}

// add adds what calls took from a limit. The calls count in the minute or quarter of an hour that begins at at.
func (u *Use) add(limit string, at time.Time, of taken) {
	part := int(at.Sub(u.From) / usePart)
	if part >= int(UseSpan/usePart) {
		return // counted by a clock that is ahead
	}
	for _, l := range u.Limits {
		if l.Limit != limit {
			continue
		}
		units := of.units
		if l.limit.Budget != nil {
			units = of.priced
		}
		if !at.Before(u.From) {
			l.Used[part] += units
		}
		if begin := l.began(u.From).Truncate(usePart); l.quota != nil && !at.Before(begin) {
			l.taken[bucket.MicrosOf(at.Truncate(usePart))] += units
		}
	}
}

// conclude computes the level at the end of each part.
func (u *Use) conclude() {
	for _, l := range u.Limits {
		for i := range l.Level {
			last := u.From.Add(time.Duration(i) * usePart) // the beginning of the part, which stands for its calls
			from := bucket.MicrosOf(l.began(last.Add(usePart - time.Microsecond)).Truncate(usePart))
			for at, units := range l.taken {
				if at >= from && at <= bucket.MicrosOf(last) {
					l.Level[i] += units
				}
			}
		}
	}
}
