package config

import (
	"strings"
	"testing"
	"time"

	"weir/bucket"
)

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
