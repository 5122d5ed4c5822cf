package bucket

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestCalendarPeriods(t *testing.T) {
	const layout = "2006-01-02T15:04:05"
	for _, c := range []struct {
		name, zone string
		unit       Unit
		at         string // UTC
		start, end string // UTC
	}{
		{"a plain day, Pacific, not UTC", "America/Los_Angeles", Day, "2026-01-02T03:00:00", "2026-01-01T08:00:00", "2026-01-02T08:00:00"},
		{"a day of 23 hours", "America/Los_Angeles", Day, "2026-03-08T20:00:00", "2026-03-08T08:00:00", "2026-03-09T07:00:00"},
		{"a day of 25 hours", "America/Los_Angeles", Day, "2026-11-01T20:00:00", "2026-11-01T07:00:00", "2026-11-02T08:00:00"},
		{"a midnight that is skipped", "America/Sao_Paulo", Day, "2018-11-04T12:00:00", "2018-11-04T03:00:00", "2018-11-05T02:00:00"},
		{"a midnight shown twice", "America/St_Johns", Day, "2010-11-07T03:00:00", "2010-11-07T02:30:00", "2010-11-08T03:30:00"},
		{"a midnight shown twice, its first minute", "America/St_Johns", Day, "2010-11-07T02:30:30", "2010-11-07T02:30:00", "2010-11-08T03:30:00"},
		{"an hour shown twice", "America/New_York", Hour, "2026-11-01T06:30:00", "2026-11-01T05:00:00", "2026-11-01T07:00:00"},
		{"an hour before a skipped one", "America/New_York", Hour, "2026-03-08T06:30:00", "2026-03-08T06:00:00", "2026-03-08T07:00:00"},
		{"an hour after a skipped one", "America/New_York", Hour, "2026-03-08T07:30:00", "2026-03-08T07:00:00", "2026-03-08T08:00:00"},
		{"half an hour shown twice", "Australia/Lord_Howe", Hour, "2026-04-04T15:10:00", "2026-04-04T14:00:00", "2026-04-04T15:30:00"},
		{"an hour of a zone with 45 minutes", "Asia/Kathmandu", Hour, "2026-05-05T00:20:00", "2026-05-05T00:15:00", "2026-05-05T01:15:00"},
		{"a week begins on Monday", "Europe/Berlin", Week, "2026-01-04T12:00:00", "2025-12-28T23:00:00", "2026-01-04T23:00:00"},
		{"a month is not 30 days", "UTC", Month, "2026-02-28T23:59:59", "2026-02-01T00:00:00", "2026-03-01T00:00:00"},
		{"a leap February", "UTC", Month, "2028-02-29T12:00:00", "2028-02-01T00:00:00", "2028-03-01T00:00:00"},
		{"a December", "Asia/Tokyo", Month, "2026-12-31T14:59:59", "2026-11-30T15:00:00", "2026-12-31T15:00:00"},
		{"a day that a zone skipped", "Pacific/Apia", Day, "2011-12-30T12:00:00", "2011-12-30T10:00:00", "2011-12-31T10:00:00"},
	} {
		parse := func(s string) Micros {
			v, err := time.Parse(layout, s)
			if err != nil {
				t.Fatal(err)
			}
			return MicrosOf(v)
		}
		q := Quota{Window: Calendar, Unit: c.unit, Zone: zone(t, c.zone)}
		got := q.spanAt(parse(c.at))
		if want := (span{parse(c.start), parse(c.end)}); got != want {
			t.Errorf("%s: [%s, %s), want [%s, %s)", c.name,
				got.start.Time().Format(layout), got.end.Time().Format(layout), c.start, c.end)
		}
	}
}

// TestPeriodsFollowEachOther checks that the periods around every change of clocks have no gap and no overlap, and that
// every time in a period gets the same period.
func TestPeriodsFollowEachOther(t *testing.T) {
	zones := []string{
		"UTC", "America/Los_Angeles", "America/St_Johns", "America/Sao_Paulo", "Australia/Lord_Howe",
		"Africa/Casablanca", "Asia/Beirut", "Pacific/Apia", "Asia/Kathmandu", "Antarctica/Troll", "Africa/Cairo",
	}
	rapid.Check(t, func(t *rapid.T) {
		z, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		q := Quota{Window: Calendar, Unit: rapid.SampledFrom([]Unit{Hour, Day, Week, Month}).Draw(t, "unit"), Zone: z}
		at := Micros(rapid.Int64Range(1_000_000_000_000_000, 2_000_000_000_000_000).Draw(t, "at"))
		if _, change := at.Time().In(z).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change") {
			at = MicrosOf(change) + Micros(rapid.Int64Range(-7_200_000_000, 7_200_000_000).Draw(t, "off"))
		}
		p := q.spanAt(at)
		for range 5 {
			if !p.holds(at) {
				t.Fatalf("[%s, %s) does not hold %s", p.start.Time(), p.end.Time(), at.Time())
			}
			inside := p.start + Micros(rapid.Int64Range(0, int64(p.end-p.start)-1).Draw(t, "inside"))
			if again := q.spanAt(inside); again != p {
				t.Fatalf("%s is told [%s, %s), %s [%s, %s)", at.Time(), p.start.Time(), p.end.Time(),
					inside.Time(), again.start.Time(), again.end.Time())
			}
			at = p.end
			next := q.spanAt(at)
			if next.start != p.end {
				t.Fatalf("after [%s, %s) comes [%s, %s)", p.start.Time(), p.end.Time(), next.start.Time(), next.end.Time())
			}
			p = next
		}
	})
}

// TestQuotasOverClockChanges takes all slots that a store grants over days on which clocks change, a day is skipped, or
// a month ends. It counts by the dates that clocks in the zone show: on every date the whole quota is used, and never
// more.
func TestQuotasOverClockChanges(t *testing.T) {
	const count = 5
	for _, c := range []struct {
		zone, layout string
		unit         Unit
		from         time.Time // UTC
		days         int
	}{
		{"Australia/Lord_Howe", time.DateOnly, Day, time.Date(2026, 4, 3, 0, 0, 0, 0, time.UTC), 4}, // 24.5 hours
		{"Australia/Lord_Howe", time.DateOnly, Day, time.Date(2026, 10, 2, 0, 0, 0, 0, time.UTC), 4},
		{"America/Los_Angeles", time.DateOnly, Day, time.Date(2026, 3, 6, 0, 0, 0, 0, time.UTC), 4},
		{"America/Los_Angeles", time.DateOnly, Day, time.Date(2026, 10, 30, 0, 0, 0, 0, time.UTC), 4},
		{"America/Sao_Paulo", time.DateOnly, Day, time.Date(2018, 11, 2, 0, 0, 0, 0, time.UTC), 4}, // no midnight
		{"Pacific/Apia", time.DateOnly, Day, time.Date(2011, 12, 28, 0, 0, 0, 0, time.UTC), 4},     // no 30 December
		{"Europe/Berlin", time.DateOnly, Day, time.Date(2028, 2, 27, 0, 0, 0, 0, time.UTC), 4},     // a leap day
		{"Europe/Berlin", "2006-01", Month, time.Date(2028, 1, 30, 0, 0, 0, 0, time.UTC), 62},
		{"Pacific/Apia", "2006-01", Month, time.Date(2011, 11, 29, 0, 0, 0, 0, time.UTC), 63},
		{"Australia/Lord_Howe", "2006-01", Month, time.Date(2026, 3, 30, 0, 0, 0, 0, time.UTC), 33},
	} {
		z := zone(t, c.zone)
		var now Micros
		quota := Quota{Count: count, Window: Calendar, Unit: c.unit, Zone: z}
		for _, limit := range []Limit{{Name: "quota", Quota: &quota}, {Name: "budget", Budget: &Budget{Quota: quota, OnExhausted: Hold}}} {
			now = MicrosOf(c.from)
			m, err := NewMemory(Rules{Key: fast, Shared: []Limit{limit}}, func() Micros { return now })
			if err != nil {
				t.Fatal(err)
			}
			used := map[string]int{}
			for ; now < MicrosOf(c.from.AddDate(0, 0, c.days)); now = now.Add(5 * time.Minute) {
				answers, err := m.Reserve(t.Context(), []Ask{{Key: "k", Limits: fast, Want: 1}})
				if err != nil {
					t.Fatal(err)
				}
				for _, g := range answers[0].Grants {
					used[g.At.Time().In(z).Format(c.layout)]++
				}
			}
			for date, n := range used {
				if n != count {
					t.Errorf("%s, a %s of %s: %d calls on %s, not %d", c.zone, limit.Name, c.unit, n, date, count)
				}
			}
			if len(used) < 2 {
				t.Errorf("%s: calls on %v only", c.zone, used)
			}
		}
	}
}
