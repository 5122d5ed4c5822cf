package machine

import (
	"testing"
	"time"
)

func TestNoon(t *testing.T) {
	for hour := range 24 {
		now := time.Date(2026, 11, 30, hour, 59, 59, 999_999_999, time.UTC)
		zone, err := time.LoadLocation(noonAt(now))
		if err != nil {
			t.Fatal(err)
		}
		if got := now.In(zone).Hour(); got != 12 {
			t.Errorf("at %s it is %d o'clock in %s", now, got, zone)
		}
	}
}

func TestLasting(t *testing.T) {
	for _, least := range []time.Duration{time.Hour, 24 * time.Hour, 28 * 24 * time.Hour, 30 * 24 * time.Hour} {
		for _, off := range []time.Duration{-time.Nanosecond, 0, longestTest, -longestTest, -longestTest + 1} {
			now := time.Unix(0, 0).Add(1_000_000 * time.Hour / least * least).Add(off)
			per := lastingAt(now, least)
			if left := per - now.Sub(time.Unix(0, 0))%per; left < longestTest || per < least || per > 2*least {
				t.Errorf("%s: windows of %s, in place of %s, have %s left", now, per, least, left)
			}
		}
	}
}
