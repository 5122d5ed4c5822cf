package schedule

import (
	"fmt"
	"math"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

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
			for q := range f.s.Queues() {
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
		for q := range f.s.Queues() {
			f.s.At(f.now).AddTo(&demand, q)
		}
		if said := f.s.At(f.now).ShareOf("k", &demand); said.Stopped != c.want {
			t.Errorf("%s: said is %+v, and it waits for %+v", name, said, f.s.At(f.now).waits(f.s.Find("k")))
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
