package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBreaker(t *testing.T) {
	o := BreakerPolicy{Failures: 3, Min: time.Second, Max: 5 * time.Second}
	var b breaker
	now := someTime
	fail := func(times int) (opened int) {
		for range times {
			now = now.Add(time.Millisecond)
			if b.failed(o, now, now, 0) {
				opened++
			}
		}
		return opened
	}
	if fail(2) != 0 || !b.closed() {
		t.Fatal("open after two failures")
	}
	b.worked(now)
	if fail(2) != 0 || fail(1) != 1 || b.closed() || b.halfOpen(now) {
		t.Fatalf("not open after three failures in a row: %+v", b)
	}
	if fail(5) != 0 {
		t.Error("opened twice")
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := b.turned.Until(b.until); got != want {
			t.Errorf("the %d. time in a row it is open for %v, want %v", i+1, got, want)
		}
		now = b.until
		if !b.halfOpen(now) {
			t.Errorf("no probe when its time is over")
		}
		b.worked(now) // not the probe
		b.open(o, now, 0)
	}
	b.close(now)
	if !b.closed() {
		t.Fatal("closed is not closed")
	}
	old := now.Add(-time.Second)
	for range 10 {
		if b.failed(o, old, now, 0) {
			t.Error("opened by calls that had started before it closed")
		}
	}
	fail(2)
	b.worked(old)
	if fail(1) != 1 {
		t.Error("an answer to a call that had started before it closed counts against the failures since")
	}
	b.close(now)
	b.open(o, now, 0)
	if got := b.turned.Until(b.until); got != time.Second {
		t.Errorf("after closing it opens for %v, want %v", got, time.Second)
	}
	never := breaker{}
	for range 1000 {
		if never.failed(BreakerPolicy{}, now, now, 0) {
			t.Fatal("a breaker that is off opened")
		}
	}
}

// TestBreakerOpenTimeProperty bounds how long a breaker stays open.
func TestBreakerOpenTimeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(24*time.Hour)).Draw(t, "min"))
		o := BreakerPolicy{Failures: 1, Min: least, Max: time.Duration(rapid.Int64Range(int64(least), int64(24*time.Hour)).Draw(t, "max"))}
		var b breaker
		now, before := someTime, time.Duration(0)
		for range rapid.IntRange(1, 100).Draw(t, "times") {
			b.open(o, now, rapid.Float64Range(0, 1).Draw(t, "jitter"))
			d := now.Until(b.until)
			if d < o.Min*3/4-time.Microsecond || d > o.Max || d < min(before*3/2, o.Max*3/4)-time.Microsecond {
				t.Fatalf("open for %v after %v, from %v to %v", d, before, o.Min, o.Max)
			}
			if b.closed() || b.halfOpen(now) || !b.halfOpen(now.Add(d)) {
				t.Fatalf("%+v at %v", b, now)
			}
			before, now = d, b.until
		}
	})
}
