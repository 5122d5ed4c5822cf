package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
)

// lane names the jobs of one priority of a key.
type lane struct {
	key string
	of  bucket.Priority
}

// priorities draws the priorities of a simulation's jobs, independently of the simulation's other draws.
type priorities struct {
	rnd     *rand.Rand // nil: all are normal
	of      map[uint64]bucket.Priority
	weights bucket.Weights
	follow  *follower  // checks the order of the calls; nil: nothing does
	started func(*Job) // is told of every first call; may be nil
}

func newPriorities(seed uint64) priorities {
	p := priorities{of: map[uint64]bucket.Priority{}}
	if seed%5 >= 3 {
		p.rnd = rand.New(rand.NewPCG(seed, 4))
		p.weights = someWeights(p.rnd)
	}
	return p
}

func someWeights(rnd *rand.Rand) bucket.Weights {
	return []bucket.Weights{{}, {High: 1, Normal: 1, Low: 1}, {High: 100, Normal: 10, Low: 1}, {High: 7, Normal: 5, Low: 3}, {High: 1, Normal: 2, Low: 8}}[rnd.IntN(5)]
}

// priority draws the priority of a job that comes now, or that is read again.
func (p *priorities) priority(seq uint64) bucket.Priority {
	if of, known := p.of[seq]; known || p.rnd == nil {
		return of
	}
	p.of[seq] = bucket.Priorities[p.rnd.IntN(len(bucket.Priorities))]
	return p.of[seq]
}

// start notes the first call of a job.
func (p *priorities) start(j *Job) {
	if p.follow != nil {
		p.follow.started(lane{j.Queue.Key, j.Priority}, j.Seq)
	}
	if p.started != nil {
		p.started(j)
	}
}

// follower checks the order of all first calls of a simulation, while jobs of every priority wait.
type follower struct {
	weights bucket.Weights
	keys    int // that share the calls of a priority
	calls   int // that started
	in      map[lane]int
	waiting map[bucket.Priority]int
	latest  map[uint64]float64 // of each job that waits: the number of the call that must be its own at the latest
	early   map[uint64]bool    // jobs of the span that were prepared before it began
	missed  [3]float64         // what one of a pair took in turns that the other missed
	ahead   [3]float64         // how far one of a pair is ahead of the other in the span, and what it was least and most
	least   [3]float64
	most    [3]float64
	bad     []string
}

// pairs are the pairs of priorities.
var pairs = [3][2]bucket.Priority{{bucket.High, bucket.Normal}, {bucket.High, bucket.Low}, {bucket.Normal, bucket.Low}}

func (f *follower) allWait() bool {
	return f.waiting[bucket.High] > 0 && f.waiting[bucket.Normal] > 0 && f.waiting[bucket.Low] > 0
}

// begin begins a span in which jobs of every priority wait. early are the jobs that are prepared already.
func (f *follower) begin(early map[uint64]bool) {
	f.early, f.missed, f.ahead, f.least, f.most = early, [3]float64{}, [3]float64{}, [3]float64{}, [3]float64{}
}

// came notes a job that waits from now on, and the latest call that its weight allows it to be. While the jobs before
// it in its key and priority are called, in turn with other keys, the other priorities have their parts of the calls.
func (f *follower) came(l lane, seq uint64, staged map[uint64]bool) {
	before := f.allWait()
	f.waiting[l.of]++
	f.in[l]++
	if !before && f.allWait() {
		f.begin(staged)
	}
	sum := 0.0
	for _, p := range bucket.Priorities {
		sum += float64(f.weights.Of(p))
	}
	turns := float64((f.in[l] + 1) * f.keys)
	f.latest[seq] = float64(f.calls+len(staged)) + turns*sum/float64(f.weights.Of(l.of)) + 3
}

// started notes a first call. In any span in which all priorities wait, each has the part of the calls that its weight
// gives it, to within one call.
//
// Calls that were prepared before the span may start in it, ahead of a priority that has come since. That priority has
// missed these turns, and makes up for them afterwards (shares): between two calls of another priority it makes the
// calls that it missed and those of its own part. So the bound is larger by the prepared calls of the other one.
func (f *follower) started(l lane, seq uint64) {
	f.calls++
	if last := f.latest[seq]; float64(f.calls) > last {
		f.bad = append(f.bad, fmt.Sprintf("the %s job %d had call %d; the last that it should have waited for is %.1f", l.of, seq, f.calls, last))
	}
	delete(f.latest, seq)
	f.in[l]--
	if f.waiting[l.of]--; !f.allWait() {
		return
	}
	early := f.early[seq]
	for i, pair := range pairs {
		a, b := 1/float64(f.weights.Of(pair[0])), 1/float64(f.weights.Of(pair[1]))
		switch l.of {
		case pair[0]:
			f.ahead[i] += a
			if early {
				f.missed[i] += a
			}
		case pair[1]:
			f.ahead[i] -= b
			if early {
				f.missed[i] += b
			}
		}
		f.least[i], f.most[i] = min(f.least[i], f.ahead[i]), max(f.most[i], f.ahead[i])
		if off := f.most[i] - f.least[i]; off > a+b+f.missed[i]+1e-3 {
			f.bad = append(f.bad, fmt.Sprintf("while all waited, %s and %s were %.3f off their weights at call %d; %.3f are one call of each, %.3f were missed",
				pair[0], pair[1], off, f.calls, a+b, f.missed[i]))
			f.begin(nil)
		}
	}
}

// slip is a planted mistake in how the priorities take turns.
type slip int

const (
	noSlip    slip = iota
	even           // weights do not count
	strict         // the least urgent starves
	backwards      // the least urgent has the weight of the most urgent
	credited       // a priority that had no jobs has credit for that
)

// spoil returns the weights that a mistake puts in force.
func (p slip) spoil(w bucket.Weights) bucket.Weights {
	switch p {
	case even:
		return bucket.Weights{High: 3, Normal: 3, Low: 3}
	case strict:
		return bucket.Weights{High: 1000, Normal: 1000, Low: 1}
	case backwards:
		return bucket.Weights{High: w.Of(bucket.Low), Normal: w.Of(bucket.Normal), Low: w.Of(bucket.High)}
	case noSlip, credited:
	}
	return w
}

// playPriorities plays one seed of keys with jobs of all priorities, and returns what is wrong. They wait for the rate
// of their one key, or for a rate that keys share.
func playPriorities(t testing.TB, seed uint64, plant slip, shared bool) []string {
	rate := bucket.Rate{Count: 100, Per: time.Second, Burst: 1}
	m := steady(t, rate)
	m.rnd = rand.New(rand.NewPCG(seed, 5))
	m.late, m.busy, m.deadlines = 0, 0, deadlines{}
	f := &follower{weights: someWeights(m.rnd), keys: 1, in: map[lane]int{}, waiting: map[bucket.Priority]int{}, latest: map[uint64]float64{}}
	m.policy.Rules.Key.Capacity = 10_000
	if shared {
		f.keys = 1 + m.rnd.IntN(4)
		m.policy.Rules.Key.Rate.Count = 1000
		m.policy.Rules.Shared = []bucket.Limit{{Name: "account", Rate: &rate}}
		m.openStore()
	}
	m.policy.Rules.Weights = plant.spoil(f.weights)
	m.s.Adopt(m.policy)
	m.priorities = priorities{of: map[uint64]bucket.Priority{}, follow: f}
	for _, of := range bucket.Priorities {
		began := m.upTo(time.Second)
		for range 20 + 200*f.weights.Of(of)/max(f.weights.Of(bucket.High), f.weights.Of(bucket.Low)) {
			m.jobs++
			key, at := fmt.Sprintf("t0.k%d", m.rnd.IntN(f.keys)), began
			if m.rnd.IntN(3) == 0 {
				at += m.upTo(2 * time.Second)
			}
			m.outside(at, func() { m.arrive(lane{key, of}, plant) })
		}
	}
	m.drain(m.jobs)
	return f.bad
}

// prepared returns the jobs that are made ready, or have their slots.
func (m *simulation) prepared() map[uint64]bool {
	all := map[uint64]bool{}
	for _, q := range m.s.byKey {
		for _, j := range q.Jobs {
			if j.Phase >= staging && j.Phase <= granted {
				all[j.Seq] = true
			}
		}
	}
	return all
}

// arrive adds a job that comes now.
func (m *simulation) arrive(l lane, plant slip) {
	m.seq++
	m.priorities.of[m.seq] = l.of
	m.priorities.follow.came(l, m.seq, m.prepared())
	away := m.priorities.follow.in[l] == 1
	if plant == credited && away {
		m.s.Pipe.onWay[l.of-bucket.High]++ // the turns are not told that the priority was away
		defer func() { m.s.Pipe.onWay[l.of-bucket.High]-- }()
	}
	m.push(l.key, m.seq)
}

// TestSimulationOfPriorities runs seeds of keys with jobs of all priorities, at one key's rate and at a rate that keys
// share. In any span in which all three priorities wait, each has its weight's part of the calls, to within one call,
// and no job waits longer than that allows.
func TestSimulationOfPriorities(t *testing.T) {
	for name, shared := range map[string]bool{"key": false, "shared": true} {
		for seed := range seeds.Of(200) {
			t.Run(fmt.Sprintf("%s/seed=%d", name, seed), func(t *testing.T) {
				for _, bad := range playPriorities(t, seed, noSlip, shared) {
					t.Error(bad)
				}
			})
		}
	}
}

// TestSimulationOfPrioritiesFindsMistakes checks that the simulation catches each planted mistake.
func TestSimulationOfPrioritiesFindsMistakes(t *testing.T) {
	for plant, name := range map[slip]string{
		even: "weights do not count", strict: "the least urgent starves", backwards: "the weights are the wrong way round",
		credited: "a priority that had no jobs has credit for that",
	} {
		for where, shared := range map[string]bool{"key": false, "shared": true} {
			if plant == credited && !shared {
				continue // a key has no such account
			}
			t.Run(name+"/"+where, func(t *testing.T) {
				for seed := range uint64(20) {
					if bad := playPriorities(t, seed, plant, shared); len(bad) > 0 {
						t.Logf("seed %d: %s", seed, bad[0])
						return
					}
				}
				t.Error("20 seeds found nothing")
			})
		}
	}
}

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

// TestPlaceBehindRunningCalls checks that an urgent job's place and ETA count a less urgent job that is being called, and
// one that is polled: the key's next call has to wait for its rate.
func TestPlaceBehindRunningCalls(t *testing.T) {
	d := newDesk(bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Minute, Burst: 1}, Capacity: 1000, InFlight: 8})
	d.spacing = time.Minute
	d.push("k", 1, d.part, bucket.Low, 0)
	q := d.byKey["k"]
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
