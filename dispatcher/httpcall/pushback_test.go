package httpcall

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/dispatcher/schedule"

	"pgregory.net/rapid"
)

// noon is when the answers of these tests come.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const noonDate = "Sun, 01 Mar 2026 12:00:00 GMT"

func TestReadWait(t *testing.T) {
	const date = "Sun, 01 Mar 2026 12:00:30 GMT"
	for value, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, "007": 7 * time.Second, " 2 ": 2 * time.Second, "\t3": 3 * time.Second,
		"0.5": 500 * time.Millisecond, "0.0000001": time.Microsecond, "1e1": 10 * time.Second, "58.37": 58370 * time.Millisecond,
		"86400": mostHold, "86401": mostHold, "999999999": mostHold, "1e308": mostHold, "1e999": mostHold,
		strings.Repeat("9", 400): mostHold,
		date:                     30 * time.Second, "Sunday, 01-Mar-26 12:00:30 GMT": 30 * time.Second,
		"Sun Mar  1 12:00:30 2026":      30 * time.Second,
		"Sun, 01 Mar 2026 11:00:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": mostHold,
		"Mon, 01 Jan 0001 00:00:00 GMT": 0,
		"1772366430":                    30 * time.Second, "1772366430.5": 30500 * time.Millisecond, "1772366400": 0, "1000000000": 0,
		"1772366430250": 30250 * time.Millisecond, "1772366430250000": 30250 * time.Millisecond,
		"1772366430000000000": 30 * time.Second, "4102444800": mostHold,
		"6m0s": 6 * time.Minute, "12ms": 12 * time.Millisecond, "1s": time.Second, "1h2m3.5s": time.Hour + 2*time.Minute + 3500*time.Millisecond,
		"200h": mostHold, "2026-03-01T12:00:30Z": 30 * time.Second, "2026-03-01T13:00:30.5+01:00": 30500 * time.Millisecond,
		"2020-01-01T00:00:00Z": 0,
	} {
		if got, ok := readWait(value, noon); got != want || !ok {
			t.Errorf("%.40q: %v %v, want %v", value, got, ok, want)
		}
	}
	for _, value := range []string{
		"", " ", "-1", "-0.1", "-1e999", "NaN", "-Inf", "+Inf", "inf", "+1", "-1s", "1,5", "1 5", "soon", "12:00", "0x", "0x10", "1_0", ".", "e", "1e",
		"2026-03-01", "6m0", "999999999999h",
	} {
		if got, ok := readWait(value, noon); got != 0 || ok {
			t.Errorf("%q: %v %v, want nothing", value, got, ok)
		}
	}
}

// headers are an answer's, one to a line.
func headers(text string) http.Header {
	h := http.Header{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			h.Add(name, strings.TrimSpace(value))
		}
	}
	return h
}

// spellings are what apis are known to say, as they answer in order and as they push back. -1 stands for "nothing is
// left, and it does not say until when".
var spellings = []struct {
	what, header string
	used, asked  time.Duration
}{
	{"nothing", "", 0, 0},
	{"Retry-After is no word of an answer in order", "Retry-After: 5", 0, 5 * time.Second},
	{"Retry-After goes before the reset", "Retry-After: 5\nRateLimit-Remaining: 0\nRateLimit-Reset: 60", 60 * time.Second, 5 * time.Second},
	{"an unreadable Retry-After does not", "Retry-After: soon\nRateLimit-Remaining: 0\nRateLimit-Reset: 60", 60 * time.Second, 60 * time.Second},
	{"the longest of two Retry-After", "Retry-After: 1\nRetry-After: 90\nRetry-After: soon", 0, 90 * time.Second},
	{"Azure", "retry-after-ms: 1250", 0, 1250 * time.Millisecond},
	{"Retry-After by the api's clock", "Retry-After: Sun, 01 Mar 2026 13:00:30 GMT\nDate: Sun, 01 Mar 2026 13:00:00 GMT", 0, 30 * time.Second},

	{"draft", `RateLimit: "default";r=0;t=30`, 30 * time.Second, 30 * time.Second},
	{"draft, some left", `RateLimit: "default";r=1;t=30`, 0, 0},
	{"draft, of 2026", `RateLimit: "default";a=0;w=30;c=1`, 30 * time.Second, 30 * time.Second},
	{"draft, two windows", `RateLimit: "burst";r=0;t=7, "daily";r=0;t=3600`, time.Hour, time.Hour},
	{"draft, one of two", `RateLimit: "burst";r=0;t=7, "daily";r=950;t=3600`, 7 * time.Second, 7 * time.Second},
	{"draft, over two lines", "RateLimit: \"burst\";r=3;t=7\nRateLimit: \"daily\";r=0;t=60", time.Minute, time.Minute},
	{"draft, no time", `RateLimit: "default";r=0`, -1, -1},
	{"draft, partition key", `RateLimit: "a,b;c";r=0;t=9;pk=:cHsdsRa894==:`, 9 * time.Second, 9 * time.Second},
	{"draft, calls at once", "RateLimit-Policy: \"peak\";q=5;qu=\"concurrent-requests\"\nRateLimit: \"peak\";r=0;t=30", 0, 0},
	{"draft, policy alone", `RateLimit-Policy: "burst";q=100;w=60,"daily";q=1000;w=86400`, 0, 0},
	{"draft, seventh", "RateLimit: limit=10, remaining=0, reset=5\nRateLimit-Policy: 10;w=60", 5 * time.Second, 5 * time.Second},
	{"draft, sixth", "RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 0\nRateLimit-Reset: 11", 11 * time.Second, 11 * time.Second},

	{"GitHub", "X-RateLimit-Limit: 5000\nX-RateLimit-Remaining: 0\nX-RateLimit-Used: 5000\nX-RateLimit-Resource: core\nX-RateLimit-Reset: 1772366520", 2 * time.Minute, 2 * time.Minute},
	{"GitHub's second limit", "X-RateLimit-Limit: 5000\nX-RateLimit-Remaining: 4990\nX-RateLimit-Reset: 1772369000", 0, 0},
	{"a reset alone", "X-RateLimit-Reset: 20", 0, 20 * time.Second},
	{"by the api's clock", "X-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset: 1772370030\nDate: Sun, 01 Mar 2026 13:00:00 GMT", 30 * time.Second, 30 * time.Second},
	{"milliseconds", "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430250", 30250 * time.Millisecond, 30250 * time.Millisecond},
	{"milliseconds to go", "X-RateLimit-Remaining: 0\nX-RateLimit-Reset-Ms: 1500", 1500 * time.Millisecond, 1500 * time.Millisecond},
	{"Discord", "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366500.12\nX-RateLimit-Reset-After: 1.337\nX-RateLimit-Bucket: abcd", 1337 * time.Millisecond, 1337 * time.Millisecond},
	{"OpenAI", "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 6m0s\nx-ratelimit-remaining-tokens: 149984\nx-ratelimit-reset-tokens: 12ms", 6 * time.Minute, 6 * time.Minute},
	{"OpenAI's tokens", "x-ratelimit-remaining-requests: 59\nx-ratelimit-reset-requests: 1s\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 8.64s", 8640 * time.Millisecond, 8640 * time.Millisecond},
	{"Azure's -1", "x-ratelimit-limit-requests: -1\nx-ratelimit-remaining-requests: -1\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-limit-tokens: 0", 0, 0},
	{"Anthropic", "anthropic-ratelimit-requests-limit: 50\nanthropic-ratelimit-requests-remaining: 0\nanthropic-ratelimit-requests-reset: 2026-03-01T12:00:45Z\nanthropic-ratelimit-input-tokens-remaining: 100\nanthropic-ratelimit-input-tokens-reset: 2026-03-01T13:00:45Z", 45 * time.Second, 45 * time.Second},
	{"Xendit", "Rate-Limit-Limit: 60\nRate-Limit-Remaining: 0\nRate-Limit-Reset: 58.37", 58370 * time.Millisecond, 58370 * time.Millisecond},
	{"Kong", "X-RateLimit-Limit-Minute: 5\nX-RateLimit-Remaining-Minute: 0\nRateLimit-Limit: 5\nRateLimit-Remaining: 0\nRateLimit-Reset: 47", 47 * time.Second, 47 * time.Second},
	{"HubSpot", "X-HubSpot-RateLimit-Daily: 500000\nX-HubSpot-RateLimit-Daily-Remaining: 0\nX-HubSpot-RateLimit-Secondly: 10", -1, -1},
	{"Xero", "X-MinLimit-Remaining: 0\nX-DayLimit-Remaining: 4000\nX-Rate-Limit-Problem: minute", -1, -1},
	{"Shopify, room", "X-Shopify-Shop-Api-Call-Limit: 32/40", 0, 0},
	{"Shopify, full", "X-Shopify-Shop-Api-Call-Limit: 40/40", -1, -1},
	{"Shopify, beyond", "X-Shopify-Shop-Api-Call-Limit: 41/40", -1, -1},
	{"Salesforce", "Sforce-Limit-Info: api-usage=18/5000", 0, 0},
	{"Salesforce, one of two", "Sforce-Limit-Info: api-usage=18/5000, per-app-api-usage=250/250(appName=x)", -1, -1},
	{"Salesforce, spent", "Sforce-Limit-Info: api-usage=5000/5000", -1, -1},
	{"Amazon", "x-amzn-RateLimit-Limit: 0.5", 0, 0},
	{"a reset that is over", "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366390", 0, 0},
	{"a reset at once", "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 0", 0, 0},
	{"absurd", "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 99999999999999999999999", mostHold, mostHold},
	{"nonsense", "X-RateLimit-Remaining: none\nX-RateLimit-Reset: NaN\nRateLimit: ;;=,\"\nRateLimit-Policy: ,;\"", 0, 0},
	{"negative", "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: -5", -1, -1},
	{"from a cache", "Age: 20\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60", 0, 60 * time.Second},
	{"no business of weir", "X-Corporate-Limit: 0\nX-Accelerate-Limit-Rate: 0\nContent-Length: 0", 0, 0},
}

func TestSpellings(t *testing.T) {
	told := func(a schedule.Advice) time.Duration {
		if a.Spent {
			return -1
		}
		return a.Wait
	}
	for _, c := range spellings {
		h := headers(c.header)
		if got := usedUp(h, noon); told(got) != c.used {
			t.Errorf("%s, an answer in order: %v by %q, want %v", c.what, told(got), got.Header, c.used)
		}
		if got := askedToWait(h, noon); told(got) != c.asked {
			t.Errorf("%s, pushback: %v by %q, want %v", c.what, told(got), got.Header, c.asked)
		}
	}
}

// TestManyWindows checks the bounds of what is read of one answer.
func TestManyWindows(t *testing.T) {
	h := http.Header{}
	for i := range 1000 {
		h.Set(fmt.Sprintf("X-RateLimit-Reset-W%d", i), "5")
		h.Set(fmt.Sprintf("X-RateLimit-Remaining-W%d", i), "0")
	}
	if n := len(readWindows(h, noon)); n > mostWindows {
		t.Errorf("%d windows", n)
	}
	long := http.Header{"Ratelimit": {strings.Repeat(`"a";r=0;t=5,`, 1000)}}
	if a := usedUp(long, noon); a.Header != "" {
		t.Errorf("a field of 12 kB was read: %v", a)
	}
	for _, name := range []string{"X-Ratelimit-Remaining-" + strings.Repeat("w", 300), strings.Repeat("W", 5000) + "limit-Remaining"} {
		if a := usedUp(http.Header{name: {"0"}}, noon); a.Header != "" {
			t.Errorf("a window of a name of %d bytes was read: %v", len(name), a)
		}
	}
}

// FuzzHeaders checks the bounds of what Judge makes of any headers.
func FuzzHeaders(f *testing.F) {
	for _, c := range spellings {
		f.Add(c.header, int64(1_772_366_400))
	}
	for _, seed := range []string{"Retry-After: 1_0", "Retry-After: inf", "RateLimit: \"\\", "RateLimit: :;r=:", "Date: x\nX-RateLimit-Reset: 1e18"} {
		f.Add(seed, int64(-1))
	}
	f.Fuzz(func(t *testing.T, text string, now int64) { checkHeaders(t, text, time.Unix(now%(1<<40), 0)) })
}

func TestHeadersProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 1<<36).Draw(t, "now"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns"))
		var text strings.Builder
		for range rapid.IntRange(0, 5).Draw(t, "headers") {
			name := rapid.SampledFrom([]string{
				"Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Reset", "X-RateLimit-Remaining", "X-RateLimit-Reset-After",
				"X-RateLimit-Limit", "Date", "Age", "X-A-Call-Limit", "x-ratelimit-reset-tokens", "X-MinLimit-Remaining",
			}).Draw(t, "name")
			value := rapid.OneOf(
				rapid.SampledFrom([]string{"0", "1", "1e9", "6m0s", `"a";r=0;t=1`, "40/40", "-1", "NaN", noonDate}),
				rapid.String(), rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.Float64().Draw(t, "number")) }),
				rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.Int64().Draw(t, "whole")) }),
				rapid.Custom(func(t *rapid.T) string {
					in := time.Duration(rapid.IntRange(-1e6, 1e6).Draw(t, "in")) * time.Second
					return now.Add(in).UTC().Format(rapid.SampledFrom([]string{http.TimeFormat, time.RFC3339}).Draw(t, "format"))
				}),
			).Draw(t, "value")
			fmt.Fprintf(&text, "%s: %s\n", name, value)
		}
		checkHeaders(t, text.String(), now)
	})
}

func checkHeaders(t interface{ Errorf(string, ...any) }, text string, now time.Time) {
	h := headers(text)
	for _, a := range []schedule.Advice{usedUp(h, now), askedToWait(h, now)} {
		if a.Wait < 0 || a.Wait > mostHold || a.Spent && a.Wait != 0 || a.Header == "" && a != (schedule.Advice{}) || len(a.Header) > longestName {
			t.Errorf("%q at %v: %+v", text, now, a)
		}
	}
	if a := usedUp(h, now); a.Header != "" && !strings.Contains(strings.ToLower(text), "limit") {
		t.Errorf("%q holds: %+v", text, a)
	}
	at, err := http.ParseTime(strings.TrimSpace(h.Get("Retry-After")))
	if a := askedToWait(h, now); err == nil && h.Get("Date") == "" && a.Wait < mostHold && now.Add(a.Wait).Before(at) {
		t.Errorf("%q at %v: %v ends before it", text, now, a.Wait)
	}
}
