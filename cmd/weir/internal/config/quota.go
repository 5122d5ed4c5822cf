package config

import (
	"strings"
	"time"
	_ "time/tzdata" // zones must be known on machines without a zone database

	"weir/bucket"
)

// mostQuota bounds a quota's count. Multiplied by the percents of headroom, it still stays below 2^53.
const mostQuota = 1_000_000_000_000

// parseZone reads an IANA time zone name. It refuses Local.
func parseZone(text string) (*time.Location, error) {
	zone, err := time.LoadLocation(text)
	if err != nil || text == "" || text == "Local" {
		return nil, refuse("write an IANA name such as America/Los_Angeles, or UTC", "%s is no time zone", quote(text))
	}
	return zone, nil
}

// quota returns the type of values that are written as amount/period, such as 50000/day. count parses the amount, and
// amount writes it.
func quota(words string, count func(string) (int64, error), amount func(int64) string) of[bucket.Quota] {
	return of[bucket.Quota]{
		func(text string) (bucket.Quota, error) { return parseQuota(text, count) },
		func(q bucket.Quota) string {
			if q.Unit != "" {
				return amount(q.Count) + "/" + string(q.Unit)
			}
			return amount(q.Count) + "/" + formatPeriod(q.Per)
		},
		words, pattern(`(` + numberPattern + `) */ *(month|(` + unitPattern + `)|` + durationPattern + `)`),
	}
}

func zone() of[*time.Location] {
	return of[*time.Location]{parseZone, (*time.Location).String, "an IANA zone, as in `America/Los_Angeles`", anyText}
}

// layQuota sets the quota's window and zone: whether its periods slide, are fixed, or follow the calendar. field is the
// quota's field in the file.
func layQuota(f fields, field string, q *bucket.Quota, window *bucket.Window, zone *time.Location) {
	if !f.fine(field, "window", "tz") {
		return
	}
	if err := layWindow(q, *window); err != nil {
		f.place("window").failWith(err)
		return
	}
	if *window = q.Window; q.Window == bucket.Calendar {
		q.Zone = zone
		return
	}
	f.ignored("to a "+string(q.Window)+" window: it follows no calendar", "tz")
}

// parseQuota reads amount/period. hour, day and week set Unit and Per, and month sets only Unit. Any other period sets
// only Per.
func parseQuota(text string, count func(string) (int64, error)) (bucket.Quota, error) {
	const fix = "write 50000/day or 300/3h"
	amount, period, found := strings.Cut(text, "/")
	amount, period = strings.TrimSpace(amount), strings.TrimSpace(period)
	if !found || period == "" {
		return bucket.Quota{}, refuse(fix, "%s has no period", quote(text))
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
		q.Unit, q.Per = bucket.Day, day
	case "week":
		q.Unit, q.Per = bucket.Week, week
	case "month":
		q.Unit = bucket.Month
	default:
		if strings.HasPrefix(period, "month") {
			return bucket.Quota{}, refuse("write "+amount+"/month", "%s has the unknown period %s", quote(text), quote(period))
		}
		if q.Per, err = parsePeriod(text, period); err != nil {
			return bucket.Quota{}, err
		}
		if q.Per < time.Millisecond || q.Per > longestPeriod || q.Per%time.Microsecond != 0 {
			return bucket.Quota{}, refuse("write 1ms to 366d", "%s has a period out of range", quote(text))
		}
	}
	return q, nil
}

// layWindow sets the quota's window. If the file names none, a calendar word means the calendar, and any other period
// slides. Sliding is the strictest reading, so the api's own window cannot allow less.
func layWindow(q *bucket.Quota, window bucket.Window) error {
	switch {
	case window == "" && q.Unit != "":
		window = bucket.Calendar
	case window == "":
		window = bucket.Sliding
	case window == bucket.Calendar && q.Unit == "":
		unit, ok := calendarUnit(q.Per)
		if !ok {
			return refuse("write hour, day, week or month, or window: fixed", "a calendar has no period of %s", FormatDuration(q.Per))
		}
		q.Unit = unit
	case window != bucket.Calendar && q.Unit == bucket.Month:
		return refuse("write days, as in 1000/30d", "a month has no fixed length for a %s window", window)
	}
	q.Window = window
	if window == bucket.Calendar {
		q.Per = 0
	} else {
		q.Unit = ""
	}
	return nil
}

// calendarUnit returns the calendar unit of this length, if there is one.
func calendarUnit(per time.Duration) (bucket.Unit, bool) {
	switch per {
	case time.Hour:
		return bucket.Hour, true
	case day:
		return bucket.Day, true
	case week:
		return bucket.Week, true
	default:
		return "", false
	}
}

// quotaCount reads a quota's count.
func quotaCount(text string) (int64, error) { return wholeIn(1, mostQuota)(text) }

// budgetCount reads a budget's amount in millionths.
func budgetCount(text string) (int64, error) {
	m, err := ParseMoney(text)
	if err == nil && m == 0 {
		err = refuse("write an amount above 0, or pause the api", "a budget of 0 never lets a call through")
	}
	return int64(m), err
}
