package httpcall

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest"

	"pgregory.net/rapid"
)

// remaining returns an api with one limit of which the headers left and until say what is left.
func remaining(left, until string) *API {
	l := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 500, Per: time.Hour, Burst: 1}, Left: ingest.Source{Header: left}}
	if until != "" {
		l.LeftUntil = ingest.Source{Header: until}
	}
	return &API{Rules: bucket.Rules{Shared: []bucket.Limit{{Name: "calls", InFlight: 3}, l}}}
}

func TestRemainders(t *testing.T) {
	const whole, exact = time.Second, time.Duration(0)
	told := func(units int64) Remainder { return Remainder{Valid: true, Units: units} }
	until := func(units int64, wait, early time.Duration) Remainder {
		return Remainder{Valid: true, Units: units, Timed: true, Wait: wait, Early: early}
	}
	garbled := func(m Remainder) Remainder { m.Garbled = true; return m }
	for _, c := range []struct {
		what, header, left, until string
		want                      Remainder
	}{
		{"nothing", "", "X-Left", "X-Reset", Remainder{}},
		{"a number", "X-Left: 17", "x-left", "", told(17)},
		{"until is not there", "X-Left: 17", "X-Left", "X-Reset", Remainder{}},
		{"seconds", "X-Left: 0\nX-Reset: 90", "X-Left", "X-Reset", until(0, 90*time.Second, whole)},
		{"part of a second", "X-Left: 3\nX-Reset: 58.37", "X-Left", "X-Reset", until(3, 58370*time.Millisecond, exact)},
		{"an epoch", "X-Left: 3\nX-Reset: 1772366520", "X-Left", "X-Reset", until(3, 2*time.Minute, whole)},
		{"an epoch in milliseconds", "X-Left: 3\nX-Reset: 1772366430250", "X-Left", "X-Reset", until(3, 30250*time.Millisecond, whole)},
		{"by the api's clock", "X-Left: 3\nX-Reset: 1772370030\nDate: Sun, 01 Mar 2026 13:00:00 GMT", "X-Left", "X-Reset", until(3, 30*time.Second, whole)},
		{"milliseconds by the name", "X-Left: 3\nX-Reset-Ms: 1500", "X-Left", "X-Reset-Ms", until(3, 1500*time.Millisecond, exact)},
		{"RFC 3339", "X-Left: 3\nX-Reset: 2026-03-01T12:00:45Z", "X-Left", "X-Reset", until(3, 45*time.Second, whole)},
		{"a date", "X-Left: 3\nX-Reset: Sun, 01 Mar 2026 12:00:30 GMT", "X-Left", "X-Reset", until(3, 30*time.Second, whole)},
		{"6m0s", "X-Left: 3\nX-Reset: 6m0s", "X-Left", "X-Reset", until(3, 6*time.Minute, whole)},
		{"1s", "X-Left: 3\nX-Reset: 1s", "X-Left", "X-Reset", until(3, time.Second, whole)},
		{"500ms", "X-Left: 3\nX-Reset: 500ms", "X-Left", "X-Reset", until(3, 500*time.Millisecond, exact)},
		{"8.64s", "X-Left: 3\nX-Reset: 8.64s", "X-Left", "X-Reset", until(3, 8640*time.Millisecond, exact)},
		{"a time that is over", "X-Left: 3\nX-Reset: 2020-01-01T00:00:00Z", "X-Left", "X-Reset", until(3, 0, whole)},
		{"the least of two and the latest", "X-Left: 5\nX-Left: 3\nX-Reset: 1\nX-Reset: 7", "X-Left", "X-Reset", until(3, 7*time.Second, whole)},
		{"a list, of which the first binds", "RateLimit-Remaining: 9, 70;w=60", "RateLimit-Remaining", "", told(9)},
		{"used and allowed", "X-Shopify-Shop-Api-Call-Limit: 32/40", "X-Shopify-Shop-Api-Call-Limit", "", told(8)},
		{"more used than allowed", "X-Shopify-Shop-Api-Call-Limit: 41/40", "X-Shopify-Shop-Api-Call-Limit", "", told(0)},
		{"draft", `RateLimit: "default";r=50;t=30`, "RateLimit", "RateLimit", until(50, 30*time.Second, whole)},
		{"draft, two windows", `RateLimit: "burst";r=9;t=7, "daily";r=50;t=60`, "RateLimit", "RateLimit", until(9, time.Minute, whole)},
		{"decimals", "X-Left: 4.9", "X-Left", "", told(4)},
		{"two periods away", "X-Left: 3\nX-Reset: 2h", "X-Left", "X-Reset", until(3, 2*time.Hour, whole)},
		{"from a cache", "Age: 20\nX-Left: 3", "X-Left", "", Remainder{}},
		{"fresh", "Age: 0\nX-Left: 3", "X-Left", "", told(3)},

		{"further away than two periods", "X-Left: 3\nX-Reset: 7201", "X-Left", "X-Reset", garbled(Remainder{})},
		{"the year 9999", "X-Left: 3\nX-Reset: Fri, 31 Dec 9999 23:59:59 GMT", "X-Left", "X-Reset", garbled(Remainder{})},
		{"no word of left", "X-Left: plenty\nX-Reset: 5", "X-Left", "X-Reset", garbled(Remainder{})},
		{"negative", "X-Left: -1", "X-Left", "", garbled(Remainder{})},
		{"empty", "X-Left:", "X-Left", "", garbled(Remainder{})},
		{"negative until", "X-Left: 3\nX-Reset: -5", "X-Left", "X-Reset", garbled(Remainder{})},
		{"NaN", "X-Left: NaN\nX-Reset: NaN", "X-Left", "X-Reset", garbled(Remainder{})},
		{"NaN until", "X-Left: 3\nX-Reset: NaN", "X-Left", "X-Reset", garbled(Remainder{})},
		{"huge", "X-Left: 1e999\nX-Reset: 1e999", "X-Left", "X-Reset", garbled(Remainder{})},
		{"hexadecimal", "X-Left: 0x10", "X-Left", "", garbled(Remainder{})},
		{"long", "X-Left: " + strings.Repeat("1", longestField+1), "X-Left", "", garbled(Remainder{})},
	} {
		got := remaining(c.left, c.until).Remainders(Response{Status: 200, Header: headers(c.header), Headed: noon})
		if c.want == (Remainder{}) && got == nil {
			continue
		}
		if len(got) != 2 || got[0] != (Remainder{}) || got[1] != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
	if got := remaining("X-Left", "").Remainders(Response{Header: headers("X-Left: 3")}); got != nil {
		t.Errorf("a call without an answer says %+v", got)
	}
	for header, want := range map[string]Remainder{
		"X-Left: 3": told(3), "X-Left: 3\nX-Reset: soon": garbled(told(3)), "X-Left: 1e999\nX-Reset: 30": until(1e15, 30*time.Second, whole),
	} {
		a := remaining("X-Left", "X-Reset")
		a.Rules.Shared[1].Rate, a.Rules.Shared[1].Quota = nil, &bucket.Quota{Count: 500, Window: bucket.Fixed, Per: time.Hour}
		if got := a.Remainders(Response{Status: 200, Header: headers(header), Headed: noon}); got[1] != want {
			t.Errorf("of a quota %q says %+v, want %+v", header, got[1], want)
		}
	}
	for status, said := range map[int]bool{200: true, 401: false, 403: true, 407: false, 429: true, 500: true} {
		got := remaining("X-Left", "").Remainders(Response{Status: status, Header: headers("X-Left: 3")})
		if (got != nil) != said {
			t.Errorf("an answer with %d says %+v", status, got)
		}
	}
	if got := (&API{}).Remainders(Response{Status: 200, Header: headers("X-Left: 3")}); got != nil {
		t.Errorf("an api without limits reads %+v", got)
	}
}

// FuzzLeft checks the bounds of what any headers say is left.
func FuzzLeft(f *testing.F) {
	for _, value := range []string{
		"", "0", "17", "-1", "1e999", "NaN", "6m0s", "500ms", "1772366430", "1772366430250", "2026-03-01T12:00:45Z", noonDate, "32/40", "/", "9999999999999999999/1",
		`"a";r=0;t=1`, "limit=10, remaining=0, reset=5", ";;=,\"", "2562047h47m16s", "9223372036854775807",
	} {
		f.Add(value, value, "X-Reset", int64(1_772_366_400))
		f.Add(value, value, "X-Reset-Ms", int64(-1))
	}
	f.Fuzz(func(t *testing.T, left, until, name string, now int64) {
		if name = http.CanonicalHeaderKey(name); name == "" || name == "X-Left" {
			return
		}
		checkRemainder(t, http.Header{"X-Left": {left}, name: {until}}, name, time.Unix(now%(1<<40), 0))
	})
}

func TestRemaindersProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(
			rapid.String(), rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.Float64().Draw(t, "number")) }),
			rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.Int64().Draw(t, "whole")) }),
			rapid.Custom(func(t *rapid.T) string { return time.Duration(rapid.Int64().Draw(t, "duration")).String() }),
		)
		h := http.Header{"X-Left": {value.Draw(t, "left")}, "X-Reset": rapid.SliceOfN(value, 0, 3).Draw(t, "until")}
		checkRemainder(t, h, "X-Reset", time.Unix(rapid.Int64Range(0, 1<<36).Draw(t, "now"), 0))
	})
}

func checkRemainder(t interface{ Errorf(string, ...any) }, h http.Header, name string, now time.Time) {
	a := remaining("X-Left", name)
	for _, m := range a.Remainders(Response{Status: 200, Header: h, Headed: now}) {
		most := mostPeriods * a.Rules.Shared[1].Period()
		if m.Units < 0 || m.Units > math.MaxInt64/2 || m.Timed && (m.Wait < 0 || m.Wait > most || m.Early < 0 || m.Early > time.Second) || m.Timed && !m.Valid {
			t.Errorf("%q at %v: %+v", h, now, m)
		}
	}
}
