package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
	"weir/ingest"
)

// contended is a simulation in which keys with a high rate of their own share one limit.
func contended(t *testing.T, shared ...bucket.Limit) *simulation {
	m := steady(t, bucket.Rate{Count: 1000, Per: time.Second, Burst: 1})
	m.policy.Rules.Shared = shared
	m.openStore()
	m.s.Adopt(m.s.policy)
	return m
}

func tokens(rate int64, burst int64) bucket.Limit {
	return bucket.Limit{
		Name: "tokens", Cost: ingest.FromHeader("Weir-Cost"),
		Rate: &bucket.Rate{Count: rate, Per: time.Second, Burst: burst},
	}
}

// add adds n waiting jobs of a key, each at this cost.
func (m *simulation) add(key string, n int, cost int64) {
	for range n {
		m.seq++
		m.priced[m.seq] = cost
		m.s.Push(key, m.seq, m.part)
	}
}

// calls counts the calls of the keys that begin with prefix.
func (m *simulation) calls(prefix string) (n int) {
	for key, starts := range m.starts {
		if strings.HasPrefix(key, prefix) {
			n += len(starts)
		}
	}
	return n
}

// TestTenantsTakeTurns checks that a tenant gets no more of a shared limit by spreading over many keys.
func TestTenantsTakeTurns(t *testing.T) {
	m := contended(t, tokens(100, 1))
	m.policy.Rules.TenantUntil = "."
	m.add("one.only", 400, 1)
	for i := range 100 {
		m.add(fmt.Sprintf("many.%d", i), 10, 1)
	}
	m.drain(600)
	one, many := m.calls("one."), m.calls("many.")
	if one < 280 || many < 280 {
		t.Errorf("of 600 calls one key's tenant had %d and a hundred keys' tenant %d; want about half each", one, many)
	}
}

// TestTurnsAreMeasuredByCost checks that a key that takes twenty units a call gets a twentieth of the calls.
func TestTurnsAreMeasuredByCost(t *testing.T) {
	m := contended(t, tokens(200, 40))
	m.add("dear", 100, 20)
	m.add("cheap", 3000, 1)
	m.drain(1050)
	dear, cheap := m.calls("dear"), m.calls("cheap")
	if ratio := float64(cheap) / float64(20*dear); ratio < 0.85 || ratio > 1.15 {
		t.Errorf("%d calls of 20 units and %d of 1: the cheap ones had %.2f times the units", dear, cheap, ratio)
	}
}

// TestTurnsArePerKeyWithoutTenants checks that keys of one api share a limit evenly, however deep their queues.
func TestTurnsArePerKeyWithoutTenants(t *testing.T) {
	const runs = 20
	calls := map[string]int{}
	for seed := range uint64(runs) { // of one run the first turns are chance
		m := contended(t, tokens(100, 1))
		m.rnd = rand.New(rand.NewPCG(seed, 1))
		m.add("deep", 500, 1)
		for i := range 4 {
			m.add(fmt.Sprint("flat", i), 60, 1)
		}
		m.drain(250)
		for key, starts := range m.starts {
			calls[key] += len(starts)
		}
	}
	for key, n := range calls {
		if n < 48*runs || n > 52*runs {
			t.Errorf("%s had %d of %d calls; want about a fifth", key, n, 250*runs)
		}
	}
}

// TestCostlyJobIsNotStarved checks that forty keys with an endless supply of cheap jobs leave a turn to a job
// that needs the whole burst.
func TestCostlyJobIsNotStarved(t *testing.T) {
	for _, burst := range []int64{40, 400} { // it waits less, or more, than a job is kept ready
		m := contended(t, tokens(100, burst))
		for i := range 40 {
			m.add(fmt.Sprint("cheap", i), 100, 1)
		}
		m.add("dear", 1, burst)
		m.drain(2000)
		if m.calls("dear") == 0 {
			t.Errorf("burst %d: the costly job was not called while %d cheap ones were", burst, m.calls("cheap"))
		}
	}
}

// TestWhatAQuotaHasLeftIsUsed checks that a job that needs more than is left of the day waits for the next one,
// and that jobs that need less do not wait with it.
func TestWhatAQuotaHasLeftIsUsed(t *testing.T) {
	m := contended(t, bucket.Limit{
		Name: "daily", Cost: ingest.FromHeader("Weir-Cost"),
		Quota: &bucket.Quota{Count: 100, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC},
	})
	began := m.now
	m.add("first", 9, 10)
	m.drain(9)
	m.add("dear", 1, 20)
	m.after(time.Second, func() { m.add("cheap", 10, 1) })
	m.drain(19)
	if n := m.calls("cheap"); n != 10 || m.calls("dear") != 0 {
		t.Fatalf("%d of 10 cheap jobs and %d costly ones were called on a day that had room for 10 units", n, m.calls("dear"))
	}
	if q := m.s.Queues.byKey["dear"]; q == nil {
		t.Fatal("the costly job is gone")
	} else if w := m.s.At(m.now).waits(q); w.For != WaitLimit || w.Limit != "daily" || w.Until == nil {
		t.Errorf("the costly job waits for %+v; want the limit daily and a time", w)
	}
	m.drain(20)
	if _, end := m.policy.Rules.Shared[0].Quota.Period(began); m.starts["dear"][0].At < int64(end)*1000 {
		t.Error("the costly job was called on the day that had no room for it")
	}
}

// away puts the store a round trip of about 10 ms away, and takes in each answer after that.
func (m *simulation) away() *simulation {
	m.sendAway()
	m.way, m.back, m.losses, m.skew = 5*time.Millisecond, 5*time.Millisecond, 0, 0
	m.openStore()
	m.s.Adopt(m.s.policy)
	return m
}

// TestTurnsOfAStoreElsewhere checks that a key gets as many calls in a round trip as its own rate allows if a
// shared limit has room. If it has none, keys take turns as with a store in the process.
func TestTurnsOfAStoreElsewhere(t *testing.T) {
	m := contended(t, tokens(100_000, 100)).away()
	m.policy.Rules.Key.InFlight = 64
	m.add("one", 1000, 1)
	m.add("other", 1000, 1)
	began := m.now
	m.drain(1000)
	if took := began.Until(m.now); took > 3*time.Second { // it takes 1.4 s; at a call a trip it took 7.3 s
		t.Errorf("1000 calls of two keys took %v", took)
	}

	m = contended(t, tokens(100, 1)).away()
	m.add("deep", 500, 1)
	for i := range 4 {
		m.add(fmt.Sprint("flat", i), 60, 1)
	}
	m.drain(250)
	for key, starts := range m.starts {
		if n := len(starts); n < 40 || n > 60 {
			t.Errorf("%s had %d of 250 calls; want about 50", key, n)
		}
	}
}

// TestTurn checks that a turn is more than one call only if that takes nothing from other keys.
func TestTurn(t *testing.T) {
	rules := hourly()
	rules.Shared = []bucket.Limit{tokens(100, 1)}
	s, _, now := inspected(rules)
	s.store.clock = OtherClock
	jobs := func(costs ...int64) (all []*Job) {
		for _, c := range costs {
			all = append(all, &Job{Call: limits.Call{Costs: []int64{c}}})
		}
		return all
	}
	q := &KeyQueue{Limits: &rules.Key}
	fx := &Effects{}
	expect := func(what string, want int, costs ...int64) {
		t.Helper()
		if got := (&step{s, now, *fx}).turn(q, jobs(costs...)); got != want {
			t.Errorf("%s: a turn of %d calls, want %d", what, got, want)
		}
	}
	expect("a key alone", 4, 1, 1, 1, 1)
	expect("the third costs more", 2, 1, 1, 2, 1)
	s.Queues.active, fx.asked = make([]*KeyQueue, 1), [][]*Job{make([]*Job, 58)}
	expect("the last but one of a trip with 6 places left", 3, 1, 1, 1, 1)
	fx.asked = [][]*Job{make([]*Job, 64)}
	expect("a trip without places", 1, 1, 1, 1, 1)
	fx.asked, s.Queues.active = nil, make([]*KeyQueue, 31)
	expect("32 keys ask", 2, 1, 1, 1, 1)
	s.Queues.active = make([]*KeyQueue, 100)
	expect("101 keys ask", 1, 1, 1, 1, 1)
	s.Queues.active = nil
	s.gate.scarce = now.Add(-plentyAfter / 2)
	expect("a limit refused something lately", 1, 1, 1, 1, 1)
	s.gate.scarce = now.Add(-plentyAfter)
	expect("it was a while ago", 4, 1, 1, 1, 1)
	s.store.clock = OwnClock
	expect("a store in the process", 1, 1, 1, 1, 1)
	s.Shared = nil
	expect("no shared limit", 4, 1, 1, 2, 1)
}

// TestEveryRoundSaysWhatWaits checks what a round of asks says of the keys that wait: how many each tenant has, the
// keys that ask included, or only the number of tenants if there are too many to name.
func TestEveryRoundSaysWhatWaits(t *testing.T) {
	said := func(keys ...string) *bucket.Line {
		rules := hourly()
		rules.TenantUntil = "."
		s, p, now := inspected(rules)
		s.Pipe.pace.Replica = "me"
		for _, key := range keys[1:] {
			s.turns.Wait(s.Queue(key, p), bucket.Normal)
		}
		do := &step{Schedule: s, now: now}
		// The queue asks without having waited.
		do.fx.Asks, do.fx.asked = make([]bucket.Ask, 1), [][]*Job{{{Queue: s.Queue(keys[0], p)}}}
		do.standInLine()
		return do.fx.Asks[0].Line
	}
	line := said("a.1", "a.2", "b.1", "a.3")
	if want := []bucket.Waiting{{Tenant: "a", Keys: 3}, {Tenant: "b", Keys: 1}}; !slices.Equal(line.Tenants, want) || line.More != 0 || line.Replica != "me" {
		t.Errorf("%+v, want %v", line, want)
	}
	var many []string
	for i := range bucket.MostTenants + 1 {
		many = append(many, fmt.Sprintf("t%d.1", i), fmt.Sprintf("t%d.2", i))
	}
	if line := said(many...); len(line.Tenants) != 0 || line.More != bucket.MostTenants+1 {
		t.Errorf("%+v of %d tenants", line, bucket.MostTenants+1)
	}
}

// TestMissedCallUsesNothing checks that a call that was taken back counts in no limit's use.
func TestMissedCallUsesNothing(t *testing.T) {
	d := newDesk(fast(4), bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 100, Per: time.Minute, Burst: 10}})
	d.add("a")
	for range 5 {
		fx := d.turn()
		if len(fx.Asks) > 0 {
			d.Answer(&fx, Reply{Sent: d.now, Came: d.now, Answers: []bucket.Answer{{Grants: []bucket.Grant{{At: d.now, TAT: d.now.Add(d.spacing)}}}}})
		}
		for _, j := range fx.Start {
			if used := d.At(d.now).Uses()[0].Used; used != 1 {
				t.Errorf("%d units are used by a call", used)
			}
			d.Unstart(j)
			if used := d.At(d.now).Uses()[0].Used; used != 0 {
				t.Errorf("%d units are used by a call that was taken back", used)
			}
			return
		}
	}
	t.Error("no call started")
}

// TestLearnNoticesThatMoreIsLeft checks that jobs ask again after an answer to another process has said that more is
// left: whether the excess was read before, or only refused a job in between.
func TestLearnNoticesThatMoreIsLeft(t *testing.T) {
	limit := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 60, Per: time.Hour, Burst: 1}}
	limit.Left.Header = "X-Left"
	s := New(&Policy{Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: *limit.Rate}, Shared: []bucket.Limit{limit}}}, Pace{}, nil)
	excess := func(units int64) []bucket.Level { return []bucket.Level{{Limit: limit, Excess: units}} }
	refuse := func(units int64) {
		in := answering{step: step{Schedule: s, now: someTime}}
		q := &KeyQueue{}
		in.wait(q, &Job{Queue: q, Call: limits.Call{Costs: []int64{1}}}, &Job{Queue: q, Call: limits.Call{Costs: []int64{1}}}, bucket.Normal, &bucket.Wait{Limit: "account", Until: someTime.Add(time.Hour), Excess: units})
	}
	for i, c := range []struct {
		refused int64
		levels  []bucket.Level
		eased   bool
	}{
		{0, nil, false},
		{0, excess(9), false},
		{0, excess(9), false},
		{0, excess(8), true},
		{0, excess(12), false},
		{0, nil, true},
		{7, nil, true},
		{7, excess(7), false},
		{7, excess(3), true},
		{0, nil, true},
		{0, nil, false},
	} {
		if refuse(c.refused); s.Shared.Learn(c.levels) != c.eased {
			t.Errorf("step %d: an answer has said that more is left: %v, want %v", i, !c.eased, c.eased)
		}
	}
}

// TestDearCallWaitsAloneForTheVendor checks that while a dear call waits for the vendor's count, cheaper calls may use
// what the vendor has left.
func TestDearCallWaitsAloneForTheVendor(t *testing.T) {
	limit := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 600, Per: time.Minute, Burst: 100}}
	s := New(&Policy{Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: *limit.Rate}, Shared: []bucket.Limit{limit}}}, Pace{}, nil)
	for units, shut := range map[int64]bool{0: true, 40: false} {
		s.gate.open()
		in, dear := answering{step: step{Schedule: s, now: someTime}}, &Job{Queue: &KeyQueue{}, Call: limits.Call{Costs: []int64{31}}}
		in.wait(dear.Queue, dear, dear, bucket.Normal, &bucket.Wait{Limit: "account", Until: someTime.Add(time.Minute), Excess: units})
		if s.gate.isShut(someTime) != shut {
			t.Errorf("with an excess of %d units other keys wait: %v, want %v", units, !shut, shut)
		}
	}
}

// TestUnitsThatComeBackAreAskedFor checks that a job that a quota has put off until midnight asks again if units come
// back that were granted while it asked, whether they come back before its answer or after. It asks once, and not for
// units that had come back before it asked.
func TestUnitsThatComeBackAreAskedFor(t *testing.T) {
	const start = bucket.Micros(1_700_000_000_000_000)
	for name, c := range map[string]struct {
		back  time.Duration // when the store has heard of the units; the ask is sent at 1 s, and answered at 2 s
		again bool
	}{
		"before the ask":     {500 * time.Millisecond, false},
		"while it is asked":  {1500 * time.Millisecond, true},
		"after the answer":   {3 * time.Second, true},
		"long after":         {time.Hour, true},
		"after the midnight": {48 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			rules := bucket.Rules{
				Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: 4},
				Shared: []bucket.Limit{{Name: "daily", Quota: &bucket.Quota{Count: 33, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}}},
			}
			s := New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, ReserveAhead: MostAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls},
				func(string) bucket.Micros { return 0 })
			now, returned := start, start.Add(c.back)
			asks := func() (asked Effects) { // steps until a job asks, or nothing is to be done
				for range 10 {
					fx := s.Step(now)
					for _, j := range fx.Load {
						j.Policy, j.Costs = s.policy, []int64{1}
						s.Loaded(j)
					}
					if len(fx.Asks) > 0 {
						return fx
					}
				}
				return Effects{}
			}
			s.Push("k", 1, &Partition{Open: true})
			now = start.Add(time.Second)
			if returned < now {
				s.UnitsCameBack(returned)
			}
			fx := asks()
			if len(fx.Asks) != 1 {
				t.Fatalf("%d asks of a job that may be called", len(fx.Asks))
			}
			sent := now
			now = start.Add(2 * time.Second)
			if returned > sent && returned < now {
				if s.UnitsCameBack(returned) {
					t.Error("it must ask again before any job was put off")
				}
			}
			out := s.Answer(&fx, Reply{Sent: sent, Came: now, Answers: []bucket.Answer{{Wait: bucket.Wait{Limit: "daily", Until: start.Add(24 * time.Hour)}}}})
			if fx := asks(); len(fx.Asks) != 0 {
				t.Fatal("a job asks again that was put off until midnight")
			}
			if returned > now {
				now = returned
				out.PutOff = s.UnitsCameBack(now)
			}
			if out.PutOff != c.again {
				t.Fatalf("it must ask again: %v, want %v", out.PutOff, c.again)
			}
			if !c.again {
				return
			}
			if s.UnitsCameBack(now) {
				t.Error("it must ask again twice for the same units")
			}
			s.AskAgain(s.Queues.Find("k"), now)
			if fx := asks(); len(fx.Asks) != 1 {
				t.Errorf("%d asks of a job that is to ask again", len(fx.Asks))
			}
		})
	}
}
