package dispatcher

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const date = "Sun, 01 Mar 2026 12:00:30 GMT"
	for value, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, "007": 7 * time.Second, " 2 ": 2 * time.Second, "\t3": 3 * time.Second,
		"0.5": 500 * time.Millisecond, "0.0000001": time.Microsecond, "1e1": 10 * time.Second,
		"86400": maxRetryAfter, "86401": maxRetryAfter, "1e308": maxRetryAfter, "1e999": maxRetryAfter,
		strings.Repeat("9", 400): maxRetryAfter,
		date:                     30 * time.Second, "Sunday, 01-Mar-26 12:00:30 GMT": 30 * time.Second,
		"Sun Mar  1 12:00:30 2026":      30 * time.Second,
		"Sun, 01 Mar 2026 11:00:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": maxRetryAfter,
		"Mon, 01 Jan 0001 00:00:00 GMT": 0,
	} {
		if got, ok := retryAfter(http.Header{"Retry-After": {value}}, now); got != want || !ok {
			t.Errorf("Retry-After %.40q: %v %v, want %v", value, got, ok, want)
		}
	}
	for _, value := range []string{"", " ", "-1", "-0.1", "-1e999", "NaN", "-Inf", "1s", "1,5", "soon", "12:00", "0x", "2026-03-01T12:00:30Z"} {
		if got, ok := retryAfter(http.Header{"Retry-After": {value}}, now); got != 0 || ok {
			t.Errorf("Retry-After %q: %v %v, want nothing", value, got, ok)
		}
	}
	if got, ok := retryAfter(http.Header{}, now); got != 0 || ok {
		t.Errorf("no Retry-After: %v %v", got, ok)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"1", "-1", "NaN", "inf", "1e999", "Sun, 01 Mar 2026 12:00:30 GMT", "\x00", "1_0"} {
		f.Add(seed, int64(1_800_000_000))
	}
	f.Fuzz(func(t *testing.T, value string, now int64) { checkRetryAfter(t, value, time.Unix(now%(1<<40), 0)) })
}

func TestRetryAfterProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 1<<36).Draw(t, "now"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns"))
		in := rapid.IntRange(-1e6, 1e6).Draw(t, "in")
		seconds := rapid.Float64().Draw(t, "seconds")
		for _, value := range []string{
			rapid.String().Draw(t, "text"), time.Duration(in).String(), now.Add(time.Duration(in) * time.Second).UTC().Format(http.TimeFormat),
			rapid.SampledFrom([]string{"+", " ", "0", ""}).Draw(t, "prefix") + strings.TrimSuffix(time.Duration(seconds).String(), "s"),
		} {
			checkRetryAfter(t, value, now)
		}
	})
}

// checkRetryAfter holds whatever an api may write against the bounds.
func checkRetryAfter(t interface{ Errorf(string, ...any) }, value string, now time.Time) {
	d, ok := retryAfter(http.Header{"Retry-After": {value}}, now)
	if d < 0 || d > maxRetryAfter || !ok && d != 0 {
		t.Errorf("Retry-After %q at %v: %v, %v", value, now, d, ok)
	}
	if at, err := http.ParseTime(strings.TrimSpace(value)); err == nil && d < maxRetryAfter && now.Add(d).Before(at) {
		t.Errorf("Retry-After %q at %v: %v ends before it", value, now, d)
	}
}

func TestBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(24*time.Hour)).Draw(t, "min"))
		most := time.Duration(rapid.Int64Range(int64(least), int64(24*time.Hour)).Draw(t, "max"))
		n := rapid.IntRange(1, 1_000_000).Draw(t, "n")
		full := least
		for range min(n, 60) - 1 {
			full = min(2*full, most)
		}
		if d := backoff(least, most, n); d < full/2 || d > full {
			t.Fatalf("backoff %v to %v after %d failures: %v, not from %v to %v", least, most, n, d, full/2, full)
		}
	})
}

// TestBackoffSpreads keeps jobs that failed together from coming back together.
func TestBackoffSpreads(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[backoff(time.Second, time.Minute, 3)] = true
	}
	if len(seen) < 90 {
		t.Errorf("100 backoffs are only %d different ones", len(seen))
	}
}
