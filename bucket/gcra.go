package bucket

// The leaky bucket is kept as GCRA (generic cell rate algorithm) in its virtual scheduling form. Its state is one
// number: the theoretical arrival time TAT, when the bucket will be empty again. For a rate with interval T and burst
// B, a call of cost c that comes at now gets the slot
//
//	base = max(now, TAT)        slot = max(now, base + (c-B)*T)        TAT' = max(slot, TAT) + c*T
//
// TAT' is counted from the slot that is really used, not from now. Under several limits the slot is the latest of
// theirs. If a limit were charged from now, its bucket would drain until the slot, and a whole burst too much could
// follow. (That is the classic mistake of multi-limit libraries; a test prevents it.)
//
// Slots of one limit need not be granted in the order of time. Among the calls with slots in a window [a, b], let m be
// the call that was granted last. Then TAT was at least a plus the cost of the other calls times T, hence slot(m) >= a
// + (sum-B)*T and sum <= B + (b-a)/T: the bound holds for every window, whatever the order.

// gcra is the state of one leaky bucket. The bucket is empty at tat + rem/Q microseconds. The zero value is an idle
// bucket.
type gcra struct {
	tat Micros
	rem int64 // 0 <= rem < Q of the interval in use
}

// slot returns the earliest time, not before now, at which cost units conform. A cost above the burst waits until the
// bucket is empty, and then for cost-burst more intervals. So only a window that holds no other call has more than the
// rate allows.
func (g gcra) slot(now Micros, t Interval, burst, cost int64) Micros {
	base, rem := now, int64(0)
	if g.tat >= now || cost > burst {
		base, rem = g.tat, g.rem
	}
	return max(now, base+Micros(ceilDiv(rem+(cost-burst)*t.P, t.Q)))
}

// take charges cost units to a call with the slot at. A slot is an exact time rounded up. So a slot within a
// microsecond after the TAT continues from the TAT: starting from the slot would lose the fraction every time, and 7/s
// would drift.
func (g *gcra) take(at Micros, t Interval, cost int64) {
	if at > g.end() {
		g.tat, g.rem = at, 0
	}
	x := g.rem + cost*t.P
	g.tat, g.rem = min(maxMicros, g.tat+Micros(x/t.Q)), x%t.Q
}

// untake undoes a take. All later takes must have been undone before. The TAT becomes no lower than it was before the
// take, so all remaining grants stay fully charged.
func (g *gcra) untake(t Interval, cost int64) {
	x := g.rem - cost*t.P
	quo, rem := x/t.Q, x%t.Q
	if rem < 0 {
		quo, rem = quo-1, rem+t.Q
	}
	g.tat, g.rem = g.tat+Micros(quo), rem
}

// idle reports whether the bucket is empty at now and can be forgotten without changing a later slot. A bucket that
// became empty less than a microsecond before now is not idle: take charges the next call from the exact time at which
// the bucket became empty.
func (g gcra) idle(now Micros) bool { return g.end() < now || g.tat == now && g.rem == 0 }

// end returns the TAT rounded up to a whole microsecond: what a caller may hand back as Ask.Floor.
func (g gcra) end() Micros {
	if g.rem > 0 {
		return g.tat + 1
	}
	return g.tat
}

// ceilDiv returns a/b rounded up, for b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// ceil rounds up a value far below 2^63.
func ceil(x float64) float64 {
	f := float64(int64(x))
	if f < x {
		f++
	}
	return f
}
