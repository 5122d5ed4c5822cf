package bucket

import (
	"time"
	_ "time/tzdata" // zones must not depend on the machine's installation
)

// span is one period of a quota, [start, end).
type span struct {
	start, end Micros
}

// Period returns the quota's calendar or fixed period that holds at: [start, end).
func (q Quota) Period(at Micros) (start, end Micros) {
	p := q.spanAt(at)
	return p.start, p.end
}

// Over returns when a call no longer counts: the end of the last period that may hold it. The call left at the time
// left and arrived up to jitter later.
func (q Quota) Over(left Micros, jitter time.Duration) Micros {
	arrived := left.Add(jitter)
	if q.Window == Sliding {
		return arrived.Add(q.Per)
	}
	_, end := q.Period(arrived)
	return end
}

// moved returns the span shifted by the given time. The zero span, which is no period, stays zero.
func (s span) moved(by Micros) span {
	if s == (span{}) {
		return s
	}
	return span{s.start + by, s.end + by}
}

func (s span) holds(at Micros) bool { return s.start <= at && at < s.end }

// spanAt returns the period that holds at. Spans of one quota follow each other without gap or overlap.
//
// Wall clocks in the quota's zone decide where calendar periods lie. A period begins at the first instant at which the
// clocks show its beginning. If a change of the clocks skips that time, the period begins at the first later time that
// they show. So a day has 23, 24 or 25 hours. A day whose midnight does not exist begins at one o'clock. The hour that
// is shown twice when clocks go back is one period of two hours, not two periods: that allows less.
func (q Quota) spanAt(at Micros) span {
	if q.Window == Fixed {
		per := Micros(ceilMicros(q.Per))
		start := at - at%per
		return span{start, start + per}
	}
	label := q.label(at.Time().In(q.Zone))
	next := q.following(label)
	s := span{firstShown(q.Zone, label), firstShown(q.Zone, next)}
	for at >= s.end { // a label that clocks going back showed a second time
		next = q.following(next)
		s = span{s.end, firstShown(q.Zone, next)}
	}
	return s
}

// label returns the wall-clock time at which the period of wall-clock time t begins. The result's zone is always UTC,
// which means "no zone" here.
func (q Quota) label(t time.Time) time.Time {
	y, m, d := t.Date()
	switch q.Unit {
	case Hour:
		return time.Date(y, m, d, t.Hour(), 0, 0, 0, time.UTC)
	case Week:
		return time.Date(y, m, d-(int(t.Weekday())+6)%7, 0, 0, 0, 0, time.UTC)
	case Month:
		return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	default:
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	}
}

// following returns the label of the next period.
func (q Quota) following(label time.Time) time.Time {
	switch q.Unit {
	case Hour:
		return label.Add(time.Hour)
	case Week:
		return label.AddDate(0, 0, 7)
	case Month:
		return label.AddDate(0, 1, 0)
	default:
		return label.AddDate(0, 0, 1)
	}
}

// firstShown returns the first instant at which clocks in zone show label or later. It cannot use time.Date, which does
// not promise which instant it returns for a time shown twice or never.
func firstShown(zone *time.Location, label time.Time) Micros {
	t := label.Add(-26 * time.Hour).In(zone) // no zone is that far from UTC: here clocks show less than label
	for {
		_, offset := t.Zone()
		start, end := t.ZoneBounds()
		shown := label.Add(-time.Duration(offset) * time.Second)
		if shown.Before(start) {
			shown = start // clocks skipped the label when this offset began
		}
		if end.IsZero() || shown.Before(end) {
			return MicrosOf(shown)
		}
		t = end
	}
}

// Length returns how long a period of the quota is. For a calendar quota it returns the shortest period: 28 days for a
// month.
func (q Quota) Length() time.Duration {
	if q.Window != Calendar {
		return q.Per
	}
	const day = 24 * time.Hour
	switch q.Unit {
	case Hour:
		return time.Hour
	case Week:
		return 7 * day
	case Month:
		return 28 * day
	default:
		return day
	}
}
