package config

import (
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
)

// quota returns the type of values that are written as amount/period, such as 50000/day. count parses the amount, and
// amount writes it.
func quota(words string, count func(string) (int64, error), amount func(int64) string) field.Type[bucket.Quota] {
	return field.Type[bucket.Quota]{
		Parse: func(text string) (bucket.Quota, error) { return grammar.ParseQuota(text, count) },
		Show: func(q bucket.Quota) string {
			if q.Unit != "" {
				return amount(q.Count) + "/" + string(q.Unit)
			}
			return amount(q.Count) + "/" + grammar.FormatPeriod(q.Per)
		},
		Words: words,
		Schema: field.Pattern(`(` + field.NumberPattern + `) */ *(month|(` + field.UnitPattern + `)|` +
			field.DurationPattern + `)`),
	}
}

func zone() field.Type[*time.Location] {
	return field.Type[*time.Location]{
		Parse:  grammar.ParseZone,
		Show:   (*time.Location).String,
		Words:  "an IANA zone, as in `America/Los_Angeles`",
		Schema: field.AnyText,
	}
}

// layQuota sets the quota's window and zone: whether its periods slide, are fixed, or follow the calendar. name is the
// quota's field in the file.
func layQuota(f field.Fields, name string, q *bucket.Quota, window *bucket.Window, zone *time.Location) {
	if !f.Fine(name, "window", "tz") {
		return
	}
	if err := layWindow(q, *window); err != nil {
		f.Place("window").FailWith(err)
		return
	}
	if *window = q.Window; q.Window == bucket.Calendar {
		q.Zone = zone
		return
	}
	f.Ignored("to a "+string(q.Window)+" window: it follows no calendar", "tz")
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
		unit, ok := grammar.CalendarUnit(q.Per)
		if !ok {
			return problem.Refuse("write hour, day, week or month, or window: fixed", "a calendar has no period of %s",
				grammar.FormatDuration(q.Per))
		}
		q.Unit = unit
	case window != bucket.Calendar && q.Unit == bucket.Month:
		return problem.Refuse("write days, as in 1000/30d", "a month has no fixed length for a %s window", window)
	}
	q.Window = window
	if window == bucket.Calendar {
		q.Per = 0
	} else {
		q.Unit = ""
	}
	return nil
}
