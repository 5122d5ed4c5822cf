package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/grammar"
)

func TestDrains(t *testing.T) {
	monthly := bucket.Interval{P: int64(31 * grammar.Day / time.Microsecond), Q: 1}
	for _, c := range []struct {
		interval bucket.Interval
		burst    int64
		want     bool
	}{
		{bucket.Interval{P: 100_000, Q: 1}, mostBurst, true},
		{bucket.Interval{P: 1, Q: 1 << 20}, mostBurst, true},
		{monthly, 1177, true}, // 31 d × 1177 = 36,487 d, a century has 36,500
		{monthly, 1178, false},
		{bucket.Interval{P: 1 << 62, Q: 3}, mostBurst, false},
	} {
		if got := drains(c.interval, c.burst); got != c.want {
			t.Errorf("%+v with burst %d: drains is %v", c.interval, c.burst, got)
		}
	}
}

// TestLeft checks that only a rate and a quota may name the headers that say what is left of them.
func TestLeft(t *testing.T) {
	const api = "apis:\n  sms:\n    url: https://a\n    price: 0.1\n    bucket: {rate: 1/s, capacity: 1}\n    retry: {hold: api}\n    limits: [{name: all, %s}]\n"
	for _, c := range []struct{ limit, left, until, refused, warned string }{
		{"rate: 20/s, left: header:X-Left, left_until: header:X-Reset", "X-Left", "X-Reset", "", ""},
		{"quota: 20/day, left: \"header: X-Left\"", "X-Left", "", "", ""},
		{"quota: 20/3h, window: sliding, left: header:x-left", "x-left", "", "", ""},
		{"rate: 20/s, shadow: true, left: header:X-Left", "X-Left", "", "", "limits[0].left: has no effect while the limit only watches: remove shadow: true, or left"},
		{"rate: 20/s, left: json:/left", "", "", "limits[0].left: \"json:/left\" is no header of an answer: write header:NAME", ""},
		{"rate: 20/s, left: 5", "", "", "limits[0].left: \"5\" is no header of an answer", ""},
		{"rate: 20/s, left: X-Left", "", "", "limits[0].left: \"X-Left\" is no header of an answer", ""},
		{"rate: 20/s, left: \"header:X Left\"", "", "", "limits[0].left: \"header:X Left\" is no header of an answer", ""},
		{"rate: 20/s, left_until: header:X-Reset", "", "", "limits[0].left_until: says until when, and nothing says how much is left: write left: header:NAME too", ""},
		{"rate: 20/s, left: header:X-Left, left_until: 6m0s", "", "", "limits[0].left_until: \"6m0s\" is no header of an answer", ""},
		{"in_flight: 5, left: header:X-Left", "", "", "limits[0].left: means nothing to in_flight: an answer comes when its call has ended: remove it", ""},
		{"budget: 1.00/day, left: header:X-Left", "", "", "limits[0].left: means nothing to a budget: no vendor says how much money is left of it: remove it", ""},
	} {
		parsed, err := Parse(fmt.Appendf(nil, api, c.limit), Options{})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want %q", c.limit, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.limit, err)
			continue
		}
		l := parsed.APIs[0].Rules.Shared[0]
		if l.Left.Header != c.left || l.LeftUntil.Header != c.until {
			t.Errorf("%s: reads %q and %q", c.limit, l.Left.Header, l.LeftUntil.Header)
		}
		if warned := fmt.Sprint(parsed.Warnings); (c.warned == "") != (len(parsed.Warnings) == 0) || !strings.Contains(warned, c.warned) {
			t.Errorf("%s: warns %s", c.limit, warned)
		}
	}
}

// TestLimitsOfOneReplica checks where limits of one replica go, and which limits cannot be of one replica.
func TestLimitsOfOneReplica(t *testing.T) {
	parse := func(limits string) (*Config, error) {
		return Parse(fmt.Appendf(nil, "apis: {pay: {url: 'https://a', idempotency: {header: K}, price: 1, bucket: {rate: 1/s, capacity: 9}, limits: [%s]}}", limits), Options{Name: "w"})
	}
	c, err := parse("{name: all, rate: 100/s}, {name: each, rate: 10/s, per: replica}, {name: few, in_flight: 5, per: replica}, {in_flight: 9, per: api}")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range c.APIs[0].Rules.Shared {
		got = append(got, l.Name)
	}
	for _, l := range c.APIs[0].Rules.Replica {
		got = append(got, "replica:"+l.Name)
	}
	if all := strings.Join(got, " "); all != "all in_flight replica:each replica:few" {
		t.Errorf("limits: %s", all)
	}
	for limit, want := range map[string]string{
		"{quota: 5/day, per: replica}":                                 "a quota counts over all replicas",
		"{budget: 5/day, per: replica}":                                "a budget counts over all replicas",
		"{rate: 10/s, per: replica, cost: header:X}":                   "means nothing to a limit of one replica",
		"{rate: 10/s, per: replica, shadow: true}":                     "means nothing to a limit of one replica",
		"{rate: 10/s, per: host}":                                      "per",
		"{name: a, in_flight: 2}, {name: a, rate: 10/s, per: replica}": "a second limit is called",
	} {
		if _, err := parse(limit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", limit, err)
		}
	}
	account := "accounts: {acme: {limits: [{rate: 10/s, per: replica}]}}\napis: {pay: {url: 'https://a', account: acme, idempotency: {header: K}, bucket: {rate: 1/s, capacity: 9}}}"
	if _, err := Parse([]byte(account), Options{Name: "w"}); err == nil || !strings.Contains(err.Error(), "per") {
		t.Errorf("of an account: %v", err)
	}
	lone, _ := parse("{name: each, rate: 10/s, per: replica}")
	both, _ := parse("{name: each, rate: 10/s}")
	if changes := lone.Diff(both); !slices.Contains(changes, Change{"apis.pay.limits.each.per", "replica", "api"}) {
		t.Errorf("the difference is %v", changes)
	}
}

// rateIn parses a file with one api. rate has fields of its bucket, and key has fields of the override for the key k.
func rateIn(t *testing.T, rate, key string) (bucket.Rate, *Config, error) {
	t.Helper()
	text := "apis: {sms: {url: http://127.0.0.1:9, bucket: {capacity: 10, " + rate + "}, keys: {k: {" + key + "}}}}"
	c, err := Parse([]byte(text), Options{})
	if err != nil {
		return bucket.Rate{}, nil, err
	}
	return c.APIs[0].Rules.For("k").Rate, c, nil
}

// TestCounts checks how burst and counts combine, in a bucket and in the override for a key.
func TestCounts(t *testing.T) {
	second := func(count, burst int64, counts bucket.Counting) bucket.Rate {
		return bucket.Rate{Count: count, Per: time.Second, Burst: burst, Counts: counts}
	}
	for _, c := range []struct {
		rate, key string
		want      bucket.Rate
		refused   string // a part of the refusal
	}{
		{"rate: 10/s, burst: 8", "capacity: 1", second(10, 8, ""), ""},
		{"rate: 10/s, burst: 10, counts: window", "capacity: 1", second(10, 10, ""), ""},
		{"rate: 10/s, burst: 8, counts: token_bucket", "capacity: 1", second(10, 8, bucket.ByTokens), ""},
		{"rate: 2/s, burst: 40, counts: token_bucket", "capacity: 1", second(2, 40, bucket.ByTokens), ""},
		{"rate: 2/s, burst: 40, counts: token_bucket", "rate: 1/s", second(1, 40, bucket.ByTokens), ""},
		{"rate: 10/s", "burst: 40, counts: token_bucket", second(10, 40, bucket.ByTokens), ""},
		{"rate: 10/s, burst: 4, counts: token_bucket", "counts: window", second(10, 4, ""), ""},
		{"rate: 2/s, burst: 40", "capacity: 1", bucket.Rate{}, "bucket.burst: a burst of 40 is more than 2/s may see in any period of 1s: write counts: token_bucket"},
		{"rate: 2/s, burst: 40, counts: window", "capacity: 1", bucket.Rate{}, "write counts: token_bucket"},
		{"rate: 10/s, burst: 8", "rate: 5/s", bucket.Rate{}, "keys.k.rate: a burst of 8 is more than 5/s"},
		{"rate: 10/s, counts: buckets", "capacity: 1", bucket.Rate{}, "token_bucket or window"},
	} {
		got, _, err := rateIn(t, c.rate, c.key)
		if c.refused == "" && (err != nil || got != c.want) {
			t.Errorf("%s; %s: %+v, %v", c.rate, c.key, got, err)
		}
		if c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s; %s: %+v, refused with %v", c.rate, c.key, got, err)
		}
	}
}

// TestWarningsOfPace checks the warning of a burst that leaves little of a rate. It must name the field that restores
// the rate.
func TestWarningsOfPace(t *testing.T) {
	for rate, want := range map[string]string{
		"rate: 10/s, burst: 8":                          "write counts: token_bucket",
		"rate: 10/s, burst: 8, counts: token_bucket":    "",
		"rate: 1000/s, burst: 1, counts: token_bucket":  "write the burst that the api publishes",
		"rate: 1000/s, burst: 50, counts: token_bucket": "",
	} {
		_, c, err := rateIn(t, rate, "capacity: 1")
		if err != nil {
			t.Fatal(err)
		}
		if (want == "") != (len(c.Warnings) == 0) || want != "" && !strings.Contains(c.Warnings[0].String(), want) {
			t.Errorf("%s: %v", rate, c.Warnings)
		}
	}
}

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

// TestTooManyIDs checks the warning if more jobs may end within dedupe than weir remembers ids of.
func TestTooManyIDs(t *testing.T) {
	for _, tt := range []struct {
		dedupe, rate, shared string
		warns                bool
	}{
		{"10m", "1000/s", "", false},
		{"10m", "10000/s", "", true},
		{"7d", "3/s", "", false},
		{"7d", "10/s", "", true},
		{"7d", "3/s", "limits: [{name: all, rate: 20/s}]", false},
		{"7d", "1/s", "limits: [{name: all, rate: 100/s}]", true},
	} {
		text := fmt.Sprintf("apis:\n  pay:\n    url: https://api.example.com\n    bucket: {rate: %s, capacity: 10}\n    %s\ndedupe: %s\n", tt.rate, tt.shared, tt.dedupe)
		c, err := Parse([]byte(text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if (len(c.Warnings) > 0) != tt.warns {
			t.Errorf("%+v: %v", tt, c.Warnings)
		}
	}
}
