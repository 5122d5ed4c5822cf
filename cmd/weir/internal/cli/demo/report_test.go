package demo

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
)

// TestDirect compares direct, the computed outcome without weir, with a count by hand.
func TestDirect(t *testing.T) {
	second := fakeapi.VendorLimit{Count: 5, Per: time.Second}
	for _, c := range []struct {
		name string
		sent []time.Duration
		want directly
	}{
		{"all fit", []time.Duration{0, 1, 2}, directly{jobs: 3, served: 3, allServed: 2}},
		{"twelve at once", make([]time.Duration, 12), directly{jobs: 12, served: 5, refusals: 7 + 2, allServed: 2 * time.Second}},
		{"a hundred at once", make([]time.Duration, 100), directly{jobs: 100, served: 5, refusals: 950, allServed: 19 * time.Second}},
		{"the sixth comes a second later", []time.Duration{0, 0, 0, 0, 0, time.Second}, directly{jobs: 6, served: 6, allServed: time.Second}},
	} {
		if got := direct(c.sent, second); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestVerdictCatches checks that the demo's verdict finds each of the faults that the test plants in correct data.
func TestVerdictCatches(t *testing.T) {
	const crashAt = 4
	for _, c := range []struct {
		name  string
		finds string // "": the verdict is pass
		plant func(calls []fakeapi.Arrival) []fakeapi.Arrival
	}{
		{"nothing", "", func(a []fakeapi.Arrival) []fakeapi.Arrival { return a }},
		{"a job never called", "lost", func(a []fakeapi.Arrival) []fakeapi.Arrival { return slices.Delete(a, 2, 3) }},
		{"a job billed again", "billed twice", func(a []fakeapi.Arrival) []fakeapi.Arrival { return append(a, again(a[len(a)-1], a[2].Fields)) }},
		{"two jobs exchanged", "order", func(a []fakeapi.Arrival) []fakeapi.Arrival {
			a[6].Fields, a[7].Fields = a[7].Fields, a[6].Fields
			return a
		}},
		{"a call too early", "rate", func(a []fakeapi.Arrival) []fakeapi.Arrival { a[6].At -= int64(80 * time.Millisecond); return a }},
		{"a 429", "429s", func(a []fakeapi.Arrival) []fakeapi.Arrival { a[3].Status = 429; return a }},
		{"a refused job called", "unasked", func(a []fakeapi.Arrival) []fakeapi.Arrival {
			return append(a, again(a[len(a)-1], []fakeapi.Field{{Name: idHeader, Value: "refused"}}))
		}},
		{"half the rate", "speed", func(a []fakeapi.Arrival) []fakeapi.Arrival {
			for i := range a {
				a[i].At *= 2
			}
			return a
		}},
	} {
		calls, promised := rightCalls()
		crash := crash{at: calls[crashAt].At + 1, gone: calls[crashAt].At + 2}
		if c.finds == "speed" {
			crash.at, crash.gone = 2*crash.at, 2*crash.gone
		}
		r := &report{
			Sent: len(promised) + 3, Accepted: len(promised), Throttled: 3, Letters: 3, Events: 3,
			Results: len(promised), AsideMS: 1,
		}
		calls = c.plant(calls)
		r.audit(calls, promised)
		r.pace(calls, crash)
		found := ""
		for _, f := range r.findings() {
			if f.outcome != bucket.Pass {
				found += f.name
			}
		}
		if found != c.finds {
			t.Errorf("%s: the verdict found %q, want %q", c.name, found, c.finds)
		}
	}
}

// TestVerdictOnBusyMachine checks that a call with an early recorded time fails only if the delays of the machine do
// not explain the time.
func TestVerdictOnBusyMachine(t *testing.T) {
	for heldUp, want := range map[time.Duration]bucket.Outcome{
		0: bucket.Fail, 10 * time.Millisecond: bucket.Fail, 100 * time.Millisecond: bucket.Inconclusive,
	} {
		calls, promised := rightCalls()
		calls[6].At -= int64(80 * time.Millisecond)
		r := &report{
			Sent: len(promised) + 3, Accepted: len(promised), Throttled: 3, Letters: 3, Events: 3,
			Results: len(promised), AsideMS: 1, HeldUp: heldUp,
		}
		r.audit(calls, promised)
		r.pace(calls, crash{at: calls[3].At + 1, gone: calls[3].At + 2})
		if got := worst(r.findings()); got != want {
			t.Errorf("held up for %v: %s, want %s: %+v", heldUp, got, want, r.findings())
		}
	}
}

// rightCalls returns ten calls at their rate, and their receipts.
func rightCalls() (calls []fakeapi.Arrival, promised []receipt) {
	for i := range 10 {
		id := "job-" + strconv.Itoa(i)
		promised = append(promised, receipt{Job: id, Seq: uint64(2*i + 1)})
		calls = append(calls, fakeapi.Arrival{
			Number: int64(i + 1), At: int64(i+1) * int64(201*time.Millisecond), End: int64(i+1)*int64(201*time.Millisecond) + 1, Key: busyKey,
			Fields: []fakeapi.Field{{Name: idHeader, Value: id}}, Ending: fakeapi.Answered, Status: 200, Billed: true, Charge: callPrice,
		})
	}
	return calls, promised
}

// again returns one more call, a whole interval after the last one.
func again(last fakeapi.Arrival, fields []fakeapi.Field) fakeapi.Arrival {
	last.Number++
	last.At += int64(201 * time.Millisecond)
	last.End = last.At + 1
	last.Fields = fields
	return last
}
