package lane

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestUnknownUntil checks that a limit counts as used up until its period contains no call that was made before the
// restore.
func TestUnknownUntil(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	// Half past eleven at night in Berlin, before the day of 23 hours.
	at := time.Date(2026, 3, 28, 22, 30, 0, 0, time.UTC)
	day := bucket.Quota{Count: 10, Window: bucket.Calendar, Unit: bucket.Day, Zone: berlin}
	for _, c := range []struct {
		what   string
		limits []bucket.Limit
		want   time.Duration // after at
	}{
		{"none", nil, 0},
		{"calls in flight", []bucket.Limit{{Name: "l", InFlight: 3}}, 0},
		{"a rate", []bucket.Limit{{Name: "l", Rate: &bucket.Rate{Count: 10, Per: time.Minute, Burst: 10}}}, time.Minute + time.Second},
		{"a day", []bucket.Limit{{Name: "l", Quota: &day}}, 30 * time.Minute},
		{"a day of money", []bucket.Limit{{Name: "l", Budget: &bucket.Budget{Quota: day}}}, 30 * time.Minute},
		{"any three hours", []bucket.Limit{{Name: "l", Quota: &bucket.Quota{Count: 1, Window: bucket.Sliding, Per: 3 * time.Hour}}}, 3*time.Hour + time.Second},
		{"three hours from a multiple on", []bucket.Limit{{Name: "l", Quota: &bucket.Quota{Count: 1, Window: bucket.Fixed, Per: 3 * time.Hour}}}, 90 * time.Minute},
		{"the longest", []bucket.Limit{
			{Name: "k", Rate: &bucket.Rate{Count: 1, Per: time.Hour, Burst: 1}}, {Name: "l", Quota: &bucket.Quota{Count: 1, Window: bucket.Calendar, Unit: bucket.Month, Zone: time.UTC}},
		}, 73*time.Hour + 30*time.Minute},
		{"one that only watches", []bucket.Limit{{Name: "l", Quota: &day, Shadow: true}}, 0},
	} {
		r := Restoration{At: at}
		until, limit := r.unknownUntil(&bucket.Rules{Shared: c.limits, Jitter: time.Second}, bucket.MicrosOf(r.At))
		switch {
		case c.want == 0:
			if until != 0 {
				t.Errorf("%s: until %s", c.what, until.Time())
			}
		case limit != "l" || until.Time().Sub(at) < c.want || until.Time().Sub(at) > c.want+c.want/10+time.Second:
			t.Errorf("%s: %s after the restore, for %s", c.what, until.Time().Sub(at), limit)
		}
	}
}
