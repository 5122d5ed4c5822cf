package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"weir/bucket"
)

// TestHighJobsOfOneKeyPass checks that the high jobs of one key get the turns of their weight at a limit that many keys
// with low jobs use up. This must hold whatever the time by which a job is made ready before its slot, and however soon
// the key's own rate lets the key call again.
func TestHighJobsOfOneKeyPass(t *testing.T) {
	for _, lead := range []time.Duration{LeastLead, 10 * time.Millisecond, 40 * time.Millisecond} {
		for _, own := range []int64{100, 1000} {
			for _, shared := range []int64{10, 40} {
				m := steady(t, bucket.Rate{Count: own, Per: time.Second, Burst: 1})
				m.late, m.busy, m.deadlines = 500*time.Microsecond, 0, deadlines{}
				m.s.Pipe.pace.PrepareLead = lead
				m.policy.Rules.Shared = []bucket.Limit{{Name: "account", Rate: &bucket.Rate{Count: shared, Per: time.Second, Burst: 1}}}
				m.openStore()
				m.s.Adopt(m.policy)
				m.priorities = priorities{of: map[uint64]bucket.Priority{}}
				calls, high := 0, 0
				m.priorities.started = func(j *Job) {
					if calls++; calls <= 34 && j.Priority == bucket.High {
						high++
					}
				}
				const keys, lows, highs = 20, 60, 32
				for n := range lows + highs {
					m.seq++
					key, of := fmt.Sprintf("t0.k%d", n%keys), bucket.Low
					if n >= lows {
						key, of = "t0.urgent", bucket.High
					}
					m.priorities.of[m.seq] = of
					m.push(key, m.seq)
				}
				m.drain(38)
				if high < highs-1 {
					t.Errorf("made ready %s before, own rate %d/s, shared %d/s: of 34 calls %d were high, want 32", lead, own, shared, high)
				}
			}
		}
	}
}

// TestSlowKeysFollowTheirWeights checks that a key whose own limits let only one call go at a time divides its turns at
// a shared limit by the weights. Most of these turns belong to low jobs, because all other keys have only high jobs.
func TestSlowKeysFollowTheirWeights(t *testing.T) { slowKeysFollowTheirWeights(t, 1) }

// TestSlowKeysFollowTheirWeightsInPacks is TestSlowKeysFollowTheirWeights for calls of several jobs.
func TestSlowKeysFollowTheirWeightsInPacks(t *testing.T) { slowKeysFollowTheirWeights(t, 3) }

func slowKeysFollowTheirWeights(t *testing.T, jobs int) {
	for _, slow := range []bucket.KeyLimits{
		{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 1},
		{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 8},
		{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, InFlight: 1},
	} {
		for _, others := range []int{5, 50, -5} { // -5: of an api that has an account
			m := steady(t, slow.Rate)
			if jobs > 1 {
				m.packed(1)
				m.policy.Packs, m.packing.rnd = &Packing{Jobs: jobs}, rand.New(zero{})
			}
			m.late, m.busy, m.deadlines = 0, 0, deadlines{}
			m.policy.Rules.Key.Capacity, m.policy.Rules.Key.InFlight = 10_000, slow.InFlight
			m.policy.Rules.Shared = []bucket.Limit{{Name: "account", Rate: &bucket.Rate{Count: 40, Per: time.Second, Burst: 1}}}
			if others < 0 {
				others = -others
				m.policy.Rules.Shared[0].Account = "acme"
				m.policy.Rules.In = &bucket.Membership{Account: "acme", API: "one", APIs: []string{"one"}}
			}
			m.openStore()
			m.s.Adopt(m.policy)
			m.priorities = priorities{of: map[uint64]bucket.Priority{}}
			of := map[bucket.Priority]int{}
			m.priorities.started = func(j *Job) {
				if j.Queue.Key == "t0.mixed" {
					of[j.Priority]++
				}
			}
			push := func(key string, of bucket.Priority) {
				m.seq++
				m.priorities.of[m.seq] = of
				m.push(key, m.seq)
			}
			for n := range 2000 * jobs {
				for k := range others {
					if n < 6000*jobs/others {
						push(fmt.Sprint("t0.k", k), bucket.High)
					}
				}
				push("t0.mixed", bucket.High)
				push("t0.mixed", bucket.Low)
			}
			m.drain(3000 * jobs)
			if high, low := of[bucket.High], of[bucket.Low]; low < 1 || high < 12*low || high > 20*low {
				t.Errorf("calls of %d, own rate %d/s, in flight %d, beside %d keys: %d high and %d low calls, want 16 of 17 high",
					jobs, slow.Rate.Count, slow.InFlight, others, high, low)
			}
		}
	}
}

// TestPlacesByPriority checks that jobs are called in the places that are computed for them.
func TestPlacesByPriority(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 6))
		d := newDesk(fast(4))
		d.policy.Rules.Weights = someWeights(rnd)
		q := d.Queue("k", d.part)
		for seq := uint64(1); seq < 60; seq++ {
			of := bucket.Priorities[rnd.IntN(len(bucket.Priorities))]
			depth, behind := q.Depth(), d.At(d.now).Behind("k", 0, of)
			d.push("k", seq, d.part, of, 0)
			if n, _ := q.Rank(seq); n != depth+1-behind {
				t.Fatalf("seed %d: the %s job %d has place %d of %d, and %d jobs were said to be behind it", seed, of, seq, n, depth+1, behind)
			}
			if first, ok := q.waits.First(); ok && rnd.IntN(3) == 0 {
				if j := q.begin(q.waits.Take(first)); rnd.IntN(2) == 0 {
					j.Phase = Phase(rnd.IntN(int(polled)))
				} else {
					q.remove(j)
				}
			}
			if q.Depth() > 0 && rnd.IntN(8) == 0 {
				seqs := slices.Collect(q.Seqs)
				if seq := seqs[rnd.IntN(len(seqs))]; q.Waits(seq) {
					q.remove(d.Extract(q, seq))
				}
			}
			checkPlaces(t, seed, q)
		}
		q.Jobs = nil
		shown := d.At(d.now).FirstJobs(q, 100)
		for i := range shown {
			of, ok := q.waits.First()
			if !ok {
				t.Fatalf("seed %d: %d jobs are shown and %d wait", seed, len(shown), i)
			}
			if j := q.begin(q.waits.Take(of)); j.Seq != shown[i].Seq || PriorityName(of) != shown[i].Priority {
				t.Fatalf("seed %d: %s job %d is called as number %d, and job %d was shown", seed, of, j.Seq, i+1, shown[i].Seq)
			}
		}
	}
}

// checkPlaces checks the place of every waiting job of a queue.
func checkPlaces(t *testing.T, seed uint64, q *KeyQueue) {
	t.Helper()
	place := 0
	for p := range q.inOrder {
		place++
		if n, _ := q.Rank(p.Seq); n != place {
			t.Fatalf("seed %d: the %s job %d is called as number %d, and its place is %d", seed, p.Of, p.Seq, place, n)
		}
	}
	if place != q.Depth() {
		t.Fatalf("seed %d: %d of %d jobs are in the order", seed, place, q.Depth())
	}
}

// TestPlaceBehindRunningCalls checks that an urgent job's place and ETA count a less urgent job that is being called,
// and one that is polled: the key's next call has to wait for its rate.
func TestPlaceBehindRunningCalls(t *testing.T) {
	d := newDesk(bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Minute, Burst: 1}, Capacity: 1000, InFlight: 8})
	d.spacing = time.Minute
	d.push("k", 1, d.part, bucket.Low, 0)
	q := d.Queues.byKey["k"]
	for i := 0; q.Jobs.count(calling) == 0; i++ {
		if i == 100 {
			t.Fatal("the low job is not called")
		}
		d.now = d.now.Add(time.Millisecond)
		d.grant()
	}
	behind := d.At(d.now).Behind("k", 0, bucket.High)
	d.push("k", 2, d.part, bucket.High, 0)
	for _, what := range []string{"being called", "polled"} {
		n, _ := q.Rank(2)
		shown := d.At(d.now).FirstJobs(q, 10)
		if n != 2 || behind != 0 || shown[1].Seq != 2 {
			t.Errorf("while the low job is %s, the high one has place %d, and is shown as %+v", what, n, shown)
		}
		if at := d.At(d.now).ETA(Place{Key: "k", Priority: bucket.High, Position: n}); d.now.Until(at) < 50*time.Second {
			t.Errorf("while the low job is %s, the call of the high one is expected in %v", what, d.now.Until(at))
		}
		if what == "being called" {
			low := q.Job(1)
			d.Ended(low, nil, d.now)
			d.Submit(low, false)
		}
	}
}

// TestKeyWithoutPrioritiesCostsNothing checks that a key has a structure for priorities only while it needs it, and
// that a schedule with normal jobs only has no turns of priorities.
func TestKeyWithoutPrioritiesCostsNothing(t *testing.T) {
	if size := unsafe.Sizeof(KeyQueue{}); size > 352 {
		t.Errorf("a key takes %d bytes, more than what is allocated for 352", size)
	}
	d := newDesk(fast(4), bucket.Limit{Name: "concurrent", InFlight: 8})
	q := d.Push("k", 1, d.part)
	d.grant()
	if q.waits.IsMixed() || d.turns.AreShared() || d.turns.Has(bucket.High) || d.turns.Has(bucket.Low) {
		t.Fatalf("a normal job made classes %v and turns of priorities %v", q.waits.IsMixed(), d.turns.AreShared())
	}
	d.push("k", 2, d.part, bucket.Low, 0)
	if !q.waits.IsMixed() || !d.turns.Has(bucket.Low) || d.turns.Has(bucket.High) {
		t.Fatalf("a low job made classes %v, turns of low jobs %v and of high ones %v", q.waits.IsMixed(), d.turns.Has(bucket.Low), d.turns.Has(bucket.High))
	}
	const last = 12
	for seq := uint64(3); seq <= last; seq++ {
		d.Push("k", seq, d.part)
	}
	for range 2000 {
		d.now = d.now.Add(time.Millisecond)
		d.grant()
		for _, j := range slices.Clone(q.Jobs) {
			if j.Phase == calling && j.Seq < last {
				d.Ended(j, nil, d.now)
				d.Finished(j)
			}
		}
	}
	if tenants, _, _ := d.turns.Left(bucket.Low); q.waits.IsMixed() || tenants != 0 {
		t.Errorf("after its low job has ended a key has classes %+v, and %d tenants have low jobs", q.waits.IsMixed(), tenants)
	}
	if q.Depth() != 1 {
		t.Fatalf("%d jobs are left, want 1", q.Depth())
	}
}

// TestUrgentJobPassesBulk checks how long urgent jobs wait. They come at 5 a second, to a rate of 10 a second for which
// 100,000 low jobs wait: the rate of one key, and one that the low jobs' keys share with the urgent jobs' key.
func TestUrgentJobPassesBulk(t *testing.T) {
	ten := bucket.Rate{Count: 10, Per: time.Second, Burst: 1}
	for name, keys := range map[string]int{"one key": 1, "shared by 1000 keys": 1000} {
		t.Run(name, func(t *testing.T) {
			m := steady(t, ten)
			m.late, m.busy, m.deadlines = 0, 0, deadlines{}
			m.policy.Rules.Key.Capacity = 200_000
			if keys > 1 {
				m.policy.Rules.Shared = []bucket.Limit{{Name: "account", Rate: &ten}}
				m.openStore()
			}
			m.s.Adopt(m.policy)
			m.priorities = priorities{of: map[uint64]bucket.Priority{}}
			add := func(key string, of bucket.Priority) {
				m.seq++
				m.priorities.of[m.seq] = of
				m.push(key, m.seq)
			}
			for n := range 100_000 {
				add(fmt.Sprintf("t0.k%d", n%keys), bucket.Low)
			}
			const urgent = 300
			came, waits := map[uint64]bucket.Micros{}, []time.Duration{}
			m.priorities.started = func(j *Job) {
				if j.Priority == bucket.High {
					waits = append(waits, came[j.Seq].Until(m.now))
				}
			}
			for n := range urgent {
				m.outside(time.Duration(n)*200*time.Millisecond, func() {
					add(fmt.Sprintf("t0.k%d", n%keys), bucket.High)
					came[m.seq] = m.now
				})
			}
			m.outside(61*time.Second, func() { m.jobs = 0 })
			m.drain(200_000)
			slices.Sort(waits)
			if len(waits) < urgent-5 {
				t.Fatalf("%d of %d urgent jobs were called", len(waits), urgent)
			}
			if p99 := waits[len(waits)*99/100]; p99 > time.Second {
				t.Errorf("urgent jobs waited %v at the 99th percentile, %v in the middle", p99, waits[len(waits)/2])
			}
		})
	}
}

// TestNobodyWaitsForWhoWaitsForRoom checks that a job that waits for memory gets it in the end, although jobs behind it
// hold memory. If it is a retry, the jobs behind it are called before it. If it was never called, they must not be
// called before it, and give their memory back.
func TestNobodyWaitsForWhoWaitsForRoom(t *testing.T) {
	for _, calls := range []int{0, 1} {
		limits := fast(8)
		limits.Rate.Burst = 8
		d := newDesk(limits)
		d.add("k", "k", "k")
		q := d.Queues.byKey["k"]
		first, others := d.Extract(q, 1), []*Job{d.Extract(q, 2), d.Extract(q, 3)}
		first.Calls, first.Phase, first.Cramped = calls, staging, true
		for _, j := range others {
			j.Phase, j.Policy = ready, d.policy
		}
		d.Pipe.staged += 3
		fx := d.Step(d.now)
		switch {
		case calls > 0 && (len(fx.Asks) != 1 || len(fx.asked[0]) != 2 || len(fx.Stale) != 0):
			t.Errorf("behind a retry: %d asks, and %d jobs give their room back", len(fx.Asks), len(fx.Stale))
		case calls == 0 && (len(fx.Asks) != 0 || len(fx.Stale) != 2):
			t.Errorf("behind a first call: %d asks, and %d jobs give their room back", len(fx.Asks), len(fx.Stale))
		}
	}
}

// TestEarlyRetryIsAskedForInTime checks that a retry that became ready before its time is asked for when its time has
// come, while a low job of its key waits for a turn. That turn may never come, because the schedule may withdraw the
// low job.
func TestEarlyRetryIsAskedForInTime(t *testing.T) {
	const start = bucket.Micros(1_700_000_000_000_000)
	calls := bucket.Rate{Count: 1000, Per: time.Second, Burst: 8}
	s := New(&Policy{Rules: bucket.Rules{
		Key:    bucket.KeyLimits{Rate: calls, Capacity: 100, InFlight: 4},
		Shared: []bucket.Limit{{Name: "account", Rate: &calls}},
	}}, Pace{
		PrepareLead: 24 * time.Millisecond, ReserveAhead: MostAhead, GrantTTL: 4 * time.Millisecond,
		MaxStaged: MaxStaged, MaxCalls: MaxCalls,
	}, func(string) bucket.Micros { return 0 })
	s.gate.shut("account", start.Add(20*time.Millisecond))
	part, retryAt := &Partition{Open: true}, start.Add(10*time.Millisecond)
	s.push("k", 1, part, bucket.Normal, 0)
	s.push("k", 2, part, bucket.Low, 0)
	for range 3 {
		for _, j := range s.Step(start).Load {
			if j.Policy, j.Costs = s.policy, []int64{1}; j.Seq == 1 {
				j.Calls, j.NotBefore = 1, retryAt
			}
			s.Loaded(j)
		}
	}
	q := s.Queues.Find("k")
	if n := q.Jobs.count(ready); n != 2 || !q.seats.State(bucket.Low).Blocked {
		t.Fatalf("%d jobs are ready, and the low one waits for a turn: %v", n, q.seats.State(bucket.Low).Blocked)
	}
	if next := s.Next(start); next != retryAt {
		t.Errorf("the schedule looks again after %s, want %s", start.Until(next), start.Until(retryAt))
	}
}

// TestQueueThatCannotAskYetTakesNoTurn checks that a queue takes no turn at a shared limit before it may ask. Otherwise
// it would pass the turn on, get the turn to make its low job ready, wait for the next turn because of that, and so on
// without end.
func TestQueueThatCannotAskYetTakesNoTurn(t *testing.T) {
	const start = bucket.Micros(1_700_000_000_000_000)
	s := New(&Policy{Rules: bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 200, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: 4},
		Shared: []bucket.Limit{{Name: "account", Rate: &bucket.Rate{Count: 1000, Per: time.Second, Burst: 8}}},
	}}, Pace{
		PrepareLead: 24 * time.Millisecond, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond,
		MaxStaged: 2, MaxCalls: MaxCalls, Replica: "one of two", // so each replica makes few jobs ready
	}, func(string) bucket.Micros { return 0 })
	part, askAt := &Partition{Open: true}, start.Add(time.Millisecond)
	for i, p := range bucket.Priorities {
		s.push("k", uint64(i+1), part, p, 0)
	}
	q := s.Queues.Find("k")
	q.refused("account", askAt)
	steps := func() {
		for range 10 {
			for _, j := range s.Step(start).Load {
				j.Policy, j.Costs = s.policy, []int64{1}
				s.Loaded(j)
			}
		}
	}
	steps()
	if n := q.Jobs.count(ready); n != 2 {
		t.Fatalf("%d jobs are ready, want the high and the normal one", n)
	}
	s.push("other", 4, part, bucket.Normal, 0) // waits for its turn to make its job ready
	s.Holds.governor.ramp = slowStart          // one queue has the turn in a step
	s.turns.Wait(q, bucket.High)
	s.turns.Wait(q, bucket.Normal)
	steps()
	if next := s.Next(start); next != askAt {
		t.Errorf("the schedule looks again after %s, want %s", start.Until(next), start.Until(askAt))
	}
}
