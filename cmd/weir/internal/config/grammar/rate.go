package grammar

import (
	"math"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/problem"
)

const (
	// RateFix says how to write a rate.
	RateFix = "write 10/s, 300/3h or 1000/24h"

	// slowestInterval is the longest time between two calls of a rate. Rarer calls need a quota.
	slowestInterval = 31 * Day
	// LongestPeriod bounds a rate's and a window's period.
	LongestPeriod = 366 * Day
)

// ParseRate reads count/duration: 10/s, 0.5/s, 300/3h, 90000/min, 1/1.5s. Count and Per become whole numbers. Per stays
// as written unless the count has a fraction: 0.5/s is 1 per 2s, 2.5/s is 5 per 2s, but 300/3h is 300 per 3h. Rates
// range from one call in 31 days to 1,000,000/s. Burst is 1.
func ParseRate(text string) (bucket.Rate, error) {
	count, period, err := splitRate(text)
	if err != nil {
		return bucket.Rate{}, err
	}
	n, ok := ParseDecimal(count)
	if !ok {
		return bucket.Rate{}, problem.Refuse(RateFix, "%s is not a count per duration", problem.Quote(text))
	}
	if n.digits == 0 {
		return bucket.Rate{},
			problem.Refuse("write at least 1/31d, or pause the api", "%s never lets a call through", problem.Quote(text))
	}
	per, err := parsePeriod(text, period)
	if err != nil {
		return bucket.Rate{}, err
	}
	divisor := greatestCommonDivisor(n.digits, powerOfTen(n.scale))
	stretch := powerOfTen(n.scale) / divisor
	r := bucket.Rate{Count: n.digits / divisor, Burst: 1}
	if int64(per) > math.MaxInt64/stretch || per*time.Duration(stretch) > LongestPeriod {
		return bucket.Rate{}, problem.Refuse("write a whole count per a longer duration, at most 366d",
			"%s has too fine a fraction or too long a period", problem.Quote(text))
	}
	r.Per = per * time.Duration(stretch)
	if r.Per%time.Microsecond != 0 {
		return bucket.Rate{}, problem.Refuse(RateFix, "%s has a period finer than a microsecond", problem.Quote(text))
	}
	if r.Count > int64(r.Per/time.Microsecond) {
		return bucket.Rate{}, problem.Refuse("write at most 1000000/s", "%s is too fast", problem.Quote(text))
	}
	if r.Per/time.Duration(r.Count) > slowestInterval {
		return bucket.Rate{},
			problem.Refuse("write at least 1/31d, or use a quota such as 1/month", "%s is too slow", problem.Quote(text))
	}
	return r, nil
}

// splitRate cuts count/duration in two. Its errors explain a missing half or a minus sign.
func splitRate(text string) (count, period string, err error) {
	count, period, found := strings.Cut(text, "/")
	count, period = strings.TrimSpace(count), strings.TrimSpace(period)
	switch {
	case strings.HasPrefix(count, "-"):
		return "", "", problem.Refuse(RateFix, "%s is negative", problem.Quote(text))
	case !found || period == "":
		if _, ok := ParseDecimal(count); ok {
			return "", "", problem.Refuse(RateFix, "%s has no unit", problem.Quote(text))
		}
		return "", "", problem.Refuse(RateFix, "%s is not a count per duration", problem.Quote(text))
	}
	return count, period, nil
}

// parsePeriod reads the part of text after the slash: a duration above 0, or a unit alone, which means one of it.
func parsePeriod(text, period string) (time.Duration, error) {
	if durationUnit(period) != 0 {
		return durationUnit(period), nil
	}
	if strings.HasPrefix(period, "month") {
		return 0,
			problem.Refuse("write days, as in 1000/30d, or a quota: 1000/month", "%s: a month has no fixed length",
				problem.Quote(text))
	}
	if period[0] < '0' || period[0] > '9' {
		if strings.HasPrefix(period, "-") {
			return 0, problem.Refuse(RateFix, "%s has a negative period", problem.Quote(text))
		}
		if strings.HasPrefix(period, "y") {
			return 0, unknownUnit(text, period)
		}
		return 0,
			problem.Refuse("the periods are s, min, hour, day, week and durations such as 3h or 30d; a quota has month too",
				"%s has the unknown period %s", problem.Quote(text), problem.Quote(period))
	}
	per, err := ParseDuration(period)
	if err != nil {
		return 0, err
	}
	if per == 0 {
		return 0, problem.Refuse(RateFix, "%s has no period", problem.Quote(text))
	}
	return per, nil
}

// FormatRate writes a rate without its burst: 10/s, 1/2s, 300/3h, 1000/day. ParseRate reads the text back.
func FormatRate(r bucket.Rate) string {
	return strconv.FormatInt(r.Count, 10) + "/" + FormatPeriod(r.Per)
}

// FormatPeriod writes the period of a rate or a quota: s, min, h, day, or a duration.
func FormatPeriod(per time.Duration) string {
	switch per {
	case time.Second:
		return "s"
	case time.Minute:
		return "min"
	case time.Hour:
		return "h"
	case Day:
		return "day"
	default:
		return FormatDuration(per)
	}
}
