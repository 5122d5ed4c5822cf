package weirtest

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/dispatcher/ledger"

	"github.com/nats-io/nats.go/jetstream"
)

// Referee checks the times of calls against limits. If the machine lets programs wait, the recorded times are later
// than the calls. A breach that this error could cause is logged and does not fail the test. The planned times in the
// ledger have no such error.
type Referee struct {
	t      *testing.T
	heldUp *machine.HeldUp
}

// MeasureHeldUp measures until the test ends how long this machine lets programs wait.
func MeasureHeldUp(t *testing.T) *machine.HeldUp {
	h := machine.MeasureHeldUp()
	t.Cleanup(h.Stop)
	return h
}

// Eps returns the largest error of a recorded time. A call passes through two programs, and the machine may let each of
// them wait.
func (f Referee) Eps() time.Duration { return 2 * f.heldUp.Worst() }

// Hold checks calls against one limit.
func (f Referee) Hold(what string, calls []bucket.Arrival, l bucket.Limit, jitter time.Duration) {
	f.t.Helper()
	eps := f.Eps()
	v := bucket.Check(calls, bucket.Expectation{Limit: l, Jitter: jitter, Eps: eps})
	f.t.Logf("%s: %s; stamps are off by %s at most", what, v, eps)
	if v.Outcome == bucket.Fail {
		f.t.Errorf("%s: %s is not kept: %s; stamps are off by %s at most", what, l.Name, v, eps)
	}
}

// order checks that jobs arrived in the order of the numbers in their bodies.
func (f Referee) order(arrivals []fakeapi.Arrival) {
	f.t.Helper()
	last, at := -1, int64(0)
	for _, a := range arrivals {
		var body struct{ N int }
		if err := json.Unmarshal(a.Body, &body); err != nil {
			f.t.Fatalf("body %q: %v", a.Body, err)
		}
		if late := time.Duration(a.At - at); body.N <= last && late > f.Eps() {
			f.t.Fatalf("job %d was called %s after job %d", body.N, late, last)
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
	f.t.Helper()
	best := time.Duration(arrivals[len(arrivals)-1].At - arrivals[0].At)
	for i := range len(arrivals) - n {
		best = min(best, time.Duration(arrivals[i+n].At-arrivals[i].At))
	}
	gap, slack := best/time.Duration(n), f.heldUp.Worst()
	f.t.Logf("calls came every %s at best, %.1f a second may; this machine let programs wait for up to %s", gap, perSecond, slack)
	if most := time.Duration(float64(time.Second) / perSecond / part); gap > most+slack {
		f.t.Errorf("calls came every %s at best while jobs waited, %.1f a second may; this machine let programs wait for up to %s", gap, perSecond, slack)
	}
}

// WaitedFor reports whether a job that was submitted well before until was not called before until.
func (f Referee) WaitedFor(sent, called, until int64) bool {
	return called >= until && time.Duration(until-sent) > time.Second+f.Eps()
}

func (r *Rig) Referee() Referee { return Referee{r.T, r.HeldUp} }

func (r *Rig) CheckOrder(arrivals []fakeapi.Arrival) {
	r.T.Helper()
	r.Referee().order(arrivals)
}

func (r *Rig) CheckRate(arrivals []fakeapi.Arrival, rate bucket.Rate) {
	r.T.Helper()
	r.Referee().Hold("calls", Stamped(arrivals), bucket.Limit{Name: "rate", Rate: &rate}, 20*time.Millisecond)
}

// CheckStarts checks the ledger: the order of first calls in each key, and the planned slots against limits. A busy
// machine distorts neither.
func (r *Rig) CheckStarts(limits ...bucket.Limit) {
	r.T.Helper()
	var slots []bucket.Arrival
	last := map[string]uint64{}
	for _, c := range RecordsOf(r.T, r.JS) {
		if c.Call == 1 && c.Seq < last[c.API+c.Key] {
			r.T.Errorf("key %s: job %d was first called after job %d", c.Key, c.Seq, last[c.API+c.Key])
		}
		if len(limits) > 0 && (len(c.Limits) == 0 || len(c.Costs) != len(c.Limits)) {
			r.T.Fatalf("a record does not tell its costs: %+v", c)
		}
		last[c.API+c.Key] = max(last[c.API+c.Key], c.Seq)
		slots = append(slots, bucket.Arrival{At: c.Planned.UnixNano(), End: c.Ended.UnixNano()})
	}
	for _, l := range limits {
		checkSlots(r.T, slots, l, RedisJitter)
	}
}

// checkSlots checks the planned times of calls against a limit.
func checkSlots(t *testing.T, slots []bucket.Arrival, l bucket.Limit, jitter time.Duration) {
	t.Helper()
	v := bucket.Check(slots, bucket.Expectation{Limit: l, Jitter: jitter})
	t.Logf("%s as planned: %s", l.Name, v)
	if v.Outcome != bucket.Pass {
		t.Errorf("limit %s is not kept by the slots: %s", l.Name, v)
	}
}

// RecordsOf returns the ledger, in the order in which the calls started.
func RecordsOf(t *testing.T, js jetstream.JetStream) []ledger.Record {
	t.Helper()
	s, err := js.Stream(t.Context(), ledger.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	var records []ledger.Record
	for seq := max(1, s.CachedInfo().State.FirstSeq); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var c ledger.Record
		if err := json.Unmarshal(m.Data, &c); err != nil {
			t.Fatal(err)
		}
		records = append(records, c)
	}
	slices.SortFunc(records, func(a, b ledger.Record) int { return a.Started.Compare(b.Started) })
	return records
}
