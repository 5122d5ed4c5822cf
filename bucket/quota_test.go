package bucket

import (
	"slices"
	"testing"
	"time"
)

func quota(name string, q Quota) Rules { return Rules{Key: fast, Shared: []Limit{{Name: name, Quota: &q}}} }

func TestCalendarQuotaOpensWithItsDay(t *testing.T) {
	pacific := zone(t, "America/Los_Angeles")
	b := newTable(t, quota("daily", Quota{Count: 3, Window: Calendar, Unit: Day, Zone: pacific}))
	b.rules.Jitter = 5 * time.Millisecond
	if err := b.Apply(b.rules); err != nil {
		t.Fatal(err)
	}
	b.clock = MicrosOf(time.Date(2027, 3, 14, 12, 0, 0, 0, pacific)) // a day of 23 hours
	got := b.ask(Ask{Want: 5})
	end := MicrosOf(time.Date(2027, 3, 15, 0, 0, 0, 0, pacific))
	if len(got.Grants) != 3 || got.Wait != (Wait{Limit: "daily", Until: end + 5000}) {
		t.Fatalf("%d grants, %+v; want 3, and to wait for midnight in Los Angeles plus the jitter", len(got.Grants), got.Wait)
	}
	b.settle(Use{Key: "k", Grant: got.Grants[0], Returned: true})
	b.settle(Use{Key: "k", Grant: got.Grants[0], Returned: true})
	if n := len(b.ask(Ask{Want: 5}).Grants); n != 1 {
		t.Errorf("%d units after one was returned (twice), want 1", n)
	}
	b.clock = end - 3000
	if got := b.ask(Ask{}); len(got.Grants) != 0 {
		t.Error("a slot so near to midnight that it may arrive after it")
	}
	got = b.ask(Ask{Want: 1, Horizon: time.Second})
	if len(got.Grants) != 1 || got.Grants[0].At != end+5000 {
		t.Errorf("%+v", got)
	}
	b.clock = end + 6000
	if n := len(b.ask(Ask{Want: 5}).Grants); n != 2 {
		t.Errorf("%d more in the new day, want 2", n)
	}
}

// TestFixedWindowOpensAtItsEdge is the vector "t = 60.000 belongs to the new window".
func TestFixedWindowOpensAtItsEdge(t *testing.T) {
	b := newTable(t, quota("minute", Quota{Count: 2, Window: Fixed, Per: time.Minute}))
	b.clock = t0 - t0%60_000_000
	if n := len(b.ask(Ask{Want: 3}).Grants); n != 2 {
		t.Fatalf("%d, want 2: the third of two must be refused", n)
	}
	b.clock += 59_999_999
	if n := len(b.ask(Ask{Want: 3}).Grants); n != 0 {
		t.Error("the window lasts a minute")
	}
	b.clock++
	if n := len(b.ask(Ask{Want: 3}).Grants); n != 2 {
		t.Error("a minute after its beginning the next window begins")
	}
}

// TestSlidingLogVector is the worked example of the sliding log, limit 2 a minute: 1:00:01, 1:00:30, not 1:00:50, 1:01:40.
func TestSlidingLogVector(t *testing.T) {
	b := newTable(t, quota("log", Quota{Count: 2, Window: Sliding, Per: time.Minute}))
	hour := t0 - t0%3_600_000_000 + 3_600_000_000
	var passed []int
	for _, s := range []Micros{1, 30, 50, 100} {
		b.clock = hour + s*1_000_000
		passed = append(passed, len(b.ask(Ask{}).Grants))
	}
	if !slices.Equal(passed, []int{1, 1, 0, 1}) {
		t.Errorf("passed %v, want 1 1 0 1", passed)
	}
}

// TestRefusedAsksDoNotCount: a client that asks every 10 s gets two slots a minute, not none for ever.
func TestRefusedAsksDoNotCount(t *testing.T) {
	b := newTable(t, quota("log", Quota{Count: 2, Window: Sliding, Per: time.Minute}))
	n := 0
	for range 60 {
		n += len(b.ask(Ask{}).Grants)
		b.clock += 10_000_000
	}
	if n != 20 {
		t.Errorf("%d slots in ten minutes, want 20", n)
	}
}

func TestSlidingIsWidenedByJitterAndBounded(t *testing.T) {
	r := quota("three-hours", Quota{Count: 1_000_000, Window: Sliding, Per: 3 * time.Hour})
	r.Jitter = time.Second
	b := newTable(t, r)
	total := 0
	for range 10_000 {
		b.clock += 2_000_000
		for _, g := range []Ask{{Want: 64}, {Want: 64}, {Want: 64}} {
			total += len(b.ask(g).Grants)
		}
	}
	m := b.engine.shared[0].meter.(*slidingMeter)
	if len(m.entries) > maxEntries+2 {
		t.Errorf("%d entries, bound %d", len(m.entries), maxEntries+2)
	}
	// 20,000 s are 1.85 windows; the first 1,000,000 leave in the first 10,417 s.
	// From then on one window's worth leaves as the one before grows old, a 1024th of a window later at most.
	if want := 1_000_000 + 192*(20_000-10_801)/2; total > want || total < want-192*6 {
		t.Errorf("%d granted, want %d less at most one entry", total, want)
	}
}

func TestBudgetTellsWhatBecomesOfTheJob(t *testing.T) {
	b := newTable(t, Rules{Key: fast, Shared: []Limit{{Name: "spend", Budget: &Budget{
		Quota:       Quota{Count: 1_000_000, Window: Calendar, Unit: Day, Zone: time.UTC},
		OnExhausted: DeadLetter,
	}}}})
	price := []int64{400_000} // 0.40
	got := b.ask(Ask{Want: 5, Costs: price})
	if len(got.Grants) != 2 || got.Wait.Limit != "spend" || got.Wait.Exhausted != DeadLetter || got.Wait.Never {
		t.Errorf("%+v", got)
	}
	if got := b.ask(Ask{Costs: []int64{1_000_001}}); !got.Wait.Never {
		t.Errorf("a price above the budget: %+v", got)
	}
	b.settle(Use{Key: "k", Grant: got.Grants[0], Costs: price, Actual: []int64{100_000}})
	if got := b.ask(Ask{Want: 5, Costs: price}); len(got.Grants) != 1 {
		t.Errorf("0.30 less was spent, so one more fits: %+v", got)
	}
	b.settle(Use{Key: "k", Grant: got.Grants[1], Costs: price, Actual: []int64{1_300_000}})
	if got := b.ask(Ask{Costs: []int64{1}}); len(got.Grants) != 0 {
		t.Error("an overage was not charged")
	}
}

func TestOverageOfADayThatIsOverCountsToday(t *testing.T) {
	b := newTable(t, quota("daily", Quota{Count: 10, Window: Calendar, Unit: Day, Zone: time.UTC}))
	g := b.ask(Ask{}).Grants[0]
	b.clock += Micros(day)
	b.settle(Use{Key: "k", Grant: g, Costs: []int64{1}, Actual: []int64{7}})
	if n := len(b.ask(Ask{Want: 64}).Grants); n != 4 {
		t.Errorf("%d of 10 left after an overage of 6, want 4", n)
	}
}

func TestRulesRefused(t *testing.T) {
	ok := Rules{Key: key(1, time.Second, 1)}
	with := func(l Limit) Rules { r := ok; r.Shared = []Limit{l}; return r }
	day := Quota{Count: 5, Window: Calendar, Unit: Day, Zone: time.UTC}
	for name, r := range map[string]Rules{
		"no rate":                 {},
		"zero burst":              {Key: key(1, time.Second, 0)},
		"negative rate":           {Key: key(-1, time.Second, 1)},
		"zero period":             {Key: key(1, 0, 1)},
		"a century of debt":       {Key: key(1, 365*24*time.Hour, 200)},
		"headroom":                {Key: ok.Key, Headroom: 100},
		"jitter":                  {Key: ok.Key, Jitter: -1},
		"override":                {Key: ok.Key, Overrides: []Override{{Pattern: "x", Rate: &Rate{}}}},
		"no kind":                 with(Limit{Name: "x"}),
		"two kinds":               with(Limit{Name: "x", InFlight: 1, Quota: &day}),
		"no name":                 with(Limit{InFlight: 1}),
		"the own rate's name":     with(Limit{Name: "rate", InFlight: 1}),
		"no zone":                 with(Limit{Name: "x", Quota: &Quota{Count: 1, Window: Calendar, Unit: Day}}),
		"the machine's zone":      with(Limit{Name: "x", Quota: &Quota{Count: 1, Window: Calendar, Unit: Day, Zone: time.Local}}),
		"no unit":                 with(Limit{Name: "x", Quota: &Quota{Count: 1, Window: Calendar, Zone: time.UTC}}),
		"no window":               with(Limit{Name: "x", Quota: &Quota{Count: 1}}),
		"quota of nothing":        with(Limit{Name: "x", Quota: &Quota{Count: 0, Window: Sliding, Per: 1e9}}),
		"cost above the quota":    with(Limit{Name: "x", Quota: &day, Cost: CostSource{Constant: 6}}),
		"budget without a manner": with(Limit{Name: "x", Budget: &Budget{Quota: day}}),
		"negative in flight":      with(Limit{Name: "x", InFlight: -1}),
		"same name twice":         {Key: ok.Key, Shared: []Limit{{Name: "x", InFlight: 1}, {Name: "x", InFlight: 2}}},
		"admission":               {Key: ok.Key, Admit: []Admission{{Rate: ok.Key.Rate, Algorithm: "x"}}},
	} {
		if _, err := NewMemory(r, func() Micros { return 0 }); err == nil {
			t.Errorf("%s: accepted", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}
