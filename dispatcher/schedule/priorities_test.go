package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
	for _, q := range m.s.Queues.byKey {
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

// equals plays a dispatcher that gives equal jobs one answer. Jobs with the same remainder ask the same thing. The zero
// value plays none.
type equals struct {
	requests uint64 // different ones; 0: none is compared
	until    map[uint64]bucket.Micros
	leader   map[uint64]*Job
	waiting  map[uint64]map[*Job]bool
	given    int // answers that were given again
}

func (m *simulation) sharing() *simulation {
	m.equals = equals{
		requests: 1 + m.rnd.Uint64N(12), until: map[uint64]bucket.Micros{}, leader: map[uint64]*Job{}, waiting: map[uint64]map[*Job]bool{},
	}
	m.policy.Reuse = true
	return m
}

// compare decides about a job whose message was loaded, as the dispatcher does. ready makes it ready.
func (m *simulation) compare(j *Job, ready func()) {
	e := &m.equals
	if e.requests == 0 {
		ready()
		return
	}
	if j.Past(m.now) {
		m.s.Unstage(j)
		m.expire([]*Job{j})
		return
	}
	request := j.Seq % e.requests
	leader := e.leader[request]
	switch {
	case j.Calls == 0 && e.until[request] > m.now:
		if m.s.Forgo(j) {
			m.forgone(j)
		} else {
			m.s.Looked(j, Look{Answered: true})
		}
	case j.Calls == 0 && leader != nil && leader != j:
		e.wait(j, request)
		m.s.Looked(j, Look{Awaits: fmt.Sprint(leader.Seq)})
	case j.LooksAhead():
		e.wait(j, request)
		m.s.Looked(j, Look{})
	default:
		if leader == nil {
			delete(e.waiting[request], j)
			e.leader[request] = j
		}
		ready()
	}
}

func (e *equals) wait(j *Job, request uint64) {
	if e.waiting[request] == nil {
		e.waiting[request] = map[*Job]bool{}
	}
	e.waiting[request][j] = true
}

// forgone ends a job without a call, and checks that it came to its turn.
func (m *simulation) forgone(j *Job) {
	own := lane{j.Queue.Key, j.Priority}
	if last := m.firsts[own]; last != 0 && m.appointments.compare(j.Seq, last) < 0 {
		m.t.Fatalf("S2: %s job %d of %s ended after job %d had begun", j.Priority, j.Seq, own.key, last)
	}
	m.firsts[own] = j.Seq
	m.checkAppointment(j)
	if m.cancelled[j.Seq] {
		m.t.Fatalf("job %d ended with an answer after it was cancelled", j.Seq)
	}
	m.equals.given++
	m.after(m.upTo(5*time.Millisecond), func() { m.s.Finished(j); m.finished++ })
}

// follow wakes the jobs whose leader has ended, or was put back without a call. Two of three answers may be given again
// for a while.
func (m *simulation) follow() {
	e := &m.equals
	if e.requests == 0 {
		return
	}
	for _, request := range slices.Sorted(maps.Keys(e.leader)) {
		j := e.leader[request]
		ended := j.Queue.Job(j.Seq) != j
		if !ended && (j.Phase != resting || j.Calls > 0) {
			continue
		}
		delete(e.leader, request)
		good := ended && request%3 != 0
		if good {
			e.until[request] = m.now.Add(100 * time.Millisecond)
		}
		for _, w := range inOrder(e.waiting[request]) {
			if w.Queue.Job(w.Seq) != w || good {
				delete(e.waiting[request], w)
			}
			m.s.Waken(w, good)
		}
	}
	for _, q := range m.s.Queues.byKey {
		for _, p := range q.waits.Priorities() {
			if n := q.Jobs.countOf(classSet(0).with(p), looking); n > 1 {
				m.t.Fatalf("%d %s jobs of %s are looked at at once", n, p, q.Key)
			}
		}
	}
	if m.s.looks.running > maxLooking {
		m.t.Fatalf("%d jobs are looked at at once", m.s.looks.running)
	}
}

// playReuse plays one seed of equal jobs that share an answer.
func playReuse(t testing.TB, seed uint64) *simulation {
	m := newSimulation(t, seed).sharing()
	if seed%4 == 3 {
		m.sendAway()
	}
	m.play()
	return m
}

// TestSimulationOfReuse runs seeds in which equal jobs share an answer: no job is lost, overtaken or called too early.
func TestSimulationOfReuse(t *testing.T) {
	given, ran := 0, 0
	for seed := range seeds.Of(10_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			m := playReuse(t, seed)
			given, ran = given+m.equals.given, ran+1
			if l := &m.s.looks; l.running+l.ahead+len(l.waiting) != 0 {
				t.Fatalf("something is left of looks: %+v", *l)
			}
		})
	}
	if given == 0 && ran > 100 {
		t.Error("no answer was given again")
	}
}
