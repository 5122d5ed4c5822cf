package grammar

import (
	"strings"
	"time"
	_ "time/tzdata" // zones must be known on machines without a zone database

	"weir/bucket"
	"weir/cmd/weir/internal/config/problem"
)

// MostQuota bounds a quota's count. Multiplied by the percents of headroom, it still stays below 2^53.
const MostQuota = 1_000_000_000_000

// ParseZone reads an IANA time zone name. It refuses Local.
func ParseZone(text string) (*time.Location, error) {
	zone, err := time.LoadLocation(text)
	if err != nil || text == "" || text == "Local" {
		return nil,
			problem.Refuse("write an IANA name such as America/Los_Angeles, or UTC", "%s is no time zone", problem.Quote(text))
	}
	return zone, nil
}

// ParseQuota reads amount/period. hour, day and week set Unit and Per, and month sets only Unit. Any other period sets
// only Per.
func ParseQuota(text string, count func(string) (int64, error)) (bucket.Quota, error) {
	const fix = "write 50000/day or 300/3h"
	amount, period, found := strings.Cut(text, "/")
	amount, period = strings.TrimSpace(amount), strings.TrimSpace(period)
	if !found || period == "" {
		return bucket.Quota{}, problem.Refuse(fix, "%s has no period", problem.Quote(text))
	}
	n, err := count(amount)
	if err != nil {
		return bucket.Quota{}, err
	}
	q := bucket.Quota{Count: n}
	switch period {
	case "hour":
		q.Unit, q.Per = bucket.Hour, time.Hour
	case "day":
		q.Unit, q.Per = bucket.Day, Day
	case "week":
		q.Unit, q.Per = bucket.Week, week
	case "month":
		q.Unit = bucket.Month
	default:
		if strings.HasPrefix(period, "month") {
			return bucket.Quota{},
				problem.Refuse("write "+amount+"/month", "%s has the unknown period %s", problem.Quote(text), problem.Quote(period))
		}
		if q.Per, err = parsePeriod(text, period); err != nil {
			return bucket.Quota{}, err
		}
		if q.Per < time.Millisecond || q.Per > LongestPeriod || q.Per%time.Microsecond != 0 {
			return bucket.Quota{}, problem.Refuse("write 1ms to 366d", "%s has a period out of range", problem.Quote(text))
		}
	}
	return q, nil
}

// CalendarUnit returns the calendar unit of this length, if there is one.
func CalendarUnit(per time.Duration) (bucket.Unit, bool) {
	switch per {
	case time.Hour:
		return bucket.Hour, true
	case Day:
		return bucket.Day, true
	case week:
		return bucket.Week, true
	default:
		return "", false
	}
}

// QuotaCount reads a quota's count.
func QuotaCount(text string) (int64, error) { return WholeIn(1, MostQuota)(text) }

// BudgetCount reads a budget's amount in millionths.
func BudgetCount(text string) (int64, error) {
	m, err := ParseMoney(text)
	if err == nil && m == 0 {
		err = problem.Refuse("write an amount above 0, or pause the api", "a budget of 0 never lets a call through")
	}
	return int64(m), err
}
