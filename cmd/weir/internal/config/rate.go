package config

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
)

const (
	rateFix = "write 10/s, 300/3h or 1000/24h"

	// slowestInterval is the longest time between two calls of a rate. Rarer calls need a quota.
	slowestInterval = 31 * day
	// longestPeriod bounds a rate's and a window's period.
	longestPeriod = 366 * day
	// longestDrain bounds burst × interval. Beyond it the time of a reserved slot would not be a valid date.
	longestDrain = 100 * 365 * day
)

// ParseRate reads count/duration: 10/s, 0.5/s, 300/3h, 90000/min, 1/1.5s. Count and Per become whole numbers. Per stays
// as written unless the count has a fraction: 0.5/s is 1 per 2s, 2.5/s is 5 per 2s, but 300/3h is 300 per 3h. Rates
// range from one call in 31 days to 1,000,000/s. Burst is 1.
func ParseRate(text string) (bucket.Rate, error) {
	count, period, err := splitRate(text)
	if err != nil {
		return bucket.Rate{}, err
	}
	n, ok := parseDecimal(count)
	if !ok {
		return bucket.Rate{}, refuse(rateFix, "%s is not a count per duration", quote(text))
	}
	if n.digits == 0 {
		return bucket.Rate{}, refuse("write at least 1/31d, or pause the api", "%s never lets a call through", quote(text))
	}
	per, err := parsePeriod(text, period)
	if err != nil {
		return bucket.Rate{}, err
	}
	divisor := greatestCommonDivisor(n.digits, powerOfTen(n.scale))
	stretch := powerOfTen(n.scale) / divisor
	r := bucket.Rate{Count: n.digits / divisor, Burst: 1}
	if int64(per) > math.MaxInt64/stretch || per*time.Duration(stretch) > longestPeriod {
		return bucket.Rate{}, refuse("write a whole count per a longer duration, at most 366d",
			"%s has too fine a fraction or too long a period", quote(text))
	}
	r.Per = per * time.Duration(stretch)
	if r.Per%time.Microsecond != 0 {
		return bucket.Rate{}, refuse(rateFix, "%s has a period finer than a microsecond", quote(text))
	}
	if r.Count > int64(r.Per/time.Microsecond) {
		return bucket.Rate{}, refuse("write at most 1000000/s", "%s is too fast", quote(text))
	}
	if r.Per/time.Duration(r.Count) > slowestInterval {
		return bucket.Rate{}, refuse("write at least 1/31d, or use a quota such as 1/month", "%s is too slow", quote(text))
	}
	return r, nil
}

// splitRate cuts count/duration in two. Its errors explain a missing half or a minus sign.
func splitRate(text string) (count, period string, err error) {
	count, period, found := strings.Cut(text, "/")
	count, period = strings.TrimSpace(count), strings.TrimSpace(period)
	switch {
	case strings.HasPrefix(count, "-"):
		return "", "", refuse(rateFix, "%s is negative", quote(text))
	case !found || period == "":
		if _, ok := parseDecimal(count); ok {
			return "", "", refuse(rateFix, "%s has no unit", quote(text))
		}
		return "", "", refuse(rateFix, "%s is not a count per duration", quote(text))
	}
	return count, period, nil
}

// parsePeriod reads the part of text after the slash: a duration above 0, or a unit alone, which means one of it.
func parsePeriod(text, period string) (time.Duration, error) {
	if durationUnit(period) != 0 {
		return durationUnit(period), nil
	}
	if strings.HasPrefix(period, "month") {
		return 0, refuse("write days, as in 1000/30d, or a quota: 1000/month", "%s: a month has no fixed length", quote(text))
	}
	if period[0] < '0' || period[0] > '9' {
		if strings.HasPrefix(period, "-") {
			return 0, refuse(rateFix, "%s has a negative period", quote(text))
		}
		if strings.HasPrefix(period, "y") {
			return 0, unknownUnit(text, period)
		}
		return 0, refuse("the periods are s, min, hour, day, week and durations such as 3h or 30d; a quota has month too",
			"%s has the unknown period %s", quote(text), quote(period))
	}
	per, err := ParseDuration(period)
	if err != nil {
		return 0, err
	}
	if per == 0 {
		return 0, refuse(rateFix, "%s has no period", quote(text))
	}
	return per, nil
}

// FormatRate writes a rate without its burst: 10/s, 1/2s, 300/3h, 1000/day. ParseRate reads the text back.
func FormatRate(r bucket.Rate) string {
	return strconv.FormatInt(r.Count, 10) + "/" + formatPeriod(r.Per)
}

func formatPeriod(per time.Duration) string {
	switch per {
	case time.Second:
		return "s"
	case time.Minute:
		return "min"
	case time.Hour:
		return "h"
	case day:
		return "day"
	default:
		return FormatDuration(per)
	}
}

// drains reports whether calls of a full burst end within longestDrain. t is the rate's interval.
func drains(t bucket.Interval, burst int64) bool {
	needs, needsLow := bits.Mul64(uint64(burst), uint64(t.P))
	has, hasLow := bits.Mul64(uint64(t.Q), uint64(longestDrain/time.Microsecond))
	return needs < has || needs == has && needsLow <= hasLow
}
