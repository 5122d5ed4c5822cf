package bucket

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"
)

const oneMinute = Micros(60_000_000)

// machine is a store on a machine whose wall clock is set. Its process is stopped, killed and started.
type machine struct {
	t       *testing.T
	rules   Rules
	wall    Micros
	ahead   Micros // of the wall clock, against the slots' clock
	store   *Memory
	kept    []byte // the last checkpoint
	restart time.Duration
}

func newMachine(t *testing.T, rules Rules, wall Micros) *machine {
	m := &machine{t: t, rules: rules, wall: wall}
	m.start()
	return m
}

func (m *machine) start() {
	m.ahead = 0
	store, err := NewMemory(m.rules, func() Micros { return m.wall - m.ahead })
	if err != nil {
		m.t.Fatal(err)
	}
	var s Snapshot
	if m.kept != nil {
		if err := json.Unmarshal(m.kept, &s); err != nil {
			m.t.Fatal(err)
		}
	}
	m.restart = store.Restore(s)
	m.store = store
	m.checkpoint(2 * time.Second)
	store.Correct(nil) // without the ledger the restored bounds stay
}

func (m *machine) checkpoint(ahead time.Duration) {
	s := m.store.Checkpoint(ahead)
	data, err := json.Marshal(s)
	if err != nil {
		m.t.Fatal(err)
	}
	m.store.Saved(s)
	m.kept = data
}

// stop ends the process in an orderly way.
func (m *machine) stop() { m.checkpoint(0) }

func (m *machine) pass(d Micros) { m.wall += d }

// set moves the machine's wall clock while the process runs.
func (m *machine) set(by Micros) {
	m.wall, m.ahead = m.wall+by, m.ahead+by
	m.store.Ahead(m.ahead)
}

// call asks for one call now.
func (m *machine) call() bool {
	m.checkpoint(2 * time.Second)
	a, err := m.store.Reserve(m.t.Context(), []Ask{{Key: "k", Limits: m.rules.Key, Want: 1}})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, g := range a[0].Grants {
		if err := m.store.Settle(m.t.Context(), []Use{{Key: "k", Grant: g}}); err != nil {
			m.t.Fatal(err)
		}
	}
	return len(a[0].Grants) == 1
}

// waits returns how many steps pass until a call is granted.
func (m *machine) waits(step Micros, most int) (steps int) {
	for ; steps < most && !m.call(); steps++ {
		m.pass(step)
	}
	return steps
}

// TestStartWithAClockThatIsBehind checks a process that starts by a clock that is an hour, a day or a month behind its
// predecessor's. It waits as long as it would by the right clock, or for one period of a calendar at most. When the
// clock is right again, no used unit is granted twice.
func TestStartWithAClockThatIsBehind(t *testing.T) {
	noon := MicrosOf(time.Date(2027, 3, 31, 12, 0, 0, 0, time.UTC))
	day := Quota{Count: 3, Window: Calendar, Unit: Day, Zone: time.UTC}
	for name, c := range map[string]struct {
		limit Limit
		calls int
		most  Micros // that a start waits
	}{
		"rate":     {Limit{Name: "x", Rate: &Rate{Count: 1, Per: time.Minute, Burst: 1}}, 1, 2 * oneMinute},
		"calls":    {Limit{Name: "x", InFlight: 1}, 1, 5 * oneMinute},
		"sliding":  {Limit{Name: "x", Quota: &Quota{Count: 3, Window: Sliding, Per: time.Hour}}, 3, 61 * oneMinute},
		"calendar": {Limit{Name: "x", Quota: &day}, 3, 24 * 60 * oneMinute},
		"budget":   {Limit{Name: "x", Budget: &Budget{Quota: day, OnExhausted: Hold}}, 3, 24 * 60 * oneMinute},
	} {
		for _, behind := range []Micros{60 * oneMinute, 24 * 60 * oneMinute, 30 * 24 * 60 * oneMinute} {
			for _, killed := range []bool{false, true} {
				m := newMachine(t, Rules{Key: fast, Shared: []Limit{c.limit}, Lease: time.Minute}, noon)
				for range c.calls {
					if !m.call() {
						t.Fatalf("%s: a first call waits", name)
					}
				}
				if !killed {
					m.stop()
				}
				m.wall -= behind
				m.start()
				if told := Micros(0).Add(m.restart); told != behind {
					t.Errorf("%s: told %s behind, want %s", name, m.restart, Micros(0).Until(behind))
				}
				if m.call() && name != "calls" {
					t.Errorf("%s, %s behind: called at once", name, Micros(0).Until(behind))
				}
				most := c.most
				if (name == "calendar" || name == "budget") && behind == 24*60*oneMinute {
					most += 12 * 60 * oneMinute // until the end of the day that was used up
				}
				if waited := Micros(m.waits(oneMinute, int(30*24*60))) * oneMinute; waited > most {
					t.Errorf("%s, %s behind, killed %v: waits %s, want %s at most", name, Micros(0).Until(behind), killed, Micros(0).Until(waited),
						Micros(0).Until(most))
				}
			}
		}
	}
}

// TestClockSetRightAfterAStartBehind checks that a spent budget stays spent for its day when the clock is right again,
// and for no longer.
func TestClockSetRightAfterAStartBehind(t *testing.T) {
	noon := MicrosOf(time.Date(2027, 3, 31, 12, 0, 0, 0, time.UTC))
	for _, behind := range []Micros{24 * 60 * oneMinute, 30 * 24 * 60 * oneMinute} {
		for _, restart := range []bool{false, true} {
			m := newMachine(t, quota("day", Quota{Count: 3, Window: Calendar, Unit: Day, Zone: time.UTC}), noon)
			for range 2 {
				m.call()
			}
			m.stop()
			m.wall -= behind
			m.start()
			if !m.call() || m.call() {
				t.Errorf("%v behind: not one more call", behind)
			}
			if restart {
				m.stop()
				m.wall += behind
				m.start()
			} else {
				m.set(behind)
			}
			if m.call() {
				t.Errorf("%v behind: the day is given out twice", behind)
			}
			if waited := Micros(m.waits(oneMinute, 48*60)) * oneMinute; waited != 12*60*oneMinute {
				t.Errorf("%v behind, restart %v: waits %s, want until midnight", behind, restart, Micros(0).Until(waited))
			}
		}
	}
}

// TestNoDayTwice checks that no day is granted twice while a wall clock is set back and forth by hours, and the process
// is stopped, killed and started.
func TestNoDayTwice(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 4))
		m := newMachine(t, quota("day", Quota{Count: 5, Window: Calendar, Unit: Day, Zone: time.UTC}), MicrosOf(time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)))
		days, off := map[string]int{}, Micros(0)
		for range 60 {
			m.pass(Micros(random.Int64N(int64(8 * 60 * oneMinute))))
			switch by := Micros(random.Int64N(int64(22*60*oneMinute))) - 11*60*oneMinute; random.IntN(4) {
			case 0:
				m.set(by - off)
				off = by
			case 1:
				m.stop()
				m.wall += by - off
				off = by
				m.start()
			case 2:
				m.wall += by - off
				off = by
				m.start()
			}
			for range random.IntN(8) {
				if m.call() {
					days[m.wall.Time().UTC().Format(time.DateOnly)]++
				}
			}
		}
		for day, n := range days {
			if n > 5 {
				t.Errorf("seed %d: %d calls on %s", seed, n, day)
			}
		}
		if len(days) < 5 {
			t.Errorf("seed %d: calls on %d days", seed, len(days))
		}
	}
}
