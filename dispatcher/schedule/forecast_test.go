package schedule

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
	"weir/ingest"
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
	if q := f.s.Queues.byKey[key]; q != nil {
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
		for _, q := range f.s.Queues.all {
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

// tokenRules are rules with a rate in tokens, whose calls may tell that they took less than they had reserved.
func tokenRules() bucket.Rules {
	rate := bucket.Rate{Count: 200_000, Per: time.Minute, Burst: 20_000}
	return bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 10_000, InFlight: 100},
		Shared: []bucket.Limit{{Name: "tokens", Rate: &rate, Cost: ingest.FromHeader("Weir-Cost").SettledBy(ingest.Source{Header: "X-Tokens"})}},
		Jitter: time.Millisecond,
	}
}

// foreseeTokens runs a schedule whose calls reserve so many tokens and take so many.
func foreseeTokens(t *testing.T, call time.Duration, estimate, actual int64) *foreseen {
	t.Helper()
	f := foresee(t, call, tokenRules())
	f.estimate, f.actual = estimate, actual
	return f
}

// TestForecastBySettledCalls checks that forecasts count what calls took: a tenth of their estimates, all of them or
// five times as much, however long the calls hold their estimates.
func TestForecastBySettledCalls(t *testing.T) {
	for _, c := range []struct {
		name             string
		call             time.Duration
		estimate, actual int64
	}{
		{"a tenth", 50 * time.Millisecond, 3000, 300},
		{"a tenth, of long calls", 4 * time.Second, 3000, 300},
		{"right", 50 * time.Millisecond, 300, 300},
		{"five times", 50 * time.Millisecond, 300, 1500},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := foreseeTokens(t, c.call, c.estimate, c.actual)
			for i := range 200 {
				f.submit(fmt.Sprint("warm", i%10))
			}
			f.run(10 * time.Second)
			var seqs []uint64
			for i := range 300 {
				seqs = append(seqs, f.submit(fmt.Sprint("k", i%10)))
			}
			start := f.now
			for n := 0; n < 100 && len(f.began) < 500; n++ {
				f.run(5 * time.Second)
			}
			for _, seq := range seqs {
				began, ok := f.began[seq]
				took, said := start.Until(began), start.Until(f.said[seq])
				if slack := 2*c.call + 2*time.Second; !ok || said > took*3/2+slack || said < took/2-slack {
					t.Errorf("job %d: said to start in %s, started after %s (%v)", seq, said, took, ok)
				}
			}
		})
	}
}

// TestUseBySettledCalls checks that the shown use of a rate is what its calls took, and the estimate only for calls
// that run.
func TestUseBySettledCalls(t *testing.T) {
	f := foreseeTokens(t, time.Second, 3000, 300)
	for i := range 100 {
		f.submit(fmt.Sprint("k", i%10))
	}
	f.run(20 * time.Second)
	running, settled := int64(len(f.endAt)), int64(len(f.began)-len(f.endAt))
	use := f.s.At(f.now).Uses()
	if want := running*3000 + settled*300; len(use) != 1 || use[0].Used != want {
		t.Errorf("%+v used; %d calls run and %d took 300 each: want %d", use, running, settled, want)
	}
	f.run(5 * time.Second)
	if use := f.s.At(f.now).Uses(); len(f.endAt) == 0 && use[0].Used != int64(len(f.began))*300 {
		t.Errorf("%+v used of %d calls of 300", use, len(f.began))
	}
}

// TestShareBySettledCalls checks that a key's share counts what calls take.
func TestShareBySettledCalls(t *testing.T) {
	f := foreseeTokens(t, 50*time.Millisecond, 3000, 300)
	for range 400 {
		f.submit("k")
	}
	f.run(10 * time.Second)
	var d Demand
	v := f.s.At(f.now)
	v.AddTo(&d, f.s.Queues.Find("k"))
	if share := v.ShareOf("k", &d); share.PerSecond < 9 || share.PerSecond > 12 {
		t.Errorf("%+v, and 200000 tokens a minute are 11.1 calls of 300 a second", share)
	}
}

// TestSoonest checks that no call starts before the time by which deadlines are judged, whatever calls take. That time
// does not count calls that are not settled yet, and counts what settled calls took.
func TestSoonest(t *testing.T) {
	for _, actual := range []int64{0, 300, 3000, 9000} {
		f := foreseeTokens(t, time.Second, 3000, actual)
		soonest := map[uint64]bucket.Micros{}
		for i := range 100 {
			key, position := fmt.Sprint("k", i%5), 1
			if q := f.s.Queues.byKey[key]; q != nil {
				position += q.Depth()
			}
			at := f.s.At(f.now).Soonest(Place{Key: key, Position: position})
			soonest[f.submit(key)] = at
			f.run(20 * time.Millisecond)
		}
		for n := 0; n < 100 && len(f.began) < len(soonest); n++ {
			f.run(5 * time.Second)
		}
		for seq, at := range soonest {
			if began, ok := f.began[seq]; !ok || began < at {
				t.Errorf("calls take %d: job %d started %s before the soonest time (%v)", actual, seq, began.Until(at), ok)
			}
		}
	}
	f := foreseeTokens(t, 10*time.Second, 20_000, 300)
	for i := range 10 {
		f.submit(fmt.Sprint("k", i))
	}
	f.run(time.Second)
	v, p := f.s.At(f.now), Place{Key: "new", Position: 1, Others: 10, Keys: 10}
	if eta, soonest := f.now.Until(v.ETA(p)), f.now.Until(v.Soonest(p)); eta < 5*time.Second || soonest > 100*time.Millisecond {
		t.Errorf("nothing is settled: a job is said to start in %s, and in %s at best", eta, soonest)
	}
	f = foreseeTokens(t, 100*time.Millisecond, 20_000, 220_000)
	f.submit("k")
	f.run(time.Second)
	if soonest := f.now.Until(f.s.At(f.now).Soonest(p)); soonest < 60*time.Second || soonest > 70*time.Second {
		t.Errorf("220000 tokens at 200000 a minute are settled, and a job could start in %s at best", soonest)
	}
}

// TestSoonestIsTheSoonest checks that Soonest counts on units to come back that these limits have not counted: units of
// other processes' calls, and of calls that were granted before a reload.
func TestSoonestIsTheSoonest(t *testing.T) {
	rules := tokenRules()
	budget := bucket.Quota{Count: 20_000, Per: time.Hour, Window: bucket.Fixed}
	rules.Shared = append(rules.Shared, bucket.Limit{Name: "hourly", Quota: &budget, Cost: rules.Shared[0].Cost})
	for name, hold := range map[string]func(f *foreseen){
		"another process": func(f *foreseen) {
			f.s.grants = f.s.grants.Under(true)
			f.s.Shared = limits.NewShared(&f.s.policy.Rules, f.s.policy.Price, f.s.policy.Settles, f.s.grants)
			if _, err := f.store.Reserve(context.Background(), []bucket.Ask{{Key: "elsewhere", Limits: f.s.policy.Rules.Key, Costs: []int64{20_000, 20_000}, Want: 1}}); err != nil {
				t.Fatal(err)
			}
		},
		"a reload": func(f *foreseen) {
			f.submit("running")
			f.run(100 * time.Millisecond)
			f.s.Adopt(&Policy{Rules: f.s.policy.Rules})
			for q := range f.s.Queues.All() {
				f.s.Rebind(q, f.now)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := foresee(t, time.Minute, rules)
			f.estimate, f.actual = 20_000, 0
			hold(f)
			f.submit("waiting")
			f.run(100 * time.Millisecond)
			v, p := f.s.At(f.now), Place{Key: "new", Position: 1, Others: 2, Keys: 2}
			if eta, soonest := f.now.Until(v.ETA(p)), f.now.Until(v.Soonest(p)); eta < 5*time.Second || soonest > 100*time.Millisecond {
				t.Errorf("a call may settle for nothing: a job is said to start in %s, and in %s at best", eta, soonest)
			}
			f.run(2 * time.Minute)
			if f.s.grants.Hidden() != (name == "another process") {
				t.Error("a call that is settled still counts as one of former rules")
			}
		})
	}
}
