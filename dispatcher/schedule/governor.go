package schedule

import (
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// governor keeps the calls of a key, or of a whole api, below the configured rate while there is reason to. It only
// ever slows: a call that it allows still needs a grant. The zero governor slows nothing.
//
// After a hold the calls start slowly, with a sixteenth of the rate. The share doubles after every round trip without
// pushback, until it is the whole rate. If the api adapts, pushback halves a ceiling, which grows back by the clock. A
// pushback of a call that started before the ceiling was lowered does not lower it again: calls that ran at the same
// time count as one pushback.
type governor struct {
	ramp    int64         // share of the rate that the slow start allows; 0: there is no slow start
	ceiling int64         // share of the rate that pushback has left; 0: all of it
	began   bucket.Micros // when the last slow start began: slots asked for before do not belong to it
	turned  bucket.Micros // when the ramp was set or doubled last
	lowered bucket.Micros // when the ceiling was lowered last
	grown   bucket.Micros // the time up to which the ceiling has grown
	next    bucket.Micros // no slot for the next call may be asked for before
}

// The units in which shares are counted.
const (
	whole     = 1 << 10
	slowStart = whole / 16
)

// mostRamp bounds the pause between two calls that a slow start makes. A key whose own interval is longer is not slowed
// further.
const mostRamp = time.Second

// restart begins a slow start: a hold has ended.
func (g *governor) restart(now bucket.Micros) {
	g.ramp, g.began, g.turned, g.next = slowStart, now, now, max(g.next, now)
}

// pushedBack lowers the ceiling for a call that started at started and was pushed back at now.
func (g *governor) pushedBack(a *Adaptive, started, now bucket.Micros) {
	if a == nil || started <= g.lowered {
		return
	}
	g.grow(a, now)
	share := int64(whole)
	if g.ceiling != 0 {
		share = g.ceiling
	}
	if g.ceiling = max(share/2, whole*a.Floor/100, 1); g.ceiling >= whole {
		g.ceiling = 0
	}
	g.lowered, g.grown = now, now
}

// answered doubles the ramp for a call that started at started and was answered at now without pushback.
func (g *governor) answered(started, now bucket.Micros) {
	if g.ramp == 0 || started < g.turned {
		return
	}
	if g.ramp *= 2; g.ramp >= whole {
		g.ramp = 0
	}
	g.turned = now
}

// grow lets the ceiling grow back up to now. If a is nil, the configuration asks for no ceiling any more, and grow
// removes it.
func (g *governor) grow(a *Adaptive, now bucket.Micros) {
	if g.ceiling == 0 || now <= g.grown {
		return
	}
	if a == nil {
		g.ceiling = 0
		return
	}
	steps := int64(whole) * int64(min(g.grown.Until(now), a.Recover)/time.Microsecond) / int64(max(a.Recover/time.Microsecond, 1))
	if g.ceiling += steps; g.ceiling >= whole {
		g.ceiling = 0
		return
	}
	g.grown = g.grown.Add(time.Duration(steps) * a.Recover / whole)
}

// slows reports whether calls must stay below the configured rate.
func (g *governor) slows() bool { return g.ramp != 0 || g.ceiling != 0 }

// pause returns the least time between this call and the next, at a rate of one call per interval; 0 if nothing slows.
func (g *governor) pause(interval time.Duration) time.Duration {
	interval = min(interval, limits.LongestInterval)
	var pause time.Duration
	if g.ceiling != 0 {
		pause = share(interval, g.ceiling)
	}
	if g.ramp != 0 {
		pause = max(pause, min(share(interval, g.ramp), max(interval, mostRamp)))
	}
	return pause
}

// share returns the interval at this share of the rate, rounded up to whole microseconds.
func share(interval time.Duration, of int64) time.Duration {
	micros := int64((interval + time.Microsecond - 1) / time.Microsecond)
	return time.Duration((micros*whole+of-1)/of) * time.Microsecond
}

// earliest returns when a slot for the next call may be asked for, 0 if nothing slows.
func (g *governor) earliest() bucket.Micros {
	if !g.slows() {
		return 0
	}
	return g.next
}

// granted notes that a call has its slot at the time at.
func (g *governor) granted(interval time.Duration, at bucket.Micros) {
	if g.slows() {
		g.next = max(g.next, at.Add(g.pause(interval)))
	}
}

// Adaptive says how the rate follows the api's pushback, below the configured rate.
type Adaptive struct {
	Floor   int64         // percent of the configured rate that always remain, 1 to 100
	Recover time.Duration // from nothing back to the whole rate, without pushback; above 0
}
