package bucket

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Arrival is one call as the api saw it, with all times on one clock.
type Arrival struct {
	At   int64 // nanoseconds since 1970 UTC
	End  int64 // when it was answered; before At: never
	Cost int64 // units; 0 counts as 1 if Beyond is 0 too
	// Beyond is what the call took beyond the Cost that it had reserved. It breaks no limit.
	Beyond int64
}

// takes returns the units that the call reserved.
func (a *Arrival) takes() int64 {
	if a.Cost == 0 && a.Beyond == 0 {
		return 1
	}
	return a.Cost
}

// Expectation is the limit that arrivals are checked against.
type Expectation struct {
	Limit Limit
	// Jitter is how much later than planned a call may have arrived. It raises a rate's allowed burst to Burst +
	// R*Jitter. It raises neither the count in a window nor what a token bucket allows.
	Jitter time.Duration
	// Eps is the error of the time stamps. If an error of that size could explain an excess, the outcome is
	// Inconclusive.
	Eps time.Duration
}

// allowed returns the most units that a period of the rate may see.
func (r Rate) allowed() int64 {
	if r.Counted() == ByTokens {
		return r.Count + r.Burst
	}
	return r.Count
}

// blur returns how late a call may arrive and still belong to a rate's burst. It is 0 for a token bucket, because
// nothing may exceed the api's own bucket.
func (x *Expectation) blur() time.Duration {
	if x.Limit.Rate.Counted() == ByTokens {
		return 0
	}
	return x.Jitter
}

// Outcome is the result of a check.
type Outcome string

// The outcomes. Only Pass is a proof.
const (
	Pass         Outcome = "pass"
	Inconclusive Outcome = "inconclusive" // over by less than the stamps' error
	Fail         Outcome = "fail"
)

// Verdict is the result of a check.
type Verdict struct {
	Outcome Outcome
	Calls   int   // calls that reserved units
	Units   int64 // all units, also those beyond reservations
	// Worst is the most units found in one window (of a rate, a quota or a budget) or at once (in flight). Allowed is
	// the most that the expectation allows. From and To are the indexes of the window's first and last arrival in the
	// order of time.
	Worst, Allowed int64
	From, To       int
	// Beyond is how far a window went over because calls took more than they had reserved: in the worst such window, the
	// units that exceed both Allowed and what was reserved.
	Beyond int64
	// Burst, for a rate, is B*: the smallest burst with which the arrivals conform to Count per Per, reached by the
	// arrivals BurstFrom to BurstTo.
	Burst              float64
	BurstFrom, BurstTo int
}

// String returns the verdict in one line.
func (v Verdict) String() string {
	s := fmt.Sprintf("%s: worst %d of %d allowed (arrivals %d to %d), %d calls, %d units",
		v.Outcome, v.Worst, v.Allowed, v.From, v.To, v.Calls, v.Units)
	if v.Burst > 0 {
		s += fmt.Sprintf(", burst %.3f", v.Burst)
	}
	return s
}

// Check compares arrivals with one limit, exactly: all arithmetic is on whole numbers, it looks at every window that
// could be the worst, and the answer does not depend on how the calls were planned. It takes O(n log n) for n arrivals
// and does not change them.
//
// A rate is two expectations. A window of Per holds at most Count units, or Burst + Count for a token bucket. The burst
// B* is at most Burst, or Burst + R*Jitter unless the api has a token bucket. B* comes from the virtual queue
//
//	Q = max(0, Q - R*dt) + cost        B* = max Q
//
// which is exact: B* <= B if and only if every interval holds at most B + R*length.
func Check(arrivals []Arrival, expected Expectation) Verdict {
	a := inOrder(arrivals)
	v := Verdict{Outcome: Pass}
	for _, x := range a {
		if v.Units += x.Cost + x.Beyond; x.Cost > 0 {
			v.Calls++
		}
	}
	l := expected.Limit
	switch l.Kind() {
	case KindRate:
		v.checkRate(a, *l.Rate, expected)
	case KindQuota:
		v.checkQuota(a, *l.Quota, expected.Eps)
	case KindBudget:
		v.checkQuota(a, l.Budget.Quota, expected.Eps)
	case KindInFlight:
		v.Allowed = l.InFlight
		v.checkInFlight(a, expected.Eps)
	}
	return v
}

// inOrder returns a copy of the arrivals in the order of time, each with the cost that counts.
func inOrder(arrivals []Arrival) []Arrival {
	a := slices.Clone(arrivals)
	for i := range a {
		a[i].Cost = a[i].takes()
	}
	slices.SortStableFunc(a, func(x, y Arrival) int { return cmp.Compare(x.At, y.At) })
	return a
}

func (v *Verdict) checkRate(a []Arrival, r Rate, expected Expectation) {
	v.Allowed = r.allowed()
	v.checkSliding(a, r.Per, expected.Eps)
	v.checkBurst(a, r, expected)
}

func (v *Verdict) checkQuota(a []Arrival, q Quota, eps time.Duration) {
	v.Allowed = q.Count
	if q.Window == Sliding {
		v.checkSliding(a, q.Per, eps)
		return
	}
	v.checkPeriods(a, q, eps)
}

// checkSliding checks every window [t, t+per) that begins with an arrival. One of these is the worst window.
func (v *Verdict) checkSliding(a []Arrival, per, eps time.Duration) {
	whole, from, to := mostIn(a, per)
	v.Worst, v.From, v.To = whole, from, to
	v.exceedIn(a, per)
	if whole <= v.Allowed {
		return
	}
	if sure, _, _ := mostIn(a, per-eps); sure > v.Allowed {
		v.Outcome = Fail
		return
	}
	v.worsen(Inconclusive)
}

// exceedIn notes the units that calls took beyond their reservations, in every window of length per that begins with an
// arrival.
func (v *Verdict) exceedIn(a []Arrival, per time.Duration) {
	reserved, beyond, j := int64(0), int64(0), 0
	for i := range a {
		for ; j < len(a) && a[j].At-a[i].At < int64(per); j++ {
			reserved, beyond = reserved+a[j].Cost, beyond+a[j].Beyond
		}
		v.exceed(reserved, beyond)
		reserved, beyond = reserved-a[i].Cost, beyond-a[i].Beyond
	}
}

// exceed notes by how much one window exceeds Allowed because its calls took more than they had reserved.
func (v *Verdict) exceed(reserved, beyond int64) {
	v.Beyond = max(v.Beyond, min(beyond, reserved+beyond-v.Allowed))
}

// mostIn returns the most units in any half-open window of that length, and the first and last arrival of it.
func mostIn(a []Arrival, per time.Duration) (most int64, from, to int) {
	sum, j := int64(0), 0
	for i := range a {
		for j < len(a) && a[j].At-a[i].At < int64(per) {
			sum += a[j].Cost
			j++
		}
		if sum > most {
			most, from, to = sum, i, j-1
		}
		if j > i {
			sum -= a[i].Cost
		} else {
			j = i + 1
		}
	}
	return most, from, to
}

// checkPeriods counts by period. Arrivals within eps of an edge may belong to either side.
func (v *Verdict) checkPeriods(a []Arrival, q Quota, eps time.Duration) {
	for i := 0; i < len(a); {
		p := q.spanAt(Micros(floorDiv(a[i].At, 1000)))
		end := int64(p.end) * 1000
		sum, sure, beyond, j := int64(0), int64(0), int64(0), i
		for ; j < len(a) && a[j].At < end; j++ {
			sum, beyond = sum+a[j].Cost, beyond+a[j].Beyond
			if a[j].At >= int64(p.start)*1000+int64(eps) && a[j].At < end-int64(eps) {
				sure += a[j].Cost
			}
		}
		v.exceed(sum, beyond)
		if sum > v.Worst {
			v.Worst, v.From, v.To = sum, i, j-1
		}
		if sure > v.Allowed {
			v.worsen(Fail)
		} else if sum > v.Allowed {
			v.worsen(Inconclusive)
		}
		i = j
	}
}

// checkInFlight sweeps over starts and ends. A call that ends when another starts is no longer under way.
func (v *Verdict) checkInFlight(a []Arrival, eps time.Duration) {
	v.Worst, v.From, v.To = mostAtOnce(a, 0)
	if v.Worst <= v.Allowed {
		return
	}
	if sure, _, _ := mostAtOnce(a, eps); sure > v.Allowed {
		v.Outcome = Fail
		return
	}
	v.worsen(Inconclusive)
}

// mostAtOnce returns the most calls under way at one time, each shortened by eps at both ends. At that time, from is
// the first call that was still running, and to is the call that started last.
func mostAtOnce(a []Arrival, eps time.Duration) (most int64, from, to int) {
	type call struct {
		end   int64
		index int
	}
	var running []call // a heap would do; sorted insertion is simpler and the list is as short as the limit
	for i, x := range a {
		start, end := x.At+int64(eps), x.End-int64(eps)
		if x.End < x.At {
			end = int64(maxMicros) * 1000
		}
		gone := 0
		for gone < len(running) && running[gone].end <= start {
			gone++
		}
		running = running[gone:]
		if end <= start && eps > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(running, end, func(c call, end int64) int { return cmp.Compare(c.end, end) })
		running = slices.Insert(running, at, call{end, i})
		if n := int64(len(running)); n > most {
			most, to, from = n, i, i
			for _, c := range running {
				from = min(from, c.index)
			}
		}
	}
	return most, from, to
}

// checkBurst finds B*. Q is kept in units times Per, in 128 bits: a unit is Per, a nanosecond drains Count.
func (v *Verdict) checkBurst(a []Arrival, r Rate, expected Expectation) {
	g := gcd(r.Count, int64(r.Per))
	count, per := uint64(r.Count/g), uint64(int64(r.Per)/g)
	var q, most wide
	start := 0
	for i, x := range a {
		if i > 0 {
			drained := mul(count, uint64(x.At-a[i-1].At))
			if q.cmp(drained) <= 0 {
				q, start = wide{}, i
			} else {
				q = q.sub(drained)
			}
		}
		q = q.add(mul(uint64(x.Cost), per))
		if q.cmp(most) > 0 {
			most, v.BurstFrom, v.BurstTo = q, start, i
		}
	}
	v.Burst = most.float() / float64(per)
	allowed := mul(uint64(r.Burst), per).add(mul(count, uint64(expected.blur())))
	if most.cmp(allowed) <= 0 {
		return
	}
	if most.cmp(allowed.add(mul(count, uint64(expected.Eps)))) > 0 {
		v.worsen(Fail)
		return
	}
	v.worsen(Inconclusive)
}

// worsen sets the outcome unless it is Fail already.
func (v *Verdict) worsen(to Outcome) {
	if v.Outcome != Fail {
		v.Outcome = to
	}
}

// floorDiv returns a/b rounded down, for b > 0.
func floorDiv(a, b int64) int64 { return -ceilDiv(-a, b) }
