package grammar

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"weir/bucket"

	"pgregory.net/rapid"
)

func TestParseRate(t *testing.T) {
	rate := func(count int64, per time.Duration) bucket.Rate { return bucket.Rate{Count: count, Per: per, Burst: 1} }
	checkGrammar(t, ParseRate, []grammarCase[bucket.Rate]{
		{text: "10/s", want: rate(10, time.Second)},
		{text: "10 / s", want: rate(10, time.Second)},
		{text: "0.5/s", want: rate(1, 2*time.Second)},
		{text: "0.1/s", want: rate(1, 10*time.Second)},
		{text: "2.5/s", want: rate(5, 2*time.Second)},
		{text: "0.333333/s", want: rate(333_333, 1_000_000*time.Second)},
		{text: "300/3h", want: rate(300, 3*time.Hour)},
		{text: "1000/24h", want: rate(1000, Day)},
		{text: "90000/min", want: rate(90_000, time.Minute)},
		{text: "90000/minute", want: rate(90_000, time.Minute)},
		{text: "1/1.5s", want: rate(1, 1500*time.Millisecond)},
		{text: "2/second", want: rate(2, time.Second)},
		{text: "10/day", want: rate(10, Day)},
		{text: "10/d", want: rate(10, Day)},
		{text: "5/week", want: rate(5, week)},
		{text: "5/2 weeks", want: rate(5, 2*week)},
		{text: "7/ms", want: rate(7, time.Millisecond)},
		{text: "1000000/s", want: rate(1_000_000, time.Second)},
		{text: "0.5/day", want: rate(1, 2*Day)},
		{text: "1/31d", want: rate(1, 31*Day)},
		{text: "10", refused: `"10" has no unit: write 10/s, 300/3h or 1000/24h`},
		{text: "10/", refused: "has no unit"},
		{text: "", refused: "is not a count per duration"},
		{text: "/s", refused: "is not a count per duration"},
		{text: "ten/s", refused: "is not a count per duration"},
		{text: "1,000/s", refused: "is not a count per duration"},
		{text: "1e3/s", refused: "is not a count per duration"},
		{text: "10 per second", refused: "is not a count per duration"},
		{text: "0/s", refused: "never lets a call through"},
		{text: "0.0/s", refused: "never lets a call through"},
		{text: "-1/s", refused: "is negative"},
		{text: "10/-1s", refused: "negative period"},
		{text: "10/0s", refused: "has no period"},
		{text: "10/5", refused: "has no unit"},
		{text: "10/S", refused: `unknown period "S"`},
		{text: "10/us", refused: `unknown period "us"`},
		{text: "10/month", refused: "or a quota: 1000/month"},
		{text: "10/year", refused: "no fixed length"},
		{text: "1000001/s", refused: "is too fast"},
		{text: "1001/ms", refused: "is too fast"},
		{text: "1/32d", refused: "is too slow"},
		{text: "0.03/day", refused: "is too slow"},
		{text: "1/0.0005ms", refused: "finer than a microsecond"},
		{text: "0.333333333/s", refused: "too fine a fraction"},
		{text: "1000/400d", refused: "too long a period"},
		{text: "9999999999999999/s", refused: "is not a count per duration"},
	})
}

// exactRate returns calls per nanosecond.
func exactRate(r bucket.Rate) *big.Rat { return big.NewRat(r.Count, int64(r.Per)) }

func TestRateIsExactAndReadBack(t *testing.T) {
	units := []string{"ms", "s", "min", "h", "d", "w"}
	rapid.Check(t, func(t *rapid.T) {
		count := fmt.Sprintf("%d.%0*d", rapid.Int64Range(0, 2_000_000).Draw(t, "whole"),
			rapid.IntRange(1, 6).Draw(t, "places"), rapid.Int64Range(0, 9).Draw(t, "fraction"))
		number := rapid.Int64Range(1, 400).Draw(t, "number")
		unit := rapid.SampledFrom(units).Draw(t, "unit")
		r, err := ParseRate(fmt.Sprintf("%s/%d%s", count, number, unit))
		if err != nil {
			return // too fast or too slow; the table has such rates
		}
		want, _ := new(big.Rat).SetString(count)
		want.Quo(want, big.NewRat(number*int64(durationUnit(unit)), 1))
		if exactRate(r).Cmp(want) != 0 {
			t.Fatalf("%s/%d%s is %d per %v", count, number, unit, r.Count, r.Per)
		}
		if back, err := ParseRate(FormatRate(r)); err != nil || back != r {
			t.Fatalf("%+v is written %q and read back as %+v (%v)", r, FormatRate(r), back, err)
		}
		if r.Count < 1 || r.Per < time.Microsecond || r.Per > LongestPeriod || r.Per%time.Microsecond != 0 {
			t.Fatalf("%+v is out of bounds", r)
		}
	})
}
