package bucket

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newAdmitter(t testing.TB, a Admission) *Admitter {
	t.Helper()
	x, err := NewAdmitter(a)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func perMinute(alg Algorithm, n, burst int64) Admission {
	return Admission{Rate: Rate{n, time.Minute, burst, ""}, Algorithm: alg}
}

const second = Micros(1_000_000)

// minute is a time at which a window of a minute begins.
const minute = t0 - t0%(60*second)

func TestSlidingWindowCounterVectors(t *testing.T) {
	for _, c := range []struct {
		before, present int64
		elapsed         Micros
		want            AdmitVerdict
	}{
		{88, 12 - 1, 15, Admitted}, // 88*45/60 + 12 = 78
		{88, 33, 15, Admitted},     // 66 + 34 = 100
		{88, 34, 15, Refused},
		{100, 0, 0, Refused},
		{100, 75, 45, Refused},
		{100, 74, 45, Admitted},
	} {
		x := newAdmitter(t, perMinute(SlidingWindowCounter, 100, 1))
		s := x.stateLocked("k", minute)
		s.window = windowCount{minute, c.before, c.present}
		x.keepLocked("k", s)
		if got := x.Admit("k", minute+c.elapsed*second, 1); got.Verdict != c.want {
			t.Errorf("%d before, %d now, %d s in: %v, want %v", c.before, c.present, c.elapsed, got, c.want)
		}
	}
}

// TestSlidingWindowCounterAtItsWorst checks the worst case of the estimate. Jobs that came late in a window count, a
// window later, as if they had come evenly. 100 jobs at the end of a window, and then as many as are admitted, are
// nearly 200 within a minute. So an estimate must not limit calls that cost money.
func TestSlidingWindowCounterAtItsWorst(t *testing.T) {
	x := newAdmitter(t, perMinute(SlidingWindowCounter, 100, 1))
	var in []Arrival
	for at := minute + 59_900_000; at < minute+179_000_000; at += 100_000 {
		for range 100 {
			if x.Admit("k", at, 1).Verdict != Admitted {
				break
			}
			in = append(in, Arrival{At: int64(at) * 1000})
		}
	}
	if v := Check(in, Expectation{Limit: sliding(199, time.Minute)}); v.Worst != 199 {
		t.Errorf("%d in the worst minute, want 199", v.Worst)
	}
}

func TestSoftLetsAPartMoreIn(t *testing.T) {
	for _, c := range []struct{ n, soft, want int64 }{{100, 10, 110}, {500, 5, 525}} {
		for _, alg := range []Algorithm{FixedWindow, SlidingLog, SlidingWindowCounter} {
			a := perMinute(alg, c.n, 1)
			a.SoftPercent = c.soft
			x := newAdmitter(t, a)
			counts := map[AdmitVerdict]int64{}
			for range c.n * 2 {
				counts[x.Admit("k", minute, 1).Verdict]++
			}
			if counts[Admitted] != c.n || counts[OverSoft] != c.want-c.n {
				t.Errorf("%s %d + %d %%: %v", alg, c.n, c.soft, counts)
			}
		}
	}
}

// TestCostsDoNotOverflow checks that a job above every limit is refused, whatever its cost, and leaves the limit intact.
func TestCostsDoNotOverflow(t *testing.T) {
	for _, alg := range []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingWindowCounter} {
		a := perMinute(alg, 5, 5)
		a.Elastic = true
		x := newAdmitter(t, a)
		x.Admit("k", t0, 5)
		for _, cost := range []int64{math.MaxInt64, math.MaxInt64 - 5, 1} {
			if got := x.Admit("k", t0, cost); got.Verdict != Refused {
				t.Errorf("%s: a job that costs %d: %v", alg, cost, got)
			}
		}
	}
}

// TestEqualIsEnough checks that a bucket that holds five takes a job of five.
func TestEqualIsEnough(t *testing.T) {
	for _, alg := range []Algorithm{TokenBucket, LeakyBucket} {
		x := newAdmitter(t, perMinute(alg, 5, 5))
		if got := x.Admit("k", t0, 5); got.Verdict != Admitted {
			t.Errorf("%s: %v", alg, got)
		}
		if got := x.Admit("k", t0, 6); got != (Admittance{Verdict: Refused}) {
			t.Errorf("%s: a cost that never fits: %v", alg, got)
		}
		if got := x.Admit("k", t0+12*second, 1); got.Verdict != Admitted {
			t.Errorf("%s: one token in 12 s: %v", alg, got)
		}
	}
}

func TestFixedWindowVectors(t *testing.T) {
	x := newAdmitter(t, perMinute(FixedWindow, 10, 1))
	n := 0
	for _, s := range []Micros{30, 59, 60, 89} {
		for range 10 {
			if x.Admit("k", minute+s*second, 1).Verdict == Admitted {
				n++
			}
		}
	}
	if n != 20 {
		t.Errorf("%d around the edge of two windows of 10, want 20", n)
	}
	if got := x.Admit("k", minute+90*second, 1); got.Retry != 30*time.Second {
		t.Errorf("%v", got)
	}
}

// TestRefusedJobsDoNotCount checks that a sliding log still admits 20 jobs a minute of a client that retries every
// second.
func TestRefusedJobsDoNotCount(t *testing.T) {
	for _, alg := range []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingWindowCounter} {
		x := newAdmitter(t, perMinute(alg, 20, 1))
		n := 0
		for i := range 600 {
			if x.Admit("k", minute+Micros(i)*second, 1).Verdict == Admitted {
				n++
			}
		}
		if n < 180 || n > 201 {
			t.Errorf("%s: %d in ten minutes of 20, want about 200", alg, n)
		}
	}
}

func TestElasticLendsWhatOthersLeave(t *testing.T) {
	a := perMinute(FixedWindow, 10, 1)
	a.Elastic = true
	x := newAdmitter(t, a)
	for i := range 4 {
		x.Admit(fmt.Sprint("quiet", i), minute, 1)
	}
	counts := map[AdmitVerdict]int{}
	for range 100 {
		counts[x.Admit("loud", minute+second, 1).Verdict]++
	}
	if counts[Admitted] != 10 || counts[Borrowed] != 5*10-10-4 {
		t.Errorf("%v, want 10 of its own and the 36 that four quiet keys leave", counts)
	}
	if got := x.Admit("quiet0", minute+2*second, 9); got.Verdict != Admitted {
		t.Errorf("what was lent is missing: %v", got)
	}
}

// TestAdmittedInAnyWindow checks that each algorithm admits no more than it may, and that a job fits at its Retry.
func TestAdmittedInAnyWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Admission{
			Rate:      Rate{rapid.Int64Range(1, 30).Draw(t, "n"), time.Minute, rapid.Int64Range(1, 30).Draw(t, "burst"), ""},
			Algorithm: rapid.SampledFrom([]Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingWindowCounter}).Draw(t, "algorithm"),
		}
		x, err := NewAdmitter(a)
		if err != nil {
			t.Fatal(err)
		}
		now := minute
		var in []Arrival
		for range 300 {
			now += Micros(rapid.Int64Range(0, 6_000_000).Draw(t, "gap"))
			cost := rapid.Int64Range(1, 3).Draw(t, "cost")
			got := x.Admit("k", now, cost)
			if got.Verdict == Refused && got.Retry > 0 {
				now = now.Add(got.Retry) + 1
				got = x.Admit("k", now, cost)
				if got.Verdict == Refused {
					t.Fatalf("refused after the %s it was told to wait", got.Retry)
				}
			}
			if got.Verdict == Admitted {
				in = append(in, Arrival{At: int64(now) * 1000, Cost: cost})
			}
		}
		limit := map[Algorithm]int64{
			TokenBucket: a.Rate.Burst + a.Rate.Count, LeakyBucket: a.Rate.Burst + a.Rate.Count,
			FixedWindow: 2 * a.Rate.Count, SlidingLog: a.Rate.Count, SlidingWindowCounter: 2 * a.Rate.Count,
		}[a.Algorithm]
		if v := Check(in, Expectation{Limit: sliding(limit, time.Minute)}); v.Outcome != Pass {
			t.Fatalf("%s: %v", a.Algorithm, v)
		}
	})
}

func TestAdmitterForgetsIdleKeys(t *testing.T) {
	x := newAdmitter(t, perMinute(SlidingLog, 2, 1))
	for i := range 1000 {
		x.Admit(fmt.Sprint(i), minute+Micros(i)*second, 1)
	}
	if n := len(x.recent) + len(x.older); n > 300 {
		t.Errorf("%d keys kept, though one counts for a minute", n)
	}
}

// TestBorrowedIsTakenBack checks a job that borrowed what other keys left, and was then refused elsewhere. What it
// borrowed can be lent again. It never counted against its own key.
func TestBorrowedIsTakenBack(t *testing.T) {
	a := perMinute(FixedWindow, 2, 1)
	a.Elastic = true
	x := newAdmitter(t, a)
	x.Admit("other", minute, 1)
	for _, want := range []AdmitVerdict{Admitted, Admitted, Borrowed} {
		got := x.Admit("k", minute, 1)
		if got.Verdict != want {
			t.Fatalf("%s, want %s", got.Verdict, want)
		}
		if got.Verdict == Borrowed {
			x.TakeBack("k", got, 1)
		}
	}
	if got := x.Admit("k", minute, 1); got.Verdict != Borrowed {
		t.Errorf("after a borrowed one was taken back: %s", got.Verdict)
	}
	if got := x.Admit("k", minute, 1); got.Verdict != Refused {
		t.Errorf("two of two keys with two each, and one more: %s", got.Verdict)
	}
}

// TestAdmissionByAClockThatGoesBack checks that a clock that goes back opens no new window.
func TestAdmissionByAClockThatGoesBack(t *testing.T) {
	for _, alg := range []Algorithm{FixedWindow, SlidingWindowCounter, SlidingLog, TokenBucket} {
		x := newAdmitter(t, perMinute(alg, 2, 2))
		for range 2 {
			x.Admit("k", minute, 1)
		}
		if got := x.Admit("k", minute-90*second, 1); got.Verdict != Refused {
			t.Errorf("%s: a third of two, by a clock that went back: %s", alg, got.Verdict)
		}
	}
}

// TestTakenBackLeavesNothing checks that jobs that are admitted and taken back leave no entries in the log of their key,
// whatever the order.
func TestTakenBackLeavesNothing(t *testing.T) {
	x := newAdmitter(t, perMinute(SlidingLog, 10, 1))
	x.Admit("k", minute, 1)
	for i := range Micros(1000) {
		first := x.Admit("k", minute+2*i, 1)
		second := x.Admit("k", minute+2*i+1, 2)
		x.TakeBack("k", first, 1)
		x.TakeBack("k", second, 2)
	}
	if log := x.recent["k"].log; len(log.entries) != 1 || log.sum != 1 {
		t.Errorf("%d entries of %d units, want 1 of 1", len(log.entries), log.sum)
	}
}

// TestRefusedKeysAreNotKept checks that an admitter keeps nothing of keys that have no accepted job: a job may be
// refused here, or be taken back because it was refused elsewhere.
func TestRefusedKeysAreNotKept(t *testing.T) {
	for _, alg := range []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingLog, SlidingWindowCounter} {
		x := newAdmitter(t, perMinute(alg, 2, 2))
		for i := range 1000 {
			key := fmt.Sprint(i)
			if got := x.Admit(key, minute+Micros(i), 5); got.Verdict != Refused {
				t.Fatalf("%s: a job of five within two: %s", alg, got.Verdict)
			}
			first, second := x.Admit(key, minute+Micros(i), 1), x.Admit(key, minute+Micros(i), 1)
			x.TakeBack(key, first, 1)
			x.TakeBack(key, second, 1)
		}
		if n := len(x.recent) + len(x.older); n != 0 {
			t.Errorf("%s keeps %d keys", alg, n)
		}
	}
}

// TestTakenBackTooLate checks a job that is taken back when it no longer counts. Meanwhile another job of its key was
// taken back, too, so the key was forgotten. The late one must not take off a job that counts.
func TestTakenBackTooLate(t *testing.T) {
	x := newAdmitter(t, perMinute(SlidingLog, 1, 1))
	late := x.Admit("k", minute, 1)
	x.TakeBack("k", x.Admit("k", minute+61*second, 1), 1)
	x.Admit("k", minute+62*second, 1)
	x.TakeBack("k", late, 1)
	if got := x.Admit("k", minute+63*second, 1); got.Verdict != Refused {
		t.Errorf("a second job within a minute: %s", got.Verdict)
	}
}
