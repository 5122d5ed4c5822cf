package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

const someTime = bucket.Micros(1_700_000_000_000_000)

// TestGovernorStartsSlowly walks through a slow start at 10/s: a call at once, then pauses that halve with every
// answer.
func TestGovernorStartsSlowly(t *testing.T) {
	var g governor
	const interval = 100 * time.Millisecond
	now := someTime
	g.restart(now)
	for i, want := range []time.Duration{time.Second, 800 * time.Millisecond, 400 * time.Millisecond, 200 * time.Millisecond, 0} {
		if at := g.earliest(); at > now {
			t.Errorf("call %d must wait until %v from now", i+1, now.Until(at))
		}
		if got := g.pause(interval); got != want {
			t.Errorf("after call %d there is a pause of %v, want %v", i+1, got, want)
		}
		g.granted(interval, now)
		started := now
		now = max(now, g.earliest())
		g.answered(started, now)
	}
	if g.slows() {
		t.Errorf("the slow start is not over: %+v", g)
	}
}

// TestGovernorCountsOneMomentOnce checks that the answers to calls that ran together double the ramp once, and
// lower the ceiling once.
func TestGovernorCountsOneMomentOnce(t *testing.T) {
	var g governor
	a := &Adaptive{Floor: 10, Recover: time.Hour}
	g.restart(someTime)
	for range 8 {
		g.answered(someTime.Add(time.Millisecond), someTime.Add(time.Second))
	}
	if g.ramp != 2*slowStart {
		t.Errorf("eight answers at once: the ramp is %d, want %d", g.ramp, 2*slowStart)
	}
	for range 8 {
		g.pushedBack(a, someTime.Add(time.Millisecond), someTime.Add(time.Second))
	}
	if g.ceiling != whole/2 {
		t.Errorf("eight pushbacks at once: the ceiling is %d, want %d", g.ceiling, whole/2)
	}
	g.pushedBack(a, someTime.Add(2*time.Second), someTime.Add(3*time.Second))
	if g.ceiling != whole/4 {
		t.Errorf("another pushback later: the ceiling is %d, want %d", g.ceiling, whole/4)
	}
}

// TestGovernorProperty checks a governor's bounds under random events: while it slows it never allows less than
// the configured interval, it never keeps the rate below the floor, and it stops slowing in the end.
func TestGovernorProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g governor
		interval := time.Duration(rapid.Int64Range(1, int64(400*24*time.Hour/time.Microsecond)).Draw(t, "interval")) * time.Microsecond
		a := &Adaptive{
			Floor:   rapid.Int64Range(1, 100).Draw(t, "floor"),
			Recover: time.Duration(rapid.Int64Range(1e6, 24*3600e6).Draw(t, "recover")) * time.Microsecond,
		}
		now := someTime
		most := max(interval, mostRamp, share(min(interval, limits.LongestInterval), max(whole*a.Floor/100, 1)))
		var last bucket.Micros
		var gap time.Duration
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 5e6).Draw(t, "passes")) * time.Microsecond)
			started := now.Add(-time.Duration(rapid.Int64Range(0, 3e6).Draw(t, "took")) * time.Microsecond)
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				g.restart(now)
			case 1:
				grown := g
				grown.grow(a, now)
				g.pushedBack(a, started, now)
				if left := func(c int64) int64 { return (c + whole - 1) % whole }; left(g.ceiling) > left(grown.ceiling) {
					t.Fatalf("pushback raised the ceiling from %d to %d", grown.ceiling, g.ceiling)
				}
			case 2:
				g.answered(started, now)
			case 3:
				g.grow(a, now)
			case 4:
				if at := g.earliest(); at > now {
					if now.Until(at) > most {
						t.Fatalf("the next call must wait %v, more than %v", now.Until(at), most)
					}
					continue
				}
				if g.slows() && last != 0 && gap > 0 && last.Until(now) < min(gap, interval) {
					t.Fatalf("two calls %v apart, %v was asked for", last.Until(now), gap)
				}
				g.granted(interval, now)
				last, gap = now, g.pause(interval)
				if gap != 0 && gap < interval {
					t.Fatalf("a pause of %v, below the configured interval of %v", gap, interval)
				}
			}
			if g.ceiling != 0 && (g.ceiling < max(whole*a.Floor/100, 1) || g.ceiling >= whole) {
				t.Fatalf("the ceiling is %d of %d, the floor %d %%", g.ceiling, whole, a.Floor)
			}
		}
		now = now.Add(a.Recover + time.Millisecond)
		g.grow(a, now)
		for range 4 {
			g.answered(now, now)
		}
		if g.slows() {
			t.Fatalf("without pushback it still slows: %+v", g)
		}
	})
}

// TestGovernorRecovers checks that the ceiling grows by the clock, however often it is looked at.
func TestGovernorRecovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &Adaptive{Floor: 1, Recover: time.Duration(rapid.Int64Range(1e6, 3600e6).Draw(t, "recover")) * time.Microsecond}
		var often, once governor
		often.pushedBack(a, someTime, someTime)
		once = often
		end := someTime.Add(a.Recover * 2 / 5)
		for now := someTime; now < end; now = now.Add(time.Duration(rapid.Int64Range(1, int64(a.Recover)/20).Draw(t, "step"))) {
			often.grow(a, now)
		}
		often.grow(a, end)
		once.grow(a, end)
		if d := often.ceiling - once.ceiling; d < -1 || d > 1 || once.ceiling < whole*89/100 || once.ceiling > whole*91/100 {
			t.Fatalf("after two fifths of the time: %d looked at often, %d looked at once, of %d", often.ceiling, once.ceiling, whole)
		}
	})
}
