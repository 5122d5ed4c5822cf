package whatif

import (
	"math"
	"slices"
	"time"

	"weir/bucket"
)

// NewTrace returns an empty trace for jobs that a running weir recorded. limits names the limits for which the caller
// knows what each call took. The caller adds the jobs and their calls in any order, and then calls Finish.
func NewTrace(limits []string) *Trace { return &Trace{limits: limits} }

// Limits returns the names of the limits for which the trace knows what each call took.
func (t *Trace) Limits() []string { return t.limits }

// Add adds a job that arrived at a time. It returns the job's number.
func (t *Trace) Add(key string, at bucket.Micros) int {
	row := uint32(len(t.arrivals)) //nolint:gosec // at most MostJobs
	t.arrivals = append(t.arrivals, arrival{at: at, cost: 1, took: unknown, key: t.place(key), row: row})
	for range t.limits {
		t.takes = append(t.takes, unknown)
	}
	return int(row)
}

// Knows reports whether a job of the key was added.
func (t *Trace) Knows(key string) bool {
	_, known := t.index[key]
	return known
}

// At returns when a job arrived.
func (t *Trace) At(job int) bucket.Micros { return t.arrivals[job].at }

// CameAt moves the arrival of a job to a time, if that is earlier than the arrival known so far.
func (t *Trace) CameAt(job int, at bucket.Micros) { t.arrivals[job].at = min(t.arrivals[job].at, at) }

// Called adds a call of a job: how long it lasted, and what it took from each of the limits. counts says whether limits
// count it as a call. They do not count a call that was not sent, and they count a call of several jobs once.
func (t *Trace) Called(job int, lasted time.Duration, counts bool, took []int64) {
	a := &t.arrivals[job]
	average := (int64(a.lasts)*int64(a.calls) + max(1, lasted.Microseconds())) / (int64(a.calls) + 1)
	a.lasts = uint32(max(1, min(average, math.MaxUint32))) //nolint:gosec // bounded
	a.calls = min(a.calls, math.MaxUint16-1) + 1
	if counts {
		a.taken = min(a.taken, mean-2) + 1
	}
	t.Took(job, took)
}

// Took adds what a job took from each of the limits, without adding a call.
func (t *Trace) Took(job int, took []int64) {
	for i, units := range took {
		sum := &t.takes[int(t.arrivals[job].row)*len(t.limits)+i]
		*sum = max(0, *sum) + units
	}
}

// Finish sorts the jobs by their arrivals, and removes those that came after until. A job without a recorded call
// counts as if it had been called once, for as long and for as many units as an average call of the other jobs. If no
// job was called, the configuration says what a call takes.
func (t *Trace) Finish(until bucket.Micros) {
	t.arrivals = slices.DeleteFunc(t.arrivals, func(a arrival) bool { return a.at > until })
	calls, lasted := int64(0), int64(0)
	sums := make([]float64, len(t.limits))
	for i := range t.arrivals {
		a := &t.arrivals[i]
		calls += int64(a.calls)
		lasted += int64(a.calls) * int64(a.lasts)
		for k := range sums {
			sums[k] += float64(max(0, t.takes[int(a.row)*len(t.limits)+k]))
		}
	}
	for i := range t.arrivals {
		a := &t.arrivals[i]
		if a.calls > 0 {
			continue
		}
		if a.taken = mean; calls == 0 {
			continue
		}
		a.lasts, a.calls = uint32(lasted/calls), 1 //nolint:gosec // a mean of such numbers
		for k := range sums {
			t.takes[int(a.row)*len(t.limits)+k] = int64(math.Ceil(sums[k] / float64(calls)))
		}
	}
	t.sort()
}

// On returns a trace with the jobs that came on some days. Each day is named by its beginning.
func (t *Trace) On(days map[bucket.Micros]bool) *Trace {
	on := *t
	on.arrivals = nil
	for i := range t.arrivals {
		if at := t.arrivals[i].at; days[at-at%perDay] {
			on.arrivals = append(on.arrivals, t.arrivals[i])
		}
	}
	return &on
}

// units returns what one call of a job took on average from the limit in a column. known is false if no call of the
// trace tells that.
func (t *Trace) units(a *arrival, column int) (units int64, known bool) {
	sum := t.takes[int(a.row)*len(t.limits)+column]
	if sum == unknown {
		return 0, false
	}
	calls := int64(max(1, a.calls))
	return (sum + calls - 1) / calls, true
}

// Day is how many jobs of a trace came on one day of UTC, and what their calls took from each of the trace's limits.
type Day struct {
	Begin bucket.Micros
	Jobs  int
	Calls int // recorded, without those that limits do not count
	Takes []int64
}

// perDay is the length of a day.
const perDay = bucket.Micros(24 * time.Hour / time.Microsecond)

// Days returns the days from the first to the last job, including days without jobs. If there are more than most, it
// returns the newest ones.
func (t *Trace) Days(most int) (days []Day) {
	if len(t.arrivals) == 0 {
		return nil
	}
	first, last := t.arrivals[0].at/perDay, t.arrivals[len(t.arrivals)-1].at/perDay
	first = max(first, last-bucket.Micros(most)+1)
	for number := first; number <= last; number++ {
		days = append(days, Day{Begin: number * perDay, Takes: make([]int64, len(t.limits))})
	}
	for i := range t.arrivals {
		a := &t.arrivals[i]
		if a.at/perDay < first {
			continue
		}
		d := &days[a.at/perDay-first]
		if d.Jobs++; a.taken == mean {
			continue
		}
		d.Calls += int(a.taken)
		for k := range t.limits {
			d.Takes[k] += max(0, t.takes[int(a.row)*len(t.limits)+k])
		}
	}
	return days
}
