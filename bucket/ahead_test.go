package bucket

import (
	"encoding/json"
	"testing"
	"time"
)

// TestCalendarAhead checks a wall clock that is set forward. A calendar's next period begins earlier by as much, and no
// slot of a rate moves. A process that then starts by the right clock continues the counts.
func TestCalendarAhead(t *testing.T) {
	const horizon = time.Millisecond
	const hour, ahead = Micros(3600_000_000), Micros(110_000_000)
	midnight := MicrosOf(time.Date(2027, 3, 2, 0, 0, 0, 0, time.UTC))
	key := KeyLimits{Rate: Rate{Count: 1, Per: time.Second, Burst: 1}}
	rules := Rules{Key: key, Shared: []Limit{
		{Name: "day", Quota: &Quota{Count: 2, Window: Calendar, Unit: Day, Zone: time.UTC}},
		{Name: "slow", Rate: &Rate{Count: 1, Per: time.Minute, Burst: 1}},
	}}
	clock := midnight - hour
	ask := func(m *Memory) Answer {
		a, err := m.Reserve(t.Context(), []Ask{{
			Key: "k", Limits: key, Costs: []int64{1, 1}, Want: 1, Horizon: horizon,
		}})
		if err != nil {
			t.Fatal(err)
		}
		return a[0]
	}
	m, err := NewMemory(rules, func() Micros { return clock })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if a := ask(m); len(a.Grants) != 1 {
			t.Fatalf("%+v", a)
		}
		clock += 61_000_000
	}
	m.Ahead(2 * ahead)
	m.Ahead(ahead) // and back
	if l := m.Levels()[0]; l.End != midnight || l.Used != 2 {
		t.Errorf("%d used until %s", l.Used, l.End.Time().UTC())
	}
	if a := ask(m); a.Wait.Limit != "day" || a.Wait.Until.Add(horizon) != midnight-ahead {
		t.Errorf("waits for %s until %s, want the day's end %s", a.Wait.Limit, a.Wait.Until.Time().UTC(), (midnight - ahead).Time().UTC())
	}
	clock = midnight - ahead
	if a := ask(m); len(a.Grants) != 1 {
		t.Errorf("after the wall's midnight: %+v", a)
	}
	data, err := json.Marshal(m.Checkpoint(0))
	if err != nil {
		t.Fatal(err)
	}
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	clock += ahead // the clock of a process that starts now
	next, err := NewMemory(rules, func() Micros { return clock })
	if err != nil {
		t.Fatal(err)
	}
	next.Restore(s)
	next.Saved(next.Checkpoint(time.Hour))
	if a := ask(next); a.Wait.Limit != "slow" || a.Wait.Until.Until(clock) > 0 || clock.Until(a.Wait.Until) < 59*time.Second {
		t.Errorf("the rate after a restart: %+v, want a minute's wait", a)
	}
	clock += 61_000_000
	if a := ask(next); len(a.Grants) != 1 {
		t.Errorf("the second of the day: %+v", a)
	}
	clock += 61_000_000
	if a := ask(next); a.Wait.Limit != "day" || a.Wait.Until.Add(horizon) != midnight+24*hour {
		t.Errorf("the third of the day: %+v", a)
	}
}
