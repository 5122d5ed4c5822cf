package schedule

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"runtime"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
)

// TestSimulation runs seeds through the pure core. One seed alone: go test ./dispatcher/schedule -run
// Simulation/seed=7.
func TestSimulation(t *testing.T) {
	for seed := range seeds.Of(10_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			newSimulation(t, seed).play()
		})
	}
}

// play runs a simulation to its end, and checks it.
func (m *simulation) play() {
	m.run(1+m.rnd.IntN(12), 1+m.rnd.IntN(120))
	m.rest()
	m.check()
}

// TestSimulationOfAStoreElsewhere runs seeds with a store that is a round trip away, has a clock of its own, and does
// not always answer. One seed alone: go test ./dispatcher/schedule -run Elsewhere/seed=7.
func TestSimulationOfAStoreElsewhere(t *testing.T) {
	for seed := range seeds.Of(10_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			newSimulation(t, seed).sendAway().play()
		})
	}
}

// steady is a simulation of one api at rate without shared limits or failures, whose loop wakes up to 2 ms late.
func steady(t testing.TB, rate bucket.Rate) *simulation {
	m := newSimulation(t, 1)
	m.late, m.outcome, m.words, m.tenants, m.outages = 2*time.Millisecond, 0, 0, 1, nil
	m.policy.Rules = bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{Rate: rate, Capacity: 1000, InFlight: 8}}
	m.openStore()
	m.s.Adopt(m.s.policy)
	m.s.Pipe.pace.MaxStaged, m.s.Pipe.pace.MaxCalls = 256, 256
	return m
}

// TestRateIsUsed checks the other half of the promise: weir is hardly ever under the rate while jobs wait.
func TestRateIsUsed(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 100, Per: time.Second, Burst: 1})
	m.run(1, 500)
	m.rest()
	m.check()
	a := m.starts["t0.k0"]
	span := time.Duration(a[len(a)-1].At - a[0].At)
	if u := float64(len(a)-1) / (span.Seconds() * 100); u < 0.98 {
		t.Errorf("%.1f %% of the rate was used while jobs waited", 100*u)
	}
}

// TestHotKeyDelaysNobody checks that a key with 500 waiting jobs does not delay other keys.
func TestHotKeyDelaysNobody(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 50, Per: time.Second, Burst: 1})
	for range 500 {
		m.seq++
		m.s.Push("hot", m.seq, m.part)
	}
	pushed := map[string]bucket.Micros{}
	for i := range 20 {
		key := fmt.Sprintf("cold-%d", i)
		m.after(time.Duration(i)*100*time.Millisecond, func() {
			m.seq++
			pushed[key] = m.now
			m.s.Push(key, m.seq, m.part)
		})
	}
	m.drain(520)
	for key, at := range pushed {
		waited := time.Duration(m.starts[key][0].At-int64(at)*1000) * time.Nanosecond
		if waited > 10*time.Millisecond {
			t.Errorf("%s waited %s behind the hot key", key, waited)
		}
	}
}

// digest is a running sum over all that happens in a simulation, in order. A nil digest sums up nothing.
type digest struct{ hash.Hash64 }

func (d *digest) add(what ...any) {
	if d != nil {
		_, _ = fmt.Fprintln(d, what...) // a hash takes everything
	}
}

// effects adds the effects of a step, and the holds and the next time after it.
func (d *digest) effects(s *Schedule, now bucket.Micros, fx *Effects) {
	if d == nil {
		return
	}
	d.add(now, s.Holds.held, s.Holds.breaker.until, s.gate.opens, s.Next(now), fx.Unused)
	for _, jobs := range append([][]*Job{fx.Load, fx.Look, fx.Start, fx.Expire, fx.Cancel, fx.Recall, fx.Stale}, fx.asked...) {
		d.add(len(jobs))
		for _, j := range jobs {
			d.add(j.Seq, j.Phase, j.At, j.NotBefore)
		}
	}
	for _, q := range fx.Resumed {
		if q != nil {
			d.add(q.Key)
		}
	}
	for i := range fx.Asks {
		a := fx.Asks[i]
		if a.Line != nil {
			d.add(*a.Line)
			a.Line = nil
		}
		d.add(a)
	}
}

// recording is a test whose simulations are summed up.
type recording struct {
	testing.TB
	digest digest
}

// digestOf returns the digest of a test's simulations, nil if there is none.
func digestOf(t testing.TB) *digest {
	if r, ok := t.(*recording); ok {
		return &r.digest
	}
	return nil
}

// TestSeedsRepeat checks that the seed alone decides what happens in each simulation, so that a seed that fails once
// fails again.
func TestSeedsRepeat(t *testing.T) {
	alone := func(play func(m *simulation)) func(testing.TB, uint64) {
		return func(t testing.TB, seed uint64) { play(newSimulation(t, seed)) }
	}
	for name, of := range map[string]struct {
		seeds uint64
		play  func(t testing.TB, seed uint64)
	}{
		"Simulation":                     {20, alone(func(m *simulation) { m.play() })},
		"SimulationOfAStoreElsewhere":    {20, alone(func(m *simulation) { m.sendAway().play() })},
		"SimulationOfReuse":              {20, func(t testing.TB, seed uint64) { playReuse(t, seed) }},
		"SimulationOfCrashes":            {20, func(t testing.TB, seed uint64) { playCrashes(t, seed) }},
		"SimulationOfChanges":            {20, playChanges},
		"SimulationOfPriorities, key":    {3, func(t testing.TB, seed uint64) { playPriorities(t, seed, noSlip, false) }},
		"SimulationOfPriorities, shared": {3, func(t testing.TB, seed uint64) { playPriorities(t, seed, noSlip, true) }},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range of.seeds {
				sums := map[uint64]bool{}
				for range 2 {
					r := &recording{t, digest{fnv.New64a()}}
					of.play(r, seed)
					sums[r.digest.Sum64()] = true
				}
				if len(sums) > 1 {
					t.Errorf("seed %d had %d different courses in 2 runs", seed, len(sums))
				}
			}
		})
	}
}

// sendAway puts the store on another machine: a round trip away, with a clock of its own.
func (m *simulation) sendAway() *simulation {
	m.skew = m.upTo(2*time.Hour) - time.Hour
	m.openStore()
	most := []time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 15 * time.Millisecond}[m.rnd.IntN(3)]
	m.way, m.back = m.upTo(most), m.upTo(most)
	m.losses = []int{0, 0, 30, 8}[m.rnd.IntN(4)]
	m.busy = min(m.busy, 500*time.Microsecond) // more than the jitter has room for is another test's business
	m.s.Pipe.pace.Replica = "one"
	m.s.store.clock, m.s.store.tatOf = OtherClock, func(string) bucket.Micros { return 0 }
	return m
}

// leg returns how long one way takes this time.
func (m *simulation) leg(best time.Duration) time.Duration {
	if m.rnd.IntN(20) == 0 {
		return best + m.upTo(60*time.Millisecond)
	}
	return best + m.upTo(best/8+200*time.Microsecond)
}

// reserve asks the store and takes in its answer, at once or after a round trip.
func (m *simulation) reserve(fx Effects) {
	if m.s.store.clock == OwnClock {
		answers, err := m.store.Reserve(context.Background(), fx.Asks)
		m.s.Answer(&fx, Reply{Sent: m.now, Came: m.now, Answers: answers, Err: err})
		return
	}
	r := Reply{Sent: m.now}
	lost := m.losses > 0 && m.rnd.IntN(m.losses) == 0
	m.after(m.leg(m.way), func() {
		if r.Answers, r.Err = m.store.Reserve(context.Background(), fx.Asks); r.Err != nil {
			m.t.Fatal(r.Err)
		}
		if lost {
			m.forget(r.Answers, &fx)
			r.Answers, r.Err = nil, errLost
		}
		m.after(m.leg(m.back), func() {
			r.Came = m.now
			m.measure(&r, func() {
				if out := m.s.Answer(&fx, r); len(out.Unused) > 0 {
					m.tell(out.Unused)
				}
			})
		})
	})
}

// measure makes the further round trips that a reply needs, and then goes on.
func (m *simulation) measure(r *Reply, goOn func()) {
	if !m.s.At(m.now).IsRough(r) {
		goOn()
		return
	}
	trip := Trip{Sent: m.now}
	m.after(m.leg(m.way), func() {
		trip.Now = m.now.Add(m.skew)
		m.after(m.leg(m.back), func() {
			trip.Came = m.now
			r.Trips = append(r.Trips, trip)
			m.measure(r, goOn)
		})
	})
}

// TestSlowFirstTripIsMeasuredAgain checks that a slot is neither late nor lost because the first answer of a store
// elsewhere came slowly, if the store answers fast afterwards, and that replies are not measured again without need.
func TestSlowFirstTripIsMeasuredAgain(t *testing.T) {
	const skew, slow, fast = bucket.Micros(7_000_000), 33 * time.Millisecond, 400 * time.Microsecond
	m := steady(t, bucket.Rate{Count: 100, Per: time.Second, Burst: 1})
	m.s.store.clock = OtherClock
	m.s.Pipe.pace.GrantTTL = 40 * time.Millisecond
	trip := func(took time.Duration) Trip { // the store reads its clock at the beginning
		sent := m.now
		m.now = m.now.Add(took)
		return Trip{sent, m.now, sent + skew}
	}
	first := trip(slow)
	r := Reply{Sent: first.Sent, Came: first.Came, Answers: []bucket.Answer{{Now: first.Now, Grants: []bucket.Grant{{At: first.Now}}}}}
	for m.s.At(m.now).IsRough(&r) {
		r.Trips = append(r.Trips, trip(fast))
	}
	if n := len(r.Trips); n != 1 {
		t.Errorf("%d further round trips were made, want 1", n)
	}
	q := m.s.Push("k", 1, m.part)
	j := q.begin(q.waits.Take(bucket.Normal))
	m.s.Pipe.stage(j, j.Priority)
	j.Phase = asking
	m.s.store.ask()
	m.s.Answer(&Effects{asked: [][]*Job{{j}}}, r)
	if late := first.Sent.Until(j.At); late < 0 || late > fast {
		t.Errorf("the slot is %s late", late)
	}
	if left := m.now.Until(m.s.At(m.now).Latest(j)); left < 0 {
		t.Errorf("the slot was lost %s ago", -left)
	}
	next := trip(slow)
	if m.s.At(m.now).IsRough(&Reply{Sent: next.Sent, Came: next.Came, Answers: []bucket.Answer{{Now: next.Now}}}) {
		t.Error("a slow trip is measured again although a fast one has just told the clock")
	}
}

var errLost = errors.New("lost on the way")

// forget ends grants without a holder, as their lease would.
func (m *simulation) forget(answers []bucket.Answer, fx *Effects) {
	var uses []bucket.Use
	for i, a := range answers {
		for _, g := range a.Grants {
			uses = append(uses, bucket.Use{Key: fx.Asks[i].Key, Grant: g})
		}
	}
	m.after(time.Second, func() { m.settle(uses) })
}

// epoch is a time with the same rules.
type epoch struct {
	from  bucket.Micros
	rules bucket.Rules
}

// change puts other rates in force, as a dispatcher does.
func (m *simulation) change() epoch {
	rules := m.policy.Rules
	rules.Key.Rate.Count = 1 + m.rnd.Int64N(200)
	rate := bucket.Rate{Count: 1 + m.rnd.Int64N(300), Per: time.Second, Burst: 1}
	rules.Shared = []bucket.Limit{{Name: "account", Rate: &rate}}
	if m.rnd.IntN(2) == 0 {
		other := bucket.Rate{Count: 1 << 20, Per: time.Second, Burst: 1 << 20}
		rules.Shared = []bucket.Limit{{Name: "other", Rate: &other}, rules.Shared[0]}
	}
	if err := m.store.Apply(rules); err != nil {
		m.t.Fatal(err)
	}
	policy := *m.policy
	policy.Rules = rules
	m.policy = &policy
	clear(m.grudges)
	m.s.Adopt(m.policy)
	for _, q := range m.s.Queues.all {
		m.s.Rebind(q, m.now)
	}
	return epoch{m.now, rules}
}

// checkEpochs checks the calls of every epoch against its own rates, once the slots granted before are past, and
// all of them against the highest rates.
func (m *simulation) checkEpochs(epochs []epoch) {
	settled := LeastAhead + m.s.Pipe.pace.GrantTTL + m.busy + 2*m.late
	for i, e := range epochs {
		until := Never
		if i+1 < len(epochs) {
			until = epochs[i+1].from
		}
		within := func(all []bucket.Arrival) (some []bucket.Arrival) {
			for _, a := range all {
				if at := bucket.Micros(a.At / 1000); at > e.from.Add(settled) && at <= until {
					some = append(some, a)
				}
			}
			return some
		}
		shared := e.rules.Shared[len(e.rules.Shared)-1]
		if v := bucket.Check(within(m.shared["account"]), m.claim(shared)); v.Outcome == bucket.Fail {
			m.t.Fatalf("epoch %d, account %d/s: %s", i, shared.Rate.Count, v)
		}
		for key, arrivals := range m.starts {
			own := bucket.Limit{Name: "rate", Rate: &e.rules.Key.Rate}
			if v := bucket.Check(within(arrivals), bucket.Expectation{Limit: own, Jitter: e.rules.Jitter}); v.Outcome == bucket.Fail {
				m.t.Fatalf("epoch %d, %d/s, key %s: %s", i, own.Rate.Count, key, v)
			}
		}
	}
}

// playChanges plays one seed of rules that change.
func playChanges(t testing.TB, seed uint64) {
	m := newSimulation(t, seed)
	m.policy.Rules.Key.Rate.Burst = 1
	epochs := []epoch{m.change()}
	for range 1 + m.rnd.IntN(4) {
		m.after(m.upTo(2*time.Second), func() { epochs = append(epochs, m.change()) })
	}
	m.run(1+m.rnd.IntN(12), 1+m.rnd.IntN(120))
	m.checkEpochs(epochs)
}

// TestSimulationOfChanges runs seeds in which the rules change while jobs wait, are made ready, have slots and are
// called. One seed alone: go test ./dispatcher/schedule -run OfChanges/seed=7.
func TestSimulationOfChanges(t *testing.T) {
	for seed := range seeds.Of(3_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			playChanges(t, seed)
		})
	}
}

// TestRaisedRateHelpsAtOnce checks that a key whose next call was tomorrow is called within the new rate's
// interval.
func TestRaisedRateHelpsAtOnce(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 1, Per: 24 * time.Hour, Burst: 1})
	for range 10 {
		m.seq++
		m.accepted["k"] = append(m.accepted["k"], m.seq)
		m.s.Push("k", m.seq, m.part)
	}
	m.drain(1)
	raised := m.now
	m.policy.Rules.Key.Rate.Per = time.Second
	rules := m.policy.Rules
	if err := m.store.Apply(rules); err != nil {
		t.Fatal(err)
	}
	m.s.Adopt(&Policy{Rules: rules})
	for _, q := range m.s.Queues.all {
		m.s.Rebind(q, m.now)
	}
	m.drain(10)
	if took := raised.Until(m.now); took > 11*time.Second {
		t.Errorf("nine calls at 1/s took %s", took)
	}
}

// BenchmarkCall measures one call in the schedule alone, from the job's arrival to its end, while a thousand or
// a million other keys wait for slots that are hours away. B/key is the memory of a waiting key beside the
// server.
func BenchmarkCall(b *testing.B) {
	for _, keys := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			d := newDesk(bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Microsecond, Burst: 1}, Capacity: 1000, InFlight: 4})
			d.spacing = time.Microsecond
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for i := range keys {
				d.Push(fmt.Sprintf("customer-%07d", i), uint64(i+1), d.part).TAT = d.now.Add(time.Hour + time.Duration(i)*time.Microsecond)
			}
			for d.Next(d.now) <= d.now {
				d.turn()
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			seq := uint64(keys)
			b.ReportAllocs()
			for b.Loop() {
				d.now = d.now.Add(10 * time.Microsecond)
				seq++
				d.Push("busy", seq, d.part)
				for ended := false; !ended; d.now = d.now.Add(time.Microsecond) {
					d.grant()
					if q := d.Queues.byKey["busy"]; q != nil && len(q.Jobs) > 0 && q.Jobs[0].Phase == calling {
						j := q.Jobs[0]
						d.Ended(j, nil, d.now)
						d.Finished(j)
						ended = true
					}
				}
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(keys), "B/key")
			runtime.KeepAlive(d)
		})
	}
}
