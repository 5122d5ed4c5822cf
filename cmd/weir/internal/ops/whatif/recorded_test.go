package whatif

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest"
)

const t0 = bucket.Micros(sinceEpoch * 1_000_000)

// recordedJobs returns a trace of n jobs of one key, a millisecond apart, each of which was called that many times. One
// call lasted lasted, and took units from the limit spend.
func recordedJobs(n, calls int, lasted time.Duration, units int64) *Trace {
	t := NewTrace([]string{"spend"})
	for i := range n {
		job := t.Add("k", t0+bucket.Micros(i*1000))
		for range calls {
			t.Called(job, lasted, []int64{units})
		}
	}
	t.Finish(t0.Add(time.Hour))
	return t
}

func fastKeys() bucket.KeyLimits {
	return bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 4}
}

// TestPlanOfRecordedCalls checks that a recorded job takes as many slots and units, for as long, as its calls took.
func TestPlanOfRecordedCalls(t *testing.T) {
	spend := bucket.Limit{Name: "spend", Cost: ingest.FromHeader("Weir-Cost"), Quota: &bucket.Quota{
		Count: 100, Window: bucket.Fixed, Per: time.Hour,
	}}
	one := fastKeys()
	one.InFlight = 1
	for name, c := range map[string]struct {
		trace *Trace
		key   bucket.KeyLimits
		holds func(o *Outcome) bool
	}{
		"as many units":             {recordedJobs(10, 1, 0, 10), fastKeys(), func(o *Outcome) bool { return o.Called == 10 && o.Wait.Max < 100 }},
		"more units":                {recordedJobs(10, 1, 0, 11), fastKeys(), func(o *Outcome) bool { return o.Called == 10 && o.Wait.Max > 60_000 }},
		"units of a retry":          {recordedJobs(10, 2, 0, 6), fastKeys(), func(o *Outcome) bool { return o.Called == 10 && o.Wait.Max > 60_000 }},
		"more than the limit holds": {recordedJobs(1, 1, 0, 200), fastKeys(), func(o *Outcome) bool { return o.Called == 1 && o.Refused == 0 }},
		"long calls":                {recordedJobs(5, 1, time.Second, 1), one, func(o *Outcome) bool { return o.Wait.Max > 3900 && o.Wait.Max < 4100 }},
		"retries hold their key":    {recordedJobs(5, 2, time.Second, 1), one, func(o *Outcome) bool { return o.Called == 5 && o.Wait.Max > 4900 }},
	} {
		candidate := Candidate{Rules: bucket.Rules{Key: c.key, Shared: []bucket.Limit{spend}}, RetryMin: time.Millisecond, RetryMax: time.Millisecond}
		o, err := Run(t.Context(), c.trace, &candidate, quiet)
		if err != nil || !c.holds(o) {
			t.Errorf("%s: %+v %v", name, o, err)
		}
	}
}

// TestTraceOfJobsWithoutCalls checks that jobs that were never called count as calls of the others do on average, and
// that days have all jobs, and the calls and units that were recorded.
func TestTraceOfJobsWithoutCalls(t *testing.T) {
	trace := NewTrace([]string{"spend"})
	for i, units := range []int64{4, 9} {
		trace.Called(trace.Add("k", t0.Add(24*time.Hour)), time.Duration(i+1)*time.Second, []int64{units})
	}
	refused := trace.Add("k", t0.Add(72*time.Hour))
	trace.CameAt(refused, t0)
	trace.CameAt(refused, t0.Add(time.Hour))
	trace.Add("later", t0.Add(100*time.Hour))
	trace.Finish(t0.Add(99 * time.Hour))
	if a := trace.arrivals[0]; trace.Jobs() != 3 || a.at != t0 || a.lasts != 1_500_000 || a.calls != 1 {
		t.Errorf("the job without calls is %+v of %d", a, trace.Jobs())
	}
	if units, known := trace.units(&trace.arrivals[0], 0); units != 7 || !known {
		t.Errorf("it takes %d units, want 7, which is 6.5 rounded up", units)
	}
	days := trace.Days(10)
	if len(days) != 2 || days[0].Jobs != 1 || days[0].Calls != 0 || days[0].Takes[0] != 0 || days[1].Jobs != 2 || days[1].Takes[0] != 13 || days[1].Calls != 2 {
		t.Errorf("days %+v", days)
	}
	if on := trace.On(map[bucket.Micros]bool{days[1].Begin: true}); on.Jobs() != 2 || on.arrivals[0].calls != 1 {
		t.Errorf("on the last day came %+v", on.arrivals)
	}
	if last := trace.Days(1); len(last) != 1 || last[0].Jobs != 2 {
		t.Errorf("the last day %+v", last)
	}
}

// TestLoad checks that a load multiplies the jobs of each key, and finds when a bucket overflows.
func TestLoad(t *testing.T) {
	at := make([]int64, 40)
	for i := range at {
		at[i] = int64(i) * 1_000_000
	}
	trace := traced(at, 2)
	slow := bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Capacity: 5, InFlight: 4}
	parts := []Part{{trace, Candidate{Rules: bucket.Rules{Key: slow}}}}
	for load, want := range map[float64]int{1: 40, 1.5: 60, 2: 80} {
		all, err := RunAll(t.Context(), parts, load, quiet)
		if err != nil || all[0].Jobs != want {
			t.Errorf("a load of %g makes %+v, want %d jobs, %v", load, all, want, err)
		}
	}
	load, all, err := Breaks(t.Context(), parts, MostLoad, quiet) // each key has a job every two seconds
	if err != nil || load < 2 || load > 3.2 || all[0].Overflowed == 0 {
		t.Errorf("the buckets bear a load of %g: %+v %v", load, all, err)
	}
	if n := all[0].Overflowed; n != 1 {
		t.Errorf("%d jobs overflow, want the first alone", n)
	}
	if load, _, err := Breaks(t.Context(), parts, 1.5, quiet); err != nil || load != 0 {
		t.Errorf("up to 1.5 a load of %g is found, %v", load, err)
	}
	tight := []Part{{traced(at, 1), Candidate{Rules: bucket.Rules{Key: bucket.KeyLimits{
		Rate: bucket.Rate{Count: 1, Per: 4 * time.Second, Burst: 1}, Capacity: 2, InFlight: 4,
	}}}}}
	for from, want := range map[float64][2]float64{1: {2, 4.2}, 1.5: {2, 4.2}, 5: {5, 5}, 64: {64, 64}} {
		factor, err := Faster(t.Context(), tight, from, quiet)
		if err != nil || factor < want[0] || factor > want[1] {
			t.Errorf("from %g on the rate must be %g times as high, %v", from, factor, err)
		}
	}
}

// TestPlanOfAnAccount checks that a limit of an account counts the calls of all its apis, and that their jobs are all
// called.
func TestPlanOfAnAccount(t *testing.T) {
	apis := []string{"chat", "search"}
	var parts []Part
	for i, api := range apis {
		trace := NewTrace(nil)
		for n := range 30 {
			trace.Add(fmt.Sprint("k", n%3), t0+bucket.Micros(n*100_000+i))
		}
		trace.Finish(t0.Add(time.Hour))
		key := fastKeys()
		key.Capacity = 8
		parts = append(parts, Part{trace, Candidate{Rules: bucket.Rules{
			Key: key, Jitter: 5 * time.Millisecond, In: &bucket.Membership{Account: "acme", API: api, APIs: apis, Weight: 1, Jitter: 5 * time.Millisecond},
			Shared: []bucket.Limit{{Name: "acme/calls", Account: "acme", Rate: &bucket.Rate{Count: 10, Per: time.Second, Burst: 1}}},
		}}})
	}
	for i := range parts {
		if o, err := Run(t.Context(), parts[i].Trace, &parts[i].Candidate, quiet); err != nil || o.Overflowed > 0 || o.Called != 30 {
			t.Errorf("%s alone: %+v %v", apis[i], o, err)
		}
	}
	all, err := RunAll(t.Context(), parts, 1, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if over := all[0].Overflowed + all[1].Overflowed; over > 0 || max(all[0].Wait.Max, all[1].Wait.Max) < 2500 {
		t.Errorf("together: %+v %+v", all[0], all[1])
	}
	if all[0].Called != 30 || all[1].Called != 30 || !slices.Equal(all[0].Overflowing(), nil) {
		t.Errorf("together: %+v %+v", all[0], all[1])
	}
	for i := range parts {
		parts[i].Candidate.Rules.Key.Capacity = 3
	}
	if all, err = RunAll(t.Context(), parts, 1, quiet); err != nil || all[0].Overflowed+all[1].Overflowed == 0 {
		t.Errorf("with small buckets: %+v %v", all, err)
	}
}
