package bucket

import (
	"math"
	"math/bits"
	"time"
)

// How a rate becomes an interval.
//
// The api counts at most N calls in any window of length P. weir sends by GCRA with interval T and burst B, and a call
// arrives up to J later than its slot. The densest place of a GCRA schedule is B calls at once followed by one every T:
// N+1 calls need at least (N+1-B)*T. If each of them may come up to J late, they never fit into a window of P if and
// only if
//
//	(N+1-B) * T >= P + J        so        T = (P+J) / (N+1-B)
//
// The obvious T = P/N is wrong in two ways. With B = 10 and N = 100/s it allows 109 calls in a second. With B = 1 and a
// jitter of 50 ms it allows 105.
//
// An api with a token bucket of size C allows at most C + r*w calls in a window of length w, where r = N/P. If calls
// leave with a burst of B and an interval of T, and move by up to J, at most B + (w+J)/T arrive. With m = C-B this is
// never more than C + r*w if and only if
//
//	T >= 1/r and m >= r*J        or, with a smaller m      (m+1) * T >= 1/r + J
//
// So weir does not use the part of the bucket that refills while a call may be late: 5 of 1000 at 1000/s and 5 ms. If
// that is less than a twentieth of a call, weir uses all of the bucket and makes the interval that much longer. One
// call may cost more than B, up to C, if it comes after a pause: jitter cannot compress a single call (gcra.go).
//
// Headroom h% lowers N to floor(N*(100-h)/100). That may leave fewer calls than the burst (rate 1/s with any headroom,
// burst 8 of 10 with 30 %). Then B stays, so that the largest cost still passes, and so does one further call per
// window. Instead the headroom widens the interval: T = (P+J)*100/(100-h). With a token bucket, headroom lowers r and
// B. More headroom never means a shorter interval.

// Interval is the time between two units of a rate in the long run: P/Q microseconds, both at least 1, in lowest terms.
type Interval struct {
	P, Q int64
}

// Bounds of the fields of a rate. Inside them no product of the arithmetic, in Go or in Lua, reaches 2^53.
const (
	maxCount  = 1_000_000_000_000       // units per period
	maxBurst  = 1_000_000_000           // units at once
	maxPer    = 3660 * 24 * time.Hour   // a period, about ten years
	maxDebt   = Micros(100 * 365 * day) // burst times interval
	maxJitter = 10 * time.Minute        // the shortest calendar period, 30 minutes, has room for two
	maxMicros = Micros(1<<53 - 1)       // the year 2255

	wholeFrom = 1000    // microseconds: intervals from here on are rounded up to whole ones
	maxQ      = 1 << 20 // the finest fraction of a microsecond that is kept

	day = int64(24 * time.Hour / time.Microsecond)
)

// Interval returns the shortest safe interval for rate under these rules' jitter and headroom. An interval of a
// millisecond or more is rounded up to whole microseconds (a loss below 0.1 %). A shorter one keeps its fraction and
// counts one microsecond more of jitter, because its slots are rounded up and so may lie one closer together.
//
// rate must have passed Validate.
func (r Rules) Interval(rate Rate) Interval {
	if rate.Counted() == ByTokens {
		return r.tokenInterval(rate)
	}
	num, left := ceilMicros(rate.Per)+ceilMicros(r.Jitter), 100-r.Headroom
	den := rate.Count*left/100 + 1 - rate.Burst
	if den < 1 {
		num, den = num*100, left
	}
	if num/den >= wholeFrom {
		return Interval{P: (num + den - 1) / den, Q: 1}
	}
	num += num / max(1, ceilMicros(rate.Per)+ceilMicros(r.Jitter)) // one microsecond, in num's scale
	return Interval{P: num, Q: den}.fit(rate.Burst)
}

// tokenInterval returns the interval against a token bucket.
func (r Rules) tokenInterval(rate Rate) Interval {
	left, spare := 100-r.Headroom, float64(rate.Burst-r.Burst(rate))
	if late := r.late(rate); spare < late {
		each := float64(ceilMicros(rate.Per)) / float64(rate.Count)
		return intervalOf((each + late*each) / (spare + 1) * 100 / float64(left))
	}
	num, den := ceilMicros(rate.Per)*100, rate.Count*left
	if num/den >= wholeFrom {
		return Interval{P: (num + den - 1) / den, Q: 1}
	}
	return Interval{P: num, Q: den}.fit(rate.Burst)
}

// Burst returns how many units may leave together after idling. The rate must have passed Validate. For a token bucket
// it is less than the bucket holds, because of jitter and headroom. A single call may still cost as much as Capacity
// says.
func (r Rules) Burst(rate Rate) int64 {
	if rate.Counted() == ByWindow {
		return rate.Burst
	}
	burst := rate.Burst/100*(100-r.Headroom) + rate.Burst%100*(100-r.Headroom)/100
	if late := r.late(rate); late > leastLate {
		burst = min(burst, rate.Burst-int64(min(float64(rate.Burst), math.Ceil(late))))
	}
	return max(1, burst)
}

// late returns how many units refill while a call may be late.
func (r Rules) late(rate Rate) float64 {
	jitter := ceilMicros(r.Jitter)
	if ceilMicros(rate.Per)/rate.Count < wholeFrom {
		jitter++ // its slots are rounded up
	}
	return float64(jitter) * float64(rate.Count) / float64(ceilMicros(rate.Per))
}

// leastLate is a part of a unit. If no more than that refills while a call may be late, weir widens the interval
// instead of leaving a unit of the bucket unused. That costs at most the same part of the rate.
const leastLate = 0.05

// intervalOf returns an interval of so many microseconds, rounded up. It is the same on every machine.
func intervalOf(micros float64) Interval {
	const finest = 1 << 10
	if micros = micros * (1 + 1e-12); micros >= wholeFrom {
		return Interval{P: int64(math.Ceil(micros)), Q: 1}
	}
	return Interval{P: int64(math.Ceil(micros * finest)), Q: finest}.fit(1)
}

// fit reduces the fraction. If it is still too fine for burst*P to stay below 2^52, fit rounds it up to a coarser one.
func (t Interval) fit(burst int64) Interval {
	g := gcd(t.P, t.Q)
	t.P, t.Q = t.P/g, t.Q/g
	finest := min(maxQ, (1<<52)/(wholeFrom*burst))
	if t.Q <= finest {
		return t
	}
	hi, lo := bits.Mul64(uint64(t.P), uint64(finest))
	quo, rem := bits.Div64(hi, lo, uint64(t.Q))
	if rem > 0 {
		quo++
	}
	g = gcd(int64(quo), finest)
	return Interval{P: int64(quo) / g, Q: finest / g}
}

// Duration returns the interval rounded up to whole nanoseconds, for readers and for metrics.
func (t Interval) Duration() time.Duration {
	return time.Duration((t.P*1000 + t.Q - 1) / t.Q)
}

// micros returns the interval in microseconds, as the floating-point number that Lua uses.
func (t Interval) micros() float64 { return float64(t.P) / float64(t.Q) }

// PerSecond returns the long-run rate, for readers and for metrics.
func (t Interval) PerSecond() float64 { return 1e6 * float64(t.Q) / float64(t.P) }

// times returns n intervals, rounded up to whole microseconds. Far beyond any date it saturates at maxMicros.
func (t Interval) times(n int64) Micros {
	if n <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(t.P))
	if hi >= uint64(t.Q) {
		return maxMicros
	}
	quo, rem := bits.Div64(hi, lo, uint64(t.Q))
	if rem > 0 {
		quo++
	}
	return Micros(min(quo, uint64(maxMicros)))
}

// Forecast returns when the n-th waiting call of a key (the first is 1) would start if every call cost one unit and
// only the key's own rate held it: max(now, base + (n-B)*T) with base = max(now, tat). t is
// Rules.Interval(limits.Rate). tat is the key's theoretical arrival time, 0 if it has none.
func Forecast(limits KeyLimits, t Interval, tat, now Micros, n int) Micros {
	base := max(now, tat)
	ahead := int64(n) - limits.Rate.Burst
	if ahead < 0 {
		return max(now, base+Micros(ceilDiv(ahead*t.P, t.Q)))
	}
	return min(maxMicros, base+t.times(ahead))
}

// ceilMicros returns d in microseconds, rounded up.
func ceilMicros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
