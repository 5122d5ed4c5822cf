package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"weir/bucket"
)

// foreseen runs a schedule on a real store in virtual time. It notes for every job when its call was forecast,
// and when it started.
type foreseen struct {
	*testing.T
	s     *Schedule
	store *bucket.Memory
	part  *Partition
	now   bucket.Micros
	call  time.Duration // how long one takes
	load  time.Duration // how long it takes to make a job ready
	loads map[*Job]bucket.Micros
	made  int // ready, so many times
	seq   uint64
	said  map[uint64]bucket.Micros
	began map[uint64]bucket.Micros
	endAt map[*Job]bucket.Micros

	estimate, actual int64 // units of each call
}

func foresee(t *testing.T, call time.Duration, rules bucket.Rules) *foreseen {
	t.Helper()
	f := &foreseen{
		T: t, part: &Partition{Open: true}, now: bucket.MicrosOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), call: call,
		said: map[uint64]bucket.Micros{}, began: map[uint64]bucket.Micros{}, endAt: map[*Job]bucket.Micros{},
		loads: map[*Job]bucket.Micros{}, estimate: 1, actual: 1,
	}
	var err error
	if f.store, err = bucket.NewMemory(rules, func() bucket.Micros { return f.now }); err != nil {
		t.Fatal(err)
	}
	f.s = New(&Policy{Rules: rules}, Pace{
		PrepareLead: LeastLead, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls,
	}, func(string) bucket.Micros { return 0 })
	return f
}

// submit adds a job, and returns its sequence.
func (f *foreseen) submit(key string) uint64 {
	f.seq++
	position := 1
	if q := f.s.byKey[key]; q != nil {
		position += q.Depth()
	}
	f.said[f.seq] = f.s.At(f.now).ETA(Place{Key: key, Position: position})
	f.s.Push(key, f.seq, f.part)
	return f.seq
}

// run lets time pass, a millisecond at a time.
func (f *foreseen) run(d time.Duration) {
	f.Helper()
	for end := f.now.Add(d); f.now < end; f.now = f.now.Add(time.Millisecond) {
		f.s.Shared.Learn(f.store.Levels())
		for _, j := range inOrder(f.loads) {
			if f.loads[j] <= f.now {
				delete(f.loads, j)
				f.s.Pipe.LearnLead(f.load)
				f.s.Loaded(j)
			}
		}
		for _, j := range inOrder(f.endAt) {
			if f.endAt[j] <= f.now {
				delete(f.endAt, j)
				f.s.Pipe.LearnCall(f.call)
				actual := f.each(f.actual)
				f.use([]bucket.Use{{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs, Actual: actual}})
				f.s.Ended(j, actual, f.now)
				f.askAgain(f.s.UnitsCameBack(f.now))
				f.s.Finished(j)
			}
		}
		for {
			fx := f.s.Step(f.now)
			f.made += len(fx.Load)
			for _, j := range fx.Load {
				j.Policy, j.Costs = f.s.policy, f.each(f.estimate)
				if f.load > 0 {
					f.loads[j] = f.now.Add(f.load)
					continue
				}
				f.s.Loaded(j)
			}
			for _, j := range fx.Start {
				j.Calls++
				f.began[j.Seq], f.endAt[j] = f.now, f.now.Add(f.call)
				f.s.Sent(j, f.now)
			}
			f.use(fx.Unused)
			if len(fx.Asks) > 0 {
				a, err := f.store.Reserve(f.Context(), fx.Asks)
				f.s.Answer(&fx, Reply{Sent: f.now, Came: f.now, Answers: a, Err: err})
			}
			if f.s.Next(f.now) > f.now {
				break
			}
		}
	}
}

// inOrder returns the jobs of a map by their sequences.
func inOrder[V any](jobs map[*Job]V) []*Job {
	return slices.SortedFunc(maps.Keys(jobs), func(a, b *Job) int { return cmp.Compare(a.Seq, b.Seq) })
}

// askAgain makes every job ask again if units came back, as the dispatcher does.
func (f *foreseen) askAgain(putOff bool) {
	if putOff {
		for _, q := range f.s.agenda.all {
			f.s.AskAgain(q, f.now)
		}
	}
}

// each returns the units of a call at every limit.
func (f *foreseen) each(units int64) []int64 {
	costs := make([]int64, len(f.s.Shared))
	for i := range costs {
		costs[i] = units
	}
	return costs
}

func (f *foreseen) use(uses []bucket.Use) {
	f.Helper()
	if err := f.store.Settle(f.Context(), uses); err != nil {
		f.Fatal(err)
	}
}

// check compares forecasts with calls. A forecast may be at most a little too late, since a later one would refuse jobs
// that are in time, and it may be too early by off at most.
func (f *foreseen) check(off time.Duration, seqs ...uint64) {
	f.Helper()
	for _, seq := range seqs {
		began, ok := f.began[seq]
		late := f.said[seq].Until(began)
		if !ok || late < -50*time.Millisecond || late > off {
			f.Errorf("job %d: said %s before its call (%v)", seq, late, ok)
		}
	}
}

// TestForecast checks that a job is called when its forecast says, whatever binds.
func TestForecast(t *testing.T) {
	second := func(count, burst int64) *bucket.Rate {
		return &bucket.Rate{Count: count, Per: time.Second, Burst: burst}
	}
	for _, c := range []struct {
		name       string
		call       time.Duration
		inFlight   int64
		shared     []bucket.Limit
		keys, each int
		off        time.Duration // how much too early
	}{
		{"a rate shared by seven keys", 10 * time.Millisecond, 4, []bucket.Limit{{Name: "account", Rate: second(1, 1)}}, 7, 1, 100 * time.Millisecond},
		{"a rate with a burst", 10 * time.Millisecond, 4, []bucket.Limit{{Name: "account", Rate: second(1, 1)}, {Name: "slow", Rate: second(10, 5)}}, 3, 2, 100 * time.Millisecond},
		{"one call at a time", 2 * time.Second, 1, nil, 1, 4, 100 * time.Millisecond},
		{"two calls at a time", 2 * time.Second, 2, nil, 1, 7, 200 * time.Millisecond},
		{"three calls at a time, over all keys", 2 * time.Second, 4, []bucket.Limit{{Name: "concurrent", InFlight: 3}}, 9, 1, 2100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := foresee(t, c.call, bucket.Rules{
				Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: c.inFlight},
				Shared: c.shared, Jitter: time.Millisecond,
			})
			f.submit("first") // after it something is known
			f.run(c.call + 2*time.Second)
			var seqs []uint64
			for range c.each {
				for k := range c.keys {
					seqs = append(seqs, f.submit(fmt.Sprint("k", k)))
					f.run(20 * time.Millisecond)
				}
			}
			f.run(30 * time.Second)
			f.check(c.off, seqs...)
		})
	}
}

// TestForecastOfTurns checks that the forecast for a key with one job is its turn, and not the end of another
// key's backlog.
func TestForecastOfTurns(t *testing.T) {
	rate := bucket.Rate{Count: 10, Per: time.Second, Burst: 1}
	f := foresee(t, 10*time.Millisecond, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 4},
		Shared: []bucket.Limit{{Name: "account", Rate: &rate}}, Jitter: time.Millisecond,
	})
	for range 100 {
		f.submit("deep")
	}
	f.run(1050 * time.Millisecond) // between two calls
	seqs := []uint64{f.submit("one"), f.submit("two"), f.submit("two")}
	f.run(15 * time.Second)
	f.check(200*time.Millisecond, seqs...)
}

// TestForecastOfSpentQuota checks that the forecast is tomorrow for a job that comes when a day's units are used
// up, even if no other waits, and the day after for one behind more than a day's units.
func TestForecastOfSpentQuota(t *testing.T) {
	quota := bucket.Quota{Count: 3, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}
	f := foresee(t, 10*time.Millisecond, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 4},
		Shared: []bucket.Limit{{Name: "daily", Quota: &quota}}, Jitter: time.Millisecond,
	})
	for range 3 {
		f.submit("k")
	}
	f.run(time.Second)
	midnight := bucket.MicrosOf(time.Date(2030, 1, 3, 0, 0, 0, 0, time.UTC))
	for i := range 8 {
		want := midnight.Add(time.Duration(i/3) * 24 * time.Hour)
		if seq := f.submit("k"); f.said[seq] < want || f.said[seq] > want.Add(time.Minute) {
			t.Errorf("job %d is told %v, want %v", i, f.said[seq].Time(), want.Time())
		}
		f.run(10 * time.Millisecond)
	}
}

// TestRoom checks that a place comes free when a call ends, not when one begins.
func TestRoom(t *testing.T) {
	f := foresee(t, 300*time.Millisecond, bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 2, InFlight: 4}, Jitter: time.Millisecond,
	})
	f.submit("k")
	f.run(time.Second)
	f.submit("k")
	f.submit("k")
	f.run(100 * time.Millisecond)
	if wait := f.now.Until(f.s.At(f.now).PlaceFree("k", Unread{})); wait < 150*time.Millisecond || wait > 250*time.Millisecond {
		t.Errorf("room in %s, and the first of the calls ends in 200ms", wait)
	}
	f.s.Holds.Pause("k", Pause{})
	f.run(time.Second)
	f.submit("k")
	if at := f.s.At(f.now).PlaceFree("k", Unread{}); at != 0 {
		t.Errorf("a paused key has room at %v", at.Time())
	}
}
