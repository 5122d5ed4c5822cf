package bucket

// The leaky bucket is kept as GCRA (generic cell rate algorithm) in its virtual scheduling form: one number, the
// theoretical arrival time TAT, is when the bucket will be empty again. For a rate with interval T and burst B, a call of
// cost c that comes at now gets the slot
//
//	base = max(now, TAT)        slot = max(now, base + (c-B)*T)        TAT' = max(slot, TAT) + c*T
//
// TAT' is counted from the slot that is really used, not from now. Under several limits the slot is the latest of
// theirs, and a limit that was charged from now instead would believe that it drains until then: by the time of the slot
// it would hold a whole burst too much. (That is the classic mistake of multi-limit libraries; a test keeps it out.)
//
// Slots of one limit need not be given in the order of time. Let m be the call given last among those whose slots lie in
// some window [a, b]. When it was given, TAT was at least a plus the cost of the others times T, hence
// slot(m) >= a + (sum-B)*T and sum <= B + (b-a)/T: the claim holds for every window whatever the order.

// gcra is the state of one leaky bucket: it is empty at tat + rem/Q microseconds. The zero value is an idle bucket.
type gcra struct {
	tat Micros
	rem int64 // 0 <= rem < Q of the interval in use
}

// slot is the earliest time, not before now, at which cost units conform. What costs more than the burst waits, from when the bucket was
// empty, until as much more would have drained: it then stands for itself, and what follows it within the burst.
func (g gcra) slot(now Micros, t Interval, burst, cost int64) Micros {
	base, rem := now, int64(0)
	if g.tat >= now || cost > burst {
		base, rem = g.tat, g.rem
	}
	return max(now, base+Micros(ceilDiv(rem+(cost-burst)*t.P, t.Q)))
}

// take charges cost units from slot at on. A slot is its exact time rounded up, so one within a microsecond of the TAT
// continues from the TAT: starting from the slot would lose the fraction every time, and 7/s would drift.
func (g *gcra) take(at Micros, t Interval, cost int64) {
	if at > g.end() {
		g.tat, g.rem = at, 0
	}
	x := g.rem + cost*t.P
	g.tat, g.rem = min(maxMicros, g.tat+Micros(x/t.Q)), x%t.Q
}

// untake takes back what take charged, when nothing was charged since.
func (g *gcra) untake(t Interval, cost int64) {
	x := g.rem - cost*t.P
	quo, rem := x/t.Q, x%t.Q
	if rem < 0 {
		quo, rem = quo-1, rem+t.Q
	}
	g.tat, g.rem = g.tat+Micros(quo), rem
}

// idle says that the bucket is empty at now and that forgetting it changes nothing: one that became empty within the last
// microsecond still has a fraction that take goes on from.
func (g gcra) idle(now Micros) bool { return g.end() < now || g.tat == now && g.rem == 0 }

// end is the TAT rounded up to a whole microsecond: what a caller may hand back as Ask.Floor.
func (g gcra) end() Micros {
	if g.rem > 0 {
		return g.tat + 1
	}
	return g.tat
}

// ceilDiv is a/b rounded up, for b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// ceil rounds a value far below 2^63 up.
func ceil(x float64) float64 {
	f := float64(int64(x))
	if f < x {
		f++
	}
	return f
}
