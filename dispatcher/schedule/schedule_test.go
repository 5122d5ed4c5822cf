package schedule

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// desk is a schedule driven by hand: nothing happens in it but what a test does.
type desk struct {
	*Schedule
	part    *Partition
	now     bucket.Micros
	spacing time.Duration // of the slots that are granted
}

func newDesk(limits bucket.KeyLimits, shared ...bucket.Limit) *desk {
	r := bucket.Rules{Key: limits, Shared: shared}
	s := New(&Policy{Rules: r}, Pace{
		PrepareLead: LeastLead, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls,
	}, func(string) bucket.Micros { return 0 })
	s.policy.Breaker = BreakerPolicy{Failures: 1, Min: time.Second, Max: time.Minute}
	return &desk{s, &Partition{Open: true}, 1_700_000_000_000_000, 10 * time.Millisecond}
}

func fast(inFlight int64) bucket.KeyLimits {
	return bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: inFlight}
}

// add adds a job of each key.
func (d *desk) add(keys ...string) {
	for _, key := range keys {
		d.Push(key, uint64(d.census.unfinished+1), d.part)
	}
}

// turn steps once, and makes ready every job that must be.
func (d *desk) turn() Effects {
	fx := d.Step(d.now)
	for _, j := range fx.Load {
		j.Policy, j.Costs = d.policy, make([]int64, len(d.Shared))
		for i := range j.Costs {
			j.Costs[i] = 1
		}
		d.Loaded(j)
	}
	return fx
}

// grant is a turn in which every ask gets a slot at once, and every call that starts leaves and continues.
func (d *desk) grant() {
	fx := d.turn()
	for _, j := range fx.Start {
		d.Sent(j, d.now)
	}
	if len(fx.Asks) == 0 {
		return
	}
	r := Reply{Sent: d.now, Came: d.now}
	for range fx.Asks {
		r.Answers = append(r.Answers, bucket.Answer{Grants: []bucket.Grant{{At: d.now, TAT: d.now.Add(d.spacing)}}})
	}
	d.Answer(&fx, r)
}

func (d *desk) inPhase(p Phase) (n int) {
	for _, q := range d.Queues.byKey {
		n += q.Jobs.count(p)
	}
	return n
}

func names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

// TestPausedKeyGivesTheProbeUp checks that a key whose job is the breaker's probe lets another key probe if it
// is paused, or held for long.
func TestPausedKeyGivesTheProbeUp(t *testing.T) {
	for name, stop := range map[string]func(d *desk, q *KeyQueue){
		"paused": func(d *desk, q *KeyQueue) { d.Holds.Pause(q.Key, Pause{}) },
		"held":   func(d *desk, q *KeyQueue) { d.Holds.Hold(q, d.now.Add(time.Hour), "429") },
	} {
		d := newDesk(fast(4))
		d.add("a", "b")
		d.Holds.breaker.open(d.policy.Breaker, d.now.Add(-2*time.Second), 0) // half open by now
		d.turn()
		first := d.Holds.breaker.probe
		if first == nil {
			t.Fatal("no probe")
		}
		stop(d, first.Queue)
		asked := false
		for range 100 {
			d.now = d.now.Add(10 * time.Millisecond)
			for _, a := range d.turn().Asks {
				asked = asked || a.Key != first.Queue.Key
			}
		}
		if !asked {
			t.Errorf("%s: the other key's job did not become the probe", name)
		}
	}
}

// TestNothingStaysReadyForAFarLimit checks that ready jobs go back when a shared limit turns out to open in
// three hours, also those that were not asked for: a crash meanwhile must not make them unknown.
func TestNothingStaysReadyForAFarLimit(t *testing.T) {
	d := newDesk(fast(4), bucket.Limit{Name: "q", Quota: &bucket.Quota{Count: 10, Per: 3 * time.Hour, Window: bucket.Sliding}})
	d.add(names("k", 300)...)
	until := d.now.Add(3 * time.Hour)
	for i := range 2000 {
		fx := d.turn()
		if len(fx.Asks) > 0 {
			wait := d.now.Add(20 * time.Millisecond) // something else binds first
			if i > 50 {
				wait = until
			}
			r := Reply{Sent: d.now, Came: d.now}
			for range fx.Asks {
				r.Answers = append(r.Answers, bucket.Answer{Wait: bucket.Wait{Limit: "q", Until: wait}})
			}
			d.Answer(&fx, r)
		}
		d.now = d.now.Add(10 * time.Millisecond)
	}
	if n := d.inPhase(ready) + d.inPhase(staging); n > 0 {
		t.Errorf("%s before the limit opens %d jobs are ready", d.now.Until(until), n)
	}
}

// TestLongCallsUseAllOfInFlight checks that a key makes as many calls at once as its limit allows, however long they
// take, and no more.
func TestLongCallsUseAllOfInFlight(t *testing.T) {
	for _, most := range []int64{1, 4, maxAsks, maxAsks + 1, 300} {
		d := newDesk(fast(most))
		d.Pipe.LearnCall(12 * time.Second)
		for range most + 100 {
			d.add("k")
		}
		for range 10*most + 100 {
			d.now = d.now.Add(2 * time.Millisecond)
			for d.Next(d.now) <= d.now {
				d.grant()
			}
		}
		if n := d.inPhase(calling); int64(n) != most {
			t.Errorf("%d calls run at once, and %d may", n, most)
		}
	}
}

// TestLongCallsLeaveRoom checks that nothing is made ready behind long calls that cannot start: it would make
// keys wait whose calls can.
func TestLongCallsLeaveRoom(t *testing.T) {
	d := newDesk(fast(1))
	d.Pipe.LearnCall(12 * time.Second)
	busy := names("busy", 300)
	d.add(busy...)
	d.add(busy...)
	for range 500 { // every busy key has a call that runs, and a job behind it
		d.now = d.now.Add(2 * time.Millisecond)
		for d.Next(d.now) <= d.now {
			d.grant()
		}
	}
	if n := d.inPhase(calling); n < 300 {
		t.Fatalf("%d of 300 calls run", n)
	}
	d.add("idle")
	if fx := d.turn(); len(fx.Load) != 1 || fx.Load[0].Queue.Key != "idle" {
		t.Errorf("%d jobs are made ready at once, %d are ready already: the idle key waits for others' calls", len(fx.Load), d.inPhase(ready))
	}
}

// TestBreakerTurnedOffCloses checks that a configuration without a breaker lets an api be called whose breaker
// was open.
func TestBreakerTurnedOffCloses(t *testing.T) {
	d := newDesk(fast(4))
	d.add(names("k", 5)...)
	d.Holds.breaker.open(d.policy.Breaker, d.now, 0)
	next := *d.policy
	next.Breaker.Failures = 0
	d.Adopt(&next)
	for _, q := range d.Queues.byKey {
		d.Rebind(q, d.now)
	}
	if n := len(d.turn().Load); n != 5 {
		t.Errorf("%d of 5 jobs are made ready", n)
	}
}

// TestPartGoesWhileRulesChange checks that queues dropped between the adoption of a new policy and their own
// rebinding disturb neither tenants nor turns.
func TestPartGoesWhileRulesChange(t *testing.T) {
	d := newDesk(fast(4), bucket.Limit{Name: "q", Quota: &bucket.Quota{Count: 10, Per: 3 * time.Hour, Window: bucket.Sliding}})
	d.policy.Rules.TenantUntil = "."
	d.Adopt(d.policy)
	d.gate.opens = d.now.Add(time.Hour)
	d.add("a.1", "b.1", "c.1", "c.2", "d.1")
	d.turn()
	if d.turns.Preparing() != 5 {
		t.Fatalf("%d of 5 queues wait", d.turns.Preparing())
	}
	kept := d.Queues.byKey["a.1"]
	next := *d.policy
	next.Rules.TenantUntil = "."
	d.Adopt(&next)
	d.Rebind(kept, d.now)
	var gone []*KeyQueue
	for _, q := range d.Queues.byKey {
		if q != kept {
			d.Forget(q)
			gone = append(gone, q)
		}
	}
	d.ForgetWaiting(&Partition{})
	for _, q := range gone {
		d.Rebind(q, d.now)
	}
	if tenants, _, _ := d.turns.Left(bucket.Normal); tenants != 1 || kept.seats.Tenant(bucket.Normal) != "a" || len(d.Queues.byKey) != 1 {
		t.Errorf("%d tenants and %d queues are left of one", tenants, len(d.Queues.byKey))
	}
}

// TestSuspectsAreCalledFewAtATime checks that one death makes no job a suspect, that suspects of two deaths are
// not called in single file, and that suspects of three are called alone.
func TestSuspectsAreCalledFewAtATime(t *testing.T) {
	d := newDesk(fast(4))
	d.add("k0")
	j := d.Extract(d.Queues.byKey["k0"], 1)
	d.suspects.alone = &Job{Deaths: aloneFrom} // is being called
	if j.Deaths = 1; !d.suspects.mayCall(j) {
		t.Error("after one death a job waits as a suspect")
	}
	for deaths, most := range map[int]int{suspectFrom: manySuspects, aloneFrom: 1} {
		d := newDesk(fast(4))
		d.add(names("k", 50)...)
		for _, q := range d.Queues.byKey {
			next, _ := q.waits.Of(bucket.Normal).Next()
			j := d.Extract(q, next.Seq)
			j.Phase, j.NotBefore, j.Calls, j.Deaths = resting, 1, 1, deaths
		}
		ended := 0
		for range 200 {
			fx := d.turn()
			if n := len(d.suspects.underWay); n > most {
				t.Fatalf("after %d deaths %d suspects are called at once", deaths, n)
			}
			for j := range d.suspects.underWay {
				if j.Phase == ready || j.Phase == asking {
					d.Unstage(j)
					d.Finished(j)
					ended++
				}
			}
			_ = fx
			d.now = d.now.Add(10 * time.Millisecond)
		}
		if ended != 50 {
			t.Errorf("after %d deaths %d of 50 suspects were called", deaths, ended)
		}
	}
}

// TestJobsKeepTheirPlaces checks that a key's jobs that wait no longer are in the order of acceptance, in whatever
// order they left, as when some were found at a takeover.
func TestJobsKeepTheirPlaces(t *testing.T) {
	rate := bucket.Rate{Count: 1, Per: time.Second, Burst: 1}
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: rate, InFlight: 4, Capacity: 10}}
	s := New(&Policy{Rules: rules}, Pace{}, func(string) bucket.Micros { return 0 })
	p := &Partition{Open: true}
	var q *KeyQueue
	for seq := uint64(1); seq <= 4; seq++ {
		q = s.Push("k", seq, p)
	}
	for _, seq := range []uint64{3, 1} {
		s.Extract(q, seq)
	}
	q.begin(q.waits.Take(bucket.Normal)) // 2
	for i, j := range q.Jobs {
		if j.Seq != uint64(i+1) {
			t.Errorf("job %d stands in place %d", j.Seq, i+1)
		}
	}
	for seq := uint64(1); seq <= 4; seq++ {
		if rank, _ := q.Rank(seq); rank != int(seq) {
			t.Errorf("job %d has rank %d", seq, rank)
		}
	}
}

// TestOneKeyAsksAStoreThatIsAway checks that while the store of slots does not answer, one key at a time asks, at
// growing intervals. After LongWait only the job that asks is kept ready. At the first answer all keys may ask.
func TestOneKeyAsksAStoreThatIsAway(t *testing.T) {
	const keys = 20
	for _, late := range []bool{false, true} { // whether the keys have their jobs only when the store is away
		d := newDesk(fast(4))
		d.store.clock, d.store.tatOf = OtherClock, func(string) bucket.Micros { return 0 }
		add := func(from int) {
			for i := from; i < keys; i++ {
				d.Push(fmt.Sprint("k", i), uint64(i+1), d.part)
			}
		}
		if d.Push("k0", 1, d.part); !late {
			add(1)
		}
		var fx Effects
		// next turns until some key asks, and returns which do.
		next := func() (asked []string) {
			for range 1000 {
				if fx = d.turn(); len(fx.Asks) > 0 {
					for _, a := range fx.Asks {
						asked = append(asked, a.Key)
					}
					return asked
				}
				if at := d.Next(d.now); at == Never {
					t.Fatal("no key asks any more")
				} else {
					d.now = max(at, d.now+1)
				}
			}
			t.Fatal("no key asks")
			return nil
		}
		down := func() {
			d.now += 1000
			d.Answer(&fx, Reply{Sent: d.now - 1000, Came: d.now, Err: errors.New("away")})
		}
		if asked := next(); late != (len(asked) == 1) {
			t.Fatalf("%v ask before anything is known of the store", asked)
		}
		down()
		if late {
			add(1)
		}
		began, before, wait := d.now, d.now, time.Duration(0)
		for round := range keys {
			asked := next()
			if len(asked) != 1 || len(fx.Asks) != 1 || fx.Asks[0].Want != 1 {
				t.Fatalf("round %d, %s after the first: %v ask a store that is away", round, began.Until(d.now), asked)
			}
			if waited := before.Until(d.now); waited < wait || waited < StoreRetry {
				t.Errorf("round %d came after %s, the one before it after %s", round, waited, wait)
			} else {
				wait = min(waited, MostStoreRetry)
			}
			down()
			before = d.now
			if d.Pipe.staged > 0 && began.Until(d.now) > limits.LongWait {
				t.Errorf("round %d, %s after the first: %d jobs are kept ready", round, began.Until(d.now), d.Pipe.staged)
			}
		}
		if asked := next(); len(asked) != 1 {
			t.Fatalf("%v ask", asked)
		}
		answer := bucket.Answer{Now: d.now, Grants: []bucket.Grant{{At: d.now, TAT: d.now.Add(10 * time.Millisecond)}}}
		d.Answer(&fx, Reply{Sent: d.now, Came: d.now, Answers: []bucket.Answer{answer}})
		left := keys - 1
		for range keys {
			d.now += 1000
			fx = d.turn()
			if left -= len(fx.Asks); len(fx.Asks) > 0 {
				break
			}
		}
		if left > 0 {
			t.Errorf("at the first answer %d of %d keys do not ask", left, keys-1)
		}
	}
}

// TestHeldKeysStarveNobody checks that a key that is not held is called while 300 keys with ready jobs are held
// for an hour.
func TestHeldKeysStarveNobody(t *testing.T) {
	now := bucket.Micros(1_700_000_000_000_000)
	rules := bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 1}}
	store, err := bucket.NewMemory(rules, func() bucket.Micros { return now })
	if err != nil {
		t.Fatal(err)
	}
	s := New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls}, func(string) bucket.Micros { return 0 })
	p := &Partition{Open: true}
	started := map[string]int{}
	var running []*Job
	run := func(d time.Duration) {
		for end := now.Add(d); now < end; now = now.Add(time.Millisecond) {
			for {
				fx := s.Step(now)
				for _, j := range fx.Load {
					j.Policy = s.policy
					s.Loaded(j)
				}
				for _, j := range fx.Start {
					started[j.Queue.Key]++
					j.Calls++
					s.Sent(j, now)
					running = append(running, j)
				}
				if len(fx.Asks) > 0 {
					a, err := store.Reserve(t.Context(), fx.Asks)
					s.Answer(&fx, Reply{Sent: now, Came: now, Answers: a, Err: err})
				}
				if s.Next(now) > now {
					break
				}
			}
		}
	}
	for k := range 300 {
		s.Push(fmt.Sprint("held", k), uint64(2*k+1), p)
		s.Push(fmt.Sprint("held", k), uint64(2*k+2), p)
	}
	run(100 * time.Millisecond) // calls run; the next job of each key is ready
	for range 2 {
		for _, j := range running { // each key is told to come back in an hour
			s.Ended(j, nil, now)
			s.Holds.Hold(j.Queue, now.Add(time.Hour), "429")
			s.Rest(j, now.Add(time.Hour))
		}
		running = nil
		run(100 * time.Millisecond)
	}
	s.Push("other", 10001, p)
	run(30 * time.Second)
	if started["other"] == 0 {
		t.Error("a key that is not held was not called")
	}
}

// TestEdgeOfAPeriodIsNoHold checks that a budget that gives no slot around midnight and is not spent is not
// reported as spent.
func TestEdgeOfAPeriodIsNoHold(t *testing.T) {
	const now = bucket.Micros(1_700_000_000_000_000)
	rules := bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: 4},
		Shared: []bucket.Limit{{Name: "spend", Budget: &bucket.Budget{
			Quota: bucket.Quota{Count: 33, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}, OnExhausted: bucket.Hold,
		}}},
	}
	s := New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, ReserveAhead: MostAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls},
		func(string) bucket.Micros { return 0 })
	wait := bucket.Wait{Limit: "spend", Until: now.Add(2 * time.Second)} // twice the jitter
	if change, told := s.Holds.onBudget(&bucket.Answer{Wait: wait}, now); told {
		t.Errorf("told of a budget that is not spent: %+v", change)
	}
	wait.Exhausted = bucket.Hold
	if _, told := s.Holds.onBudget(&bucket.Answer{Wait: wait}, now); !told {
		t.Error("nothing is told of a budget that is spent")
	}
}
