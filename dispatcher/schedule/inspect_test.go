package schedule

import (
	"fmt"
	"math"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
	"weir/dispatcher/schedule/limits"
)

// inspected is a schedule with one open partition and a stopped clock.
func inspected(rules bucket.Rules) (*Schedule, *Partition, bucket.Micros) {
	s := New(&Policy{Rules: rules}, Pace{PrepareLead: 30 * time.Millisecond, ReserveAhead: 4 * time.Millisecond, GrantTTL: 4 * time.Millisecond, MaxStaged: 8, MaxCalls: 8},
		func(string) bucket.Micros { return 0 })
	return s, &Partition{Open: true}, bucket.MicrosOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
}

func hourly() bucket.Rules {
	return bucket.Rules{Key: bucket.KeyLimits{
		Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 1}, Capacity: 9, InFlight: 2,
	}}
}

// TestWaits puts a queue into every state and checks why it waits.
func TestWaits(t *testing.T) {
	task := func(q *KeyQueue, p Phase) *Job {
		seq := uint64(100 + len(q.Jobs))
		j := q.begin(backlog.Spot{Place: backlog.Place{Seq: seq}})
		j.Phase = p
		return j
	}
	second := bucket.Micros(time.Second / time.Microsecond)
	for _, c := range []struct {
		want  WaitFor
		until bucket.Micros // after now; 0 for none
		make  func(s *Schedule, q *KeyQueue, now bucket.Micros)
	}{
		{WaitRate, 5 * second, func(_ *Schedule, q *KeyQueue, now bucket.Micros) { q.TAT = now + 5*second }},
		{WaitRate, 2 * second, func(_ *Schedule, q *KeyQueue, now bucket.Micros) { task(q, granted).At = now + 2*second }},
		{WaitInFlight, 0, func(_ *Schedule, q *KeyQueue, _ bucket.Micros) { task(q, calling); task(q, calling) }},
		{WaitNothing, 0, func(_ *Schedule, q *KeyQueue, _ bucket.Micros) {
			q.waits.Drop(bucket.Normal)
			task(q, calling)
			task(q, settling)
		}},
		{WaitHeld, 7 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) { s.Holds.Hold(q, now+7*second, "x") }},
		{WaitAPIHeld, 8 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.Holds.Hold(q, now+7*second, "x")
			s.Holds.Hold(nil, now+8*second, "x")
		}},
		{WaitHeld, 9 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.Holds.Hold(q, now+9*second, "x")
			s.Holds.Hold(nil, now+8*second, "x")
		}},
		{WaitRetry, 6 * second, func(_ *Schedule, q *KeyQueue, now bucket.Micros) {
			q.waits.Drop(bucket.Normal)
			r := task(q, resting)
			r.Calls, r.NotBefore, r.Failed = 1, now+6*second, "x"
		}},
		{WaitLimit, 60 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.turns.Wait(q, bucket.Normal)
			s.gate.by, s.gate.opens = "account", now+60*second
		}},
		{WaitLimit, 0, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.turns.Wait(q, bucket.Normal)
			s.gate.by, s.gate.opens = "concurrent", now+60*second
		}},
		{WaitLimiter, 0, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.turns.Wait(q, bucket.Normal)
			s.gate.by, s.gate.opens = storeDown, now+second
		}},
		{WaitRoom, 0, func(s *Schedule, q *KeyQueue, _ bucket.Micros) {
			s.turns.Wait(q, bucket.Normal)
			s.Pipe.calls = s.Pipe.pace.MaxCalls
		}},
		{WaitRoom, 0, func(s *Schedule, q *KeyQueue, _ bucket.Micros) { s.turns.AwaitRoom(q, bucket.Normal) }},
		{WaitReading, 0, func(_ *Schedule, q *KeyQueue, _ bucket.Micros) { q.Partition.Open = false }},
		{WaitSlowed, 6 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.Holds.governor.restart(now)
			s.Holds.governor.next, q.TAT = now+6*second, now+5*second
		}},
		{WaitRate, 6 * second, func(s *Schedule, q *KeyQueue, now bucket.Micros) {
			s.Holds.governor.restart(now)
			s.Holds.governor.next, q.TAT = now+6*second, now+6*second
		}},
		{WaitClearing, 0, func(_ *Schedule, q *KeyQueue, _ bucket.Micros) { q.Partition.Open, q.Partition.Stalled = false, true }},
		{WaitStop, 0, func(s *Schedule, _ *KeyQueue, _ bucket.Micros) { s.drain = true }},
	} {
		rules := hourly()
		rules.Shared = []bucket.Limit{{Name: "account", Rate: &rules.Key.Rate}, {Name: "concurrent", InFlight: 1}}
		s, p, now := inspected(rules)
		q := s.Push("k", 500, p)
		c.make(s, q, now)
		w := s.At(now).waits(q)
		if w.For != c.want || (w.Until == nil) != (c.until == 0) || w.Until != nil && !w.Until.Equal((now+c.until).Time()) {
			t.Errorf("waits for %s until %v, want %s until %v", w.For, w.Until, c.want, (now + c.until).Time())
		}
		if (w.For == WaitHeld || w.For == WaitAPIHeld || w.For == WaitRetry) != (w.Why == "x") || (w.For == WaitLimit) != (w.Limit != "") {
			t.Errorf("%s tells limit %q and why %q", w.For, w.Limit, w.Why)
		}
	}
}

// TestFirstJobs lists jobs and waiting jobs in one order, with the times that the rate gives them.
func TestFirstJobs(t *testing.T) {
	s, p, now := inspected(hourly())
	for _, seq := range []uint64{3, 5, 7, 9, 11} {
		s.Push("k", seq, p)
	}
	q := s.Queues.byKey["k"]
	first, second := s.Extract(q, 3), s.Extract(q, 7) // the second is ahead of a waiting job, as after a restart
	first.Phase, first.Calls = calling, 1
	second.Calls, second.NotBefore = 1, now.Add(30*time.Minute)
	hour := s.policy.Rules.Interval(q.Limits.Rate).Duration()
	q.TAT = now.Add(hour)

	jobs := s.At(now).FirstJobs(q, 4)
	if len(jobs) != 4 {
		t.Fatalf("%d jobs, want 4", len(jobs))
	}
	for i, want := range []JobState{
		{Position: 1, Seq: 3, Phase: JobCalling, Calls: 1},
		{Position: 2, Seq: 5, Phase: JobWaits},
		{Position: 3, Seq: 7, Phase: JobRetries, Calls: 1},
		{Position: 4, Seq: 9, Phase: JobWaits},
	} {
		got := jobs[i]
		if i > 0 && (got.ETA == nil || !got.ETA.Equal(now.Add(time.Duration(i)*hour).Time())) {
			t.Errorf("job %d is to start at %v, want %v", i, got.ETA, now.Add(time.Duration(i)*hour).Time())
		}
		if got.ETA = nil; got != want {
			t.Errorf("job %d is %+v, want %+v", i, got, want)
		}
	}
	if all := s.At(now).FirstJobs(q, 1000); len(all) != 5 || all[4].Seq != 11 {
		t.Errorf("all are %+v", all)
	}
	if state := s.At(now).Inspect(q); state.Depth != 5 || state.InFlight != 1 || state.WaitMS != (5*hour).Milliseconds() {
		t.Errorf("the bucket is %+v", state)
	}
}

// TestArrivals checks that jobs that come are counted, for the key and for all, whether they may be called at
// once or not. Those that stood in the partition when it was read are not counted.
func TestArrivals(t *testing.T) {
	s, p, now := inspected(hourly())
	p.Reading = true
	s.Push("a", 1, p)
	s.PushEarly("a", 2, p, bucket.Normal, now, now+1000)
	p.Reading = false
	s.Push("a", 3, p)
	s.PushEarly("a", 4, p, bucket.Normal, now, 0)
	s.PushEarly("b", 5, p, bucket.Normal, now, now+1000)
	for key, want := range map[string]uint64{"a": 2, "b": 1} {
		if got := s.At(now).Inspect(s.Queues.Find(key)).Arrived; got != want {
			t.Errorf("%d jobs of %s have arrived, want %d", got, key, want)
		}
	}
	if got := s.At(now).Count(func(string) bool { return true }).Arrived; got != 3 {
		t.Errorf("%d jobs have arrived, want 3", got)
	}
}

// TestShareIsWhatAKeyGets checks that a key gets the share that is reported for it, beside keys that want more than
// there is, beside keys that want less, and beside other tenants.
func TestShareIsWhatAKeyGets(t *testing.T) {
	perSecond := func(count int64) bucket.Rate { return bucket.Rate{Count: count, Per: time.Second, Burst: 1} }
	shared := func(count int64) []bucket.Limit {
		r := perSecond(count)
		return []bucket.Limit{{Name: "account", Rate: &r}}
	}
	slow := bucket.Rate{Count: 1, Per: 2 * time.Second, Burst: 1}
	for name, c := range map[string]struct {
		keys  int
		key   string // of which is said
		call  time.Duration
		rules bucket.Rules
		want  float64
		limit string
	}{
		"ten share":         {10, "k3", time.Millisecond, bucket.Rules{Key: bucket.KeyLimits{Rate: perSecond(5)}, Shared: shared(20)}, 2, "account"},
		"there is enough":   {3, "k1", time.Millisecond, bucket.Rules{Key: bucket.KeyLimits{Rate: perSecond(5)}, Shared: shared(20)}, 5, ""},
		"some want less":    {5, "k1", time.Millisecond, bucket.Rules{Key: bucket.KeyLimits{Rate: perSecond(10)}, Overrides: []bucket.Override{{Pattern: "k0", Rate: &slow}}, Shared: shared(8)}, 1.875, "account"},
		"who wants less":    {5, "k0", time.Millisecond, bucket.Rules{Key: bucket.KeyLimits{Rate: perSecond(10)}, Overrides: []bucket.Override{{Pattern: "k0", Rate: &slow}}, Shared: shared(8)}, 0.5, ""},
		"calls take long":   {2, "k1", 500 * time.Millisecond, bucket.Rules{Key: bucket.KeyLimits{Rate: perSecond(50)}}, 4, InFlightLimit},
		"it only watches":   {10, "k3", time.Millisecond, bucket.Rules{Key: bucket.KeyLimits{Rate: perSecond(5)}, Shared: []bucket.Limit{{Name: "tried", Rate: &slow, Shadow: true}}}, 5, ""},
		"a tenant of one":   {4, "b.k3", time.Millisecond, bucket.Rules{Key: bucket.KeyLimits{Rate: perSecond(10)}, TenantUntil: ".", Shared: shared(6)}, 3, "account"},
		"a tenant of three": {4, "a.k1", time.Millisecond, bucket.Rules{Key: bucket.KeyLimits{Rate: perSecond(10)}, TenantUntil: ".", Shared: shared(6)}, 1, "account"},
	} {
		t.Run(name, func(t *testing.T) {
			c.rules.Key.Capacity, c.rules.Key.InFlight = 10_000, 2
			f, keyOf := foresee(t, c.call, c.rules), map[uint64]string{}
			const seconds = 30
			for i := range c.keys {
				key := fmt.Sprint("k", i)
				if c.rules.TenantUntil != "" {
					key = "a." + key
					if i == c.keys-1 {
						key = "b" + key[1:]
					}
				}
				for range seconds * 12 {
					keyOf[f.submit(key)] = key
				}
			}
			f.run(time.Second) // it is known then how long calls take
			var demand Demand
			for q := range f.s.Queues.All() {
				f.s.At(f.now).AddTo(&demand, q)
			}
			said := f.s.At(f.now).ShareOf(c.key, &demand)
			if said.Limit != c.limit || math.Abs(said.PerSecond-c.want) > c.want/50 {
				t.Errorf("said is %+v, want %v by %q", said, c.want, c.limit)
			}
			from := f.now
			f.run(seconds * time.Second)
			calls := 0
			for seq, at := range f.began {
				if keyOf[seq] == c.key && at >= from {
					calls++
				}
			}
			if got := float64(calls) / seconds; math.Abs(got-said.PerSecond) > said.PerSecond/10 {
				t.Errorf("it was said to get %v a second and got %v", said.PerSecond, got)
			}
		})
	}
}

// TestShareOfWhatIsStopped checks that a key that waits for longer than its turns last is reported as stopped:
// by a used-up quota, and by a pause. A limit that all keys share in turns stops nothing.
func TestShareOfWhatIsStopped(t *testing.T) {
	ten := bucket.Rate{Count: 10, Per: time.Second, Burst: 1}
	five := bucket.Rate{Count: 5, Per: time.Second, Burst: 1}
	for name, c := range map[string]struct {
		limit  bucket.Limit
		paused bool
		want   bool
	}{
		"a quota that is used up": {limit: bucket.Limit{Name: "daily", Quota: &bucket.Quota{Count: 3, Per: 24 * time.Hour, Window: bucket.Sliding}}, want: true},
		"a shared rate":           {limit: bucket.Limit{Name: "account", Rate: &five}},
		"a pause":                 {limit: bucket.Limit{Name: "account", Rate: &five}, paused: true, want: true},
	} {
		f := foresee(t, time.Millisecond, bucket.Rules{Key: bucket.KeyLimits{Rate: ten, Capacity: 1000, InFlight: 2}, Shared: []bucket.Limit{c.limit}})
		for range 100 {
			f.submit("k")
		}
		f.run(2 * time.Second)
		if c.paused {
			f.s.Holds.Pause("", Pause{})
		}
		var demand Demand
		for q := range f.s.Queues.All() {
			f.s.At(f.now).AddTo(&demand, q)
		}
		if said := f.s.At(f.now).ShareOf("k", &demand); said.Stopped != c.want {
			t.Errorf("%s: said is %+v, and it waits for %+v", name, said, f.s.At(f.now).waits(f.s.Queues.Find("k")))
		}
	}
}

// TestUses checks that the use of a rate is what started within its period, and the use of calls in flight what
// runs.
func TestUses(t *testing.T) {
	minute := bucket.Rate{Count: 600, Per: time.Minute, Burst: 1}
	f := foresee(t, 300*time.Millisecond, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 5, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 4},
		Shared: []bucket.Limit{{Name: "minute", Rate: &minute}, {Name: "together", InFlight: 50}, {Name: "daily", Quota: &bucket.Quota{Count: 9999, Window: bucket.Sliding, Per: time.Hour}}},
	})
	for range 100 {
		f.submit("k")
	}
	f.run(10 * time.Second)
	began := 0
	for _, at := range f.began {
		if at > f.now-bucket.Micros(time.Minute.Microseconds()) {
			began++
		}
	}
	uses := f.s.At(f.now).Uses()
	if len(uses) != 2 || uses[0] != (limits.Use{Limit: "minute", Used: int64(began), Count: 600, Per: time.Minute}) || began < 40 {
		t.Errorf("after %d calls: %+v", began, uses)
	}
	if uses[1].Limit != "together" || uses[1].Used < 1 || uses[1].Used > 3 || uses[1].Count != 50 {
		t.Errorf("of calls in flight: %+v", uses[1])
	}
	f.s.Holds.Pause("", Pause{})
	f.run(40 * time.Second)
	if used := f.s.At(f.now).Uses()[0].Used; used < int64(began) {
		t.Errorf("%d of %d calls are forgotten before their minute is over", int64(began)-used, began)
	}
	f.run(31 * time.Second)
	if uses := f.s.At(f.now).Uses(); uses[0].Used != 0 || uses[1].Used != 0 {
		t.Errorf("a minute after the last call: %+v", uses)
	}
}

// TestTimedPause checks that the longer one of a key's and its api's pause is reported, and that a forecast
// counts on the end of a pause that has one.
func TestTimedPause(t *testing.T) {
	s, p, now := inspected(hourly())
	q := s.Push("k", 500, p)
	in := func(d time.Duration) Pause { return Pause{Until: now.Add(d).Time(), Why: d.String()} }
	for name, c := range map[string]struct {
		key, api *Pause
		want     string
		wait     int64
	}{
		"the key":          {key: ptr(in(time.Minute)), want: "1m0s", wait: 60_000},
		"the api":          {api: ptr(in(time.Minute)), want: "1m0s", wait: 60_000},
		"the key's later":  {key: ptr(in(time.Hour)), api: ptr(in(time.Minute)), want: "1h0m0s", wait: 3_600_000},
		"the api's later":  {key: ptr(in(time.Minute)), api: ptr(in(time.Hour)), want: "1h0m0s", wait: 3_600_000},
		"the key's no end": {key: &Pause{Why: "key"}, api: ptr(in(time.Hour)), want: "key", wait: -1},
		"the api's no end": {key: ptr(in(time.Hour)), api: &Pause{Why: "api"}, want: "api", wait: -1},
	} {
		s.Holds.Resume("", now)
		s.Holds.Resume("k", now)
		if c.key != nil {
			s.Holds.Pause("k", *c.key)
		}
		if c.api != nil {
			s.Holds.Pause("", *c.api)
		}
		w := s.At(now).waits(q)
		if pause := s.Holds.paused.of("k"); w.For != WaitPaused || pause.Why != c.want || (w.Until == nil) != pause.Until.IsZero() {
			t.Errorf("%s: it waits for %+v", name, w)
		}
		if state, ok := s.At(now).InspectPaused("other"); ok != (c.api != nil) || ok && state.Depth != 0 {
			t.Errorf("%s: of a key without jobs and without a pause of its own: %+v, %v", name, state, ok)
		}
		if state, _ := s.At(now).InspectPaused("k"); state.WaitMS != c.wait {
			t.Errorf("%s: a job that came now would wait %d ms, want %d", name, state.WaitMS, c.wait)
		}
		if s.Holds.of(q) != Never {
			t.Errorf("%s: it may be called", name)
		}
	}
}

func ptr(p Pause) *Pause { return &p }

// TestHoldsAreListed checks the order of holds: the api's first, then the keys' by when they end.
func TestHoldsAreListed(t *testing.T) {
	s, p, now := inspected(hourly())
	second := bucket.Micros(time.Second / time.Microsecond)
	for i, key := range []string{"a", "b", "c"} {
		s.Holds.Hold(s.Push(key, uint64(500+i), p), now+bucket.Micros(9-i)*second, key)
	}
	if holds, keys := s.At(now).Holds(2); keys != 3 || len(holds) != 2 || holds[0].Key != "c" || holds[1].Key != "b" {
		t.Errorf("%d keys are held: %+v", keys, holds)
	}
	s.Holds.Hold(nil, now+second, "pushback")
	if holds, keys := s.At(now).Holds(1); keys != 3 || len(holds) != 2 || holds[0] != (HoldState{Until: (now + second).Time(), Why: "pushback"}) {
		t.Errorf("with the api's: %+v of %d", holds, keys)
	}
	s.Holds.breaker.until, s.Holds.breaker.why = now+2*second, "timeouts"
	if holds, _ := s.At(now).Holds(1); !holds[0].Fault || holds[0].Why != "its calls keep failing: timeouts" {
		t.Errorf("with the breaker open: %+v", holds)
	}
	if holds, keys := s.At(now + 8*second).Holds(9); keys != 1 || len(holds) != 2 || !holds[0].Fault {
		t.Errorf("later: %+v of %d", holds, keys)
	}
}

// TestPausesAreNoHolds checks that what an operator pauses is counted apart from what is held.
func TestPausesAreNoHolds(t *testing.T) {
	s, p, now := inspected(hourly())
	want := func(what string, held, paused int) {
		t.Helper()
		got := s.At(now).Count(func(key string) bool { return key != "another's" })
		if got.Held != held || got.Paused != paused {
			t.Errorf("%s: %d held and %d paused, want %d and %d", what, got.Held, got.Paused, held, paused)
		}
	}
	want("nothing", 0, 0)
	s.Holds.Pause("a", Pause{})
	s.Holds.Pause("another's", Pause{})
	want("a paused key", 0, 1)
	s.Holds.Pause("", Pause{})
	want("and its api", 0, 2)
	s.Holds.Hold(s.Push("a", 1, p), now.Add(time.Second), "pushback")
	s.Holds.Hold(s.Push("b", 2, p), now.Add(time.Second), "pushback")
	want("and two held keys, one of them paused", 2, 2)
	s.Holds.Hold(nil, now.Add(2*time.Second), "pushback")
	want("and a held api", 3, 2)
	s.Holds.Resume("", now)
	s.Holds.Resume("a", now)
	want("resumed", 3, 0)
	now = now.Add(time.Second)
	want("the keys' holds are over", 1, 0)
	now = now.Add(time.Second)
	want("the api's too", 0, 0)
}

// TestKeyPace checks that GoOnFrom never sets a pace back, that asks report the pace to the store until it answers with
// a grant, and that other rules leave it no more than a full bucket.
func TestKeyPace(t *testing.T) {
	p := keyPace{TAT: 100}
	if p.untold() != 0 {
		t.Error("the store must be told what it said itself")
	}
	p.GoOnFrom(50)
	if p.TAT != 100 || p.untold() != 100 {
		t.Errorf("after an earlier pace: %+v", p)
	}
	p.slip(bucket.Grant{At: 90, TAT: 120}, 95) // it left 5 late
	if p.takeSlip(); p.TAT != 125 || p.slipped != 0 || p.untold() != 125 {
		t.Errorf("after a call that left 5 late: %+v", p)
	}
	if p.confirm(130); p.TAT != 130 || p.untold() != 0 {
		t.Errorf("after a grant: %+v", p)
	}
	p.Remind(140)
	p.refused(ownRate, 200)
	if p.lower(110, 105); p.TAT != 110 || p.floor != 105 || p.askAt != 0 {
		t.Errorf("after other rules: %+v", p)
	}
}

// TestGate checks that a gate is shut until its time, and that it is opened at once by what opens it.
func TestGate(t *testing.T) {
	var g gate
	if g.isShut(someTime) || !g.isPlenty(someTime) {
		t.Error("a gate is shut before anything was refused")
	}
	g.shut("account", someTime.Add(time.Second))
	if !g.isShut(someTime) || g.isShut(someTime.Add(time.Second)) {
		t.Errorf("shut for a second: %+v", g)
	}
	if g.open(); g.isShut(someTime) || g.by != "" {
		t.Errorf("opened: %+v", g)
	}
}
