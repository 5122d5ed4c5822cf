package grammar

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/config/problem"
)

const (
	// Day is 24 hours, whatever a zone's clocks do.
	Day  = 24 * time.Hour
	week = 7 * Day

	durationFix = "write 30s, 10m, 24h or 30d"
)

// durationUnit returns the length of the unit with this name, or 0 if there is no such unit. Months are missing because
// their length is not fixed.
func durationUnit(name string) time.Duration {
	switch name {
	case "ms":
		return time.Millisecond
	case "s", "second", "seconds":
		return time.Second
	case "m", "min", "minute", "minutes":
		return time.Minute
	case "h", "hour", "hours":
		return time.Hour
	case "d", "day", "days":
		return Day
	case "w", "week", "weeks":
		return week
	default:
		return 0
	}
}

// ParseDuration reads a duration of 0 to 292 years: 30s, 1.5s, 1h30m, 30d, 2w. The units are ms, s, m (or min), h, d, w
// and the words second, minute, hour, day, week. A day is 24 hours. Only 0 needs no unit.
func ParseDuration(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	if strings.HasPrefix(text, "-") {
		return 0, problem.Refuse(durationFix, "%s is negative", problem.Quote(text))
	}
	var total time.Duration
	for rest := text; rest != "" || text == ""; {
		number, tail := leadingNumber(rest)
		n, ok := ParseDecimal(number)
		if !ok {
			return 0, problem.Refuse(durationFix, "%s is not a duration", problem.Quote(text))
		}
		end := strings.IndexAny(tail, "0123456789.")
		if end < 0 {
			end = len(tail)
		}
		if end == 0 {
			return 0, problem.Refuse(durationFix, "%s has no unit", problem.Quote(text))
		}
		name := strings.TrimSpace(tail[:end])
		unit := durationUnit(name)
		if unit == 0 {
			return 0, unknownUnit(text, name)
		}
		part, ok := n.Times(int64(unit))
		if !ok || total+time.Duration(part) < total {
			return 0, problem.Refuse(durationFix, "%s is too long or too fine", problem.Quote(text))
		}
		total += time.Duration(part)
		rest = tail[end:]
	}
	return total, nil
}

func unknownUnit(text, unit string) error {
	if strings.HasPrefix(unit, "mo") || unit == "M" || strings.HasPrefix(unit, "y") {
		return problem.Refuse("write it in days, as in 30d", "%s: a month or a year has no fixed length", problem.Quote(text))
	}
	return problem.Refuse("the units are ms, s, m, h, d and w", "%s has the unknown unit %s", problem.Quote(text),
		problem.Quote(unit))
}

// FormatDuration writes d in the longest unit that divides it: 90s, 3h, 30d. ParseDuration reads the text back.
func FormatDuration(d time.Duration) string {
	units := []struct {
		length time.Duration
		name   string
	}{{Day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}}
	if d == 0 {
		return "0s"
	}
	for _, u := range units {
		if d%u.length == 0 {
			return strconv.FormatInt(int64(d/u.length), 10) + u.name
		}
	}
	fraction := strings.TrimRight(fmt.Sprintf("%06d", d%time.Millisecond), "0")
	return fmt.Sprintf("%d.%sms", d/time.Millisecond, fraction)
}

// DurationIn returns a parser that is ParseDuration, but refuses durations below least or above most.
func DurationIn(least, most time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := ParseDuration(text)
		if err != nil {
			return 0, err
		}
		if d < least || d > most {
			return 0, problem.Refuse(fmt.Sprintf("write %s to %s", FormatDuration(least), FormatDuration(most)),
				"%s is out of range", problem.Quote(text))
		}
		return d, nil
	}
}
