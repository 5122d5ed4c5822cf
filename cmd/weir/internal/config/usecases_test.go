package config

import (
	"strings"
	"testing"
	"time"

	"weir/bucket"
)

// TestUseCases checks that each limit that people describe in a few words is one line of configuration.
func TestUseCases(t *testing.T) {
	quota := func(n int64, per time.Duration) bucket.Limit {
		return bucket.Limit{Quota: &bucket.Quota{Count: n, Window: bucket.Sliding, Per: per}}
	}
	calendar := func(n int64, unit bucket.Unit) bucket.Limit {
		return bucket.Limit{Quota: &bucket.Quota{Count: n, Window: bucket.Calendar, Unit: unit}}
	}
	rate := func(n int64, per time.Duration) bucket.Limit {
		return bucket.Limit{Rate: &bucket.Rate{Count: n, Per: per, Burst: 1}}
	}
	for _, c := range []struct {
		name, line string
		want       bucket.Limit
	}{
		{"two posts a second", "rate: 2/s", rate(2, time.Second)},
		{"ten accounts a day", "quota: 10/day, tz: UTC", calendar(10, bucket.Day)},
		{"five rewards a week", "quota: 5/week, tz: UTC", calendar(5, bucket.Week)},
		{"300 in three hours", "quota: 300/3h, window: sliding", quota(300, 3*time.Hour)},
		{"300 a minute", "rate: 300/60s", rate(300, time.Minute)},
		{"500 a minute", "rate: 500/min", rate(500, time.Minute)},
		{"15 a second", "rate: 15/s", rate(15, time.Second)},
		{"one in five seconds", "rate: 0.2/s", rate(1, 5*time.Second)},
		{"500 an hour", "quota: 500/1h, window: sliding", quota(500, time.Hour)},
		{"rolling 24 hours", "quota: 100000/24h, window: sliding", quota(100_000, 24*time.Hour)},
	} {
		text := strings.ReplaceAll("apis:\n  pay:\n    url: http://127.0.0.1:1\n    bucket: {rate: 1/min, capacity: 5}\n    limits: [{name: it, LINE}]\n", "LINE", c.line)
		parsed, err := Parse([]byte(text), Options{Name: "weir.yaml"})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := parsed.APIs[0].Rules.Shared[0]
		switch {
		case c.want.Rate != nil:
			if got.Rate == nil || *got.Rate != *c.want.Rate {
				t.Errorf("%s: %+v", c.name, got.Rate)
			}
		case got.Quota == nil:
			t.Errorf("%s is not a quota", c.name)
		default:
			q := *got.Quota
			if q.Zone = nil; q != *c.want.Quota {
				t.Errorf("%s: %+v", c.name, q)
			}
		}
	}
}
