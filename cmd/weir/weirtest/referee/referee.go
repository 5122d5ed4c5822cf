// Package referee judges a weir by the calls that a fake api recorded.
package referee

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
)

// Referee checks the times of calls against limits. If the machine lets programs wait, the recorded times are later
// than the calls. A breach that this error could cause is logged and does not fail the test. The planned times in the
// ledger have no such error.
type Referee struct {
	T      *testing.T
	API    *fakeapi.API
	HeldUp *machine.HeldUp
}

// MeasureHeldUp measures until the test ends how long this machine lets programs wait.
func MeasureHeldUp(t *testing.T) *machine.HeldUp {
	h := machine.MeasureHeldUp()
	t.Cleanup(h.Stop)
	return h
}

// Eps returns the largest error of a recorded time. A call passes through two programs, and the machine may let each of
// them wait.
func (f Referee) Eps() time.Duration { return 2 * f.HeldUp.Worst() }

// Hold checks calls against one limit.
func (f Referee) Hold(what string, calls []bucket.Arrival, l bucket.Limit, jitter time.Duration) {
	f.T.Helper()
	eps := f.Eps()
	v := bucket.Check(calls, bucket.Expectation{Limit: l, Jitter: jitter, Eps: eps})
	f.T.Logf("%s: %s; stamps are off by %s at most", what, v, eps)
	if v.Outcome == bucket.Fail {
		f.T.Errorf("%s: %s is not kept: %s; stamps are off by %s at most", what, l.Name, v, eps)
	}
}

// CheckOrder checks that jobs arrived in the order of the numbers in their bodies.
func (f Referee) CheckOrder(arrivals []fakeapi.Arrival) {
	f.T.Helper()
	last, at := -1, int64(0)
	for _, a := range arrivals {
		var body struct{ N int }
		if err := json.Unmarshal(a.Body, &body); err != nil {
			f.T.Fatalf("body %q: %v", a.Body, err)
		}
		if late := time.Duration(a.At - at); body.N <= last && late > f.Eps() {
			f.T.Fatalf("job %d was called %s after job %d", body.N, late, last)
		}
		if body.N > last {
			last, at = body.N, a.At
		}
	}
}

// Used checks that the fastest n consecutive calls used at least the fraction part of the rate while jobs waited. If
// weir had left capacity unused, no n calls would be that fast. The gap between calls may be longer by the time that
// the machine lets programs wait.
func (f Referee) Used(arrivals []fakeapi.Arrival, n int, perSecond, part float64) {
	f.T.Helper()
	best := time.Duration(arrivals[len(arrivals)-1].At - arrivals[0].At)
	for i := range len(arrivals) - n {
		best = min(best, time.Duration(arrivals[i+n].At-arrivals[i].At))
	}
	gap, slack := best/time.Duration(n), f.HeldUp.Worst()
	f.T.Logf("calls came every %s at best, %.1f a second may; this machine let programs wait for up to %s", gap, perSecond, slack)
	if most := time.Duration(float64(time.Second) / perSecond / part); gap > most+slack {
		f.T.Errorf("calls came every %s at best while jobs waited, %.1f a second may; this machine let programs wait for up to %s", gap, perSecond, slack)
	}
}

// WaitedFor reports whether a job that was submitted well before until was not called before until.
func (f Referee) WaitedFor(sent, called, until int64) bool {
	return called >= until && time.Duration(until-sent) > time.Second+f.Eps()
}

func (f Referee) CheckRate(arrivals []fakeapi.Arrival, rate bucket.Rate) {
	f.T.Helper()
	f.Hold("calls", Stamped(arrivals), bucket.Limit{Name: "rate", Rate: &rate}, 20*time.Millisecond)
}

func (f Referee) CheckRateOf(arrivals []fakeapi.Arrival, perSecond int64) {
	f.T.Helper()
	f.CheckRate(arrivals, bucket.Rate{Count: perSecond, Per: time.Second, Burst: 1})
}

func (f Referee) CheckStamps(what string, stamps []bucket.Arrival, l bucket.Limit) {
	f.T.Helper()
	f.Hold(what, stamps, l, 30*time.Millisecond)
}

// CheckArrivals checks the calls of a key's only job: their number, their idempotency keys, and that no call comes
// earlier than the answer before it asked for.
func (f Referee) CheckArrivals(t *testing.T, key string, calls int, idempotent bool, orders []string) {
	t.Helper()
	arrivals := f.API.Arrivals(key)
	if len(arrivals) != calls {
		t.Errorf("%d calls at the api, want %d", len(arrivals), calls)
	}
	for i, a := range arrivals {
		want := ""
		if idempotent {
			want = "id-" + key
		}
		if got := a.Header("Idempotency-Key"); got != want || string(a.Body) != "pay "+key && a.Ending != fakeapi.ResetHeader || a.Method != http.MethodPost {
			t.Errorf("call %d: %s %q with the key %q, want %q", i+1, a.Method, a.Body, got, want)
		}
		if i == 0 || i > len(orders) {
			continue
		}
		_, after, _ := strings.Cut(orders[i-1], "retry-after=")
		if after == "DATE" {
			after = "1" // the least wait for a date nearly two seconds ahead
		}
		if seconds, err := strconv.ParseFloat(after, 64); err == nil && float64(a.At-arrivals[i-1].End) < seconds*1e9 {
			t.Errorf("call %d came %v after an answer that asked for %s s", i+1, time.Duration(a.At-arrivals[i-1].End), after)
		}
	}
}

// CheckHeld checks that no later call breaks the hold of length least that the first answer asked for. holds says
// whether that hold is for the api or for the key. The job of the key other was submitted at sent.
func (f Referee) CheckHeld(holds string, least time.Duration, sent int64) {
	f.T.Helper()
	arrivals := f.API.All()
	until := arrivals[0].At + int64(least)
	for _, a := range arrivals[1:] {
		if a.At < until && (a.Key == arrivals[0].Key || holds == "api") {
			f.T.Errorf("%s %q was called %v before the hold was over", a.Key, a.Body, time.Duration(until-a.At))
		}
		if a.Key == "other" && holds == "key" && f.WaitedFor(sent, a.At, until) {
			f.T.Errorf("the hold of one key held another")
		}
	}
}

// CheckSlots checks the planned times of calls against a limit.
func CheckSlots(t *testing.T, slots []bucket.Arrival, l bucket.Limit, jitter time.Duration) {
	t.Helper()
	v := bucket.Check(slots, bucket.Expectation{Limit: l, Jitter: jitter})
	t.Logf("%s as planned: %s", l.Name, v)
	if v.Outcome != bucket.Pass {
		t.Errorf("limit %s is not kept by the slots: %s", l.Name, v)
	}
}
