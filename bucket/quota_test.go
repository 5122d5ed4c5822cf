package bucket

import (
	"testing"
	"time"

	"weir/ingest"
)

func quota(name string, q Quota) Rules {
	return Rules{Key: fast, Shared: []Limit{{Name: name, Quota: &q}}}
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
		"cost above the quota":    with(Limit{Name: "x", Quota: &day, Cost: ingest.Units(6)}),
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

func TestWarnings(t *testing.T) {
	for burst, want := range map[int64]int{1: 0, 10: 0, 49: 0, 60: 1, 100: 1, 101: 0} {
		if w := (Rules{Key: key(100, time.Second, burst)}).Warnings(); len(w) != want {
			t.Errorf("burst %d: %v", burst, w)
		}
	}
}

// TestWindowOfAnotherKindKeepsTheCount checks a quota whose window becomes sliding, or is no longer sliding, in a
// running process or over a restart. The quota still counts what was used.
func TestWindowOfAnotherKindKeepsTheCount(t *testing.T) {
	const used = 7
	fixed := Quota{Count: 10, Window: Fixed, Per: 3 * time.Hour}
	sliding := Quota{Count: 10, Window: Sliding, Per: 3 * time.Hour}
	calendar := Quota{Count: 10, Window: Calendar, Unit: Day, Zone: time.UTC}
	rules := func(q Quota) Rules {
		return Rules{
			Key:    KeyLimits{Rate: Rate{Count: 1000, Per: time.Second, Burst: 1000}, Capacity: 100, InFlight: 100},
			Shared: []Limit{{Name: "q", Quota: &q}},
		}
	}
	for _, c := range []struct{ from, to Quota }{{fixed, sliding}, {sliding, fixed}, {calendar, sliding}, {sliding, calendar}} {
		for _, restart := range []string{"live", "restart"} {
			now := Micros(1_700_000_000_000_000)
			clock := func() Micros { return now }
			m, err := NewMemory(rules(c.from), clock)
			if err != nil {
				t.Fatal(err)
			}
			reserve := func(m *Memory) (n int) {
				for range 20 {
					a, err := m.Reserve(t.Context(), []Ask{{Key: "k", Limits: rules(c.to).Key, Want: 1, Costs: []int64{1}}})
					if err != nil {
						t.Fatal(err)
					}
					n += len(a[0].Grants)
					now = now.Add(time.Millisecond)
				}
				return n
			}
			for range used {
				if _, err := m.Reserve(t.Context(), []Ask{{Key: "k", Limits: rules(c.from).Key, Want: 1, Costs: []int64{1}}}); err != nil {
					t.Fatal(err)
				}
				now = now.Add(time.Millisecond)
			}
			if restart == "live" {
				err = m.Apply(rules(c.to))
			} else {
				s := m.Checkpoint(0)
				if m, err = NewMemory(rules(c.to), clock); err == nil {
					m.Restore(s)
					next := m.Checkpoint(time.Second)
					m.Saved(next)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := reserve(m); n > 10-used {
				t.Errorf("%s, from %s to %s: %d more slots after %d of 10", restart, c.from.Window, c.to.Window, n, used)
			} else if n == 0 && restart == "live" {
				t.Errorf("%s, from %s to %s: no slot after %d of 10", restart, c.from.Window, c.to.Window, used)
			}
		}
	}
}
