package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
)

// packing is what a simulation with packs remembers. Its draws are independent of the simulation's other draws.
type packing struct {
	rnd    *rand.Rand // nil: each call has one job
	bonds  map[string][]uint64
	broken int // jobs that were parked because their packs could not be called again
	calls  int
	jobs   int             // of these calls
	firsts map[*Job]uint64 // m.firsts of a call's lane before it started
}

// packed lets the calls of a simulation have several jobs.
func (m *simulation) packed(seed uint64) *simulation {
	m.packing = packing{rnd: rand.New(rand.NewPCG(seed, 9)), bonds: map[string][]uint64{}, firsts: map[*Job]uint64{}}
	m.policy.Packs = &Packing{Jobs: 1 + m.packing.rnd.IntN(12), Wait: time.Duration(m.packing.rnd.Int64N(int64(300 * time.Millisecond)))}
	return m
}

// inCall returns the jobs that go in one call with a job, itself included, in their order.
func inCall(j *Job) []*Job {
	jobs := append([]*Job{j}, j.Members()...)
	if j.Bond != nil {
		slices.SortFunc(jobs, func(a, b *Job) int { return cmp.Compare(a.Bond.Place, b.Bond.Place) })
	}
	return jobs
}

// assemble computes what a pack costs, and puts back jobs that the call cannot take. It reports false if the pack must
// be called as it was and cannot be: then its job is parked.
func (m *simulation) assemble(j *Job) bool {
	p := &m.packing
	if p.rnd == nil {
		return true
	}
	if j.IsBroken() {
		m.s.Unstage(j)
		p.broken++
		m.after(m.upTo(5*time.Millisecond), func() { m.s.Finished(j); m.finished++ })
		return false
	}
	if of := j.Members(); j.Bond == nil && len(of) > 0 && p.rnd.IntN(4) == 0 {
		m.s.Shed(j, p.rnd.IntN(len(of)))
	}
	if len(j.Members()) >= m.policy.Packs.Jobs {
		m.t.Fatalf("a call has %d jobs, %d may be", 1+len(j.Members()), m.policy.Packs.Jobs)
	}
	for n, of := range j.Members() {
		of.Policy, of.Deadline = m.s.policy, m.deadlines.of[of.Seq]
		costs := m.costsOf(of.Seq)
		for i := range costs {
			if l := m.policy.Rules.Shared[i]; l.Cost.Varies() && j.Costs[i]+costs[i] > l.Rate.Burst/2 && j.Bond == nil {
				m.s.Shed(j, n)
				return true
			}
		}
		for i := range costs {
			if m.policy.Rules.Shared[i].Cost.Varies() {
				j.Costs[i] += costs[i]
			}
		}
	}
	return true
}

// checkPack checks a call that starts with several jobs: each may be called now, none is overtaken, and a pack whose
// outcome is unknown is called as it was.
func (m *simulation) checkPack(j *Job) {
	p, jobs := &m.packing, inCall(j)
	if p.rnd == nil {
		return
	}
	p.calls, p.jobs = p.calls+1, p.jobs+len(jobs)
	var seqs []uint64
	for _, of := range jobs {
		seqs = append(seqs, of.Seq)
	}
	if j.Bond != nil && !slices.Equal(seqs, p.bonds[j.Bond.ID]) {
		m.t.Fatalf("the jobs %d are called again under the key of %d", seqs, p.bonds[j.Bond.ID])
	}
	for _, of := range j.Members() {
		m.mayCall(of)
		if of.NotBefore > m.now {
			m.t.Fatalf("job %d is called %s too early, in the pack of %d", of.Seq, m.now.Until(of.NotBefore), j.Seq)
		}
		of.Calls++
	}
}

// missed takes back a call that missed its slot.
func (m *simulation) missed(j *Job) {
	for _, of := range inCall(j) {
		of.Calls--
	}
	if first, packed := m.packing.firsts[j]; packed {
		m.firsts[lane{j.Queue.Key, j.Priority}] = first
	}
}

// endPack settles the members of a call's pack. e is the call's end.
func (m *simulation) endPack(j *Job, jobs []*Job, e CallEnd) {
	p := &m.packing
	id := fmt.Sprintf("pack %d/%d", j.Seq, j.Calls)
	if j.Bond != nil {
		id = j.Bond.ID
	}
	doubt, again := e.Again && e.Sent, e.PushedBack || e.Denied
	for place, of := range jobs {
		if of.Bond != nil && !doubt && !again {
			of.Bond = nil
		}
		switch {
		case doubt && of.Bond == nil:
			of.Bond = &Bond{ID: id, Place: place, Of: len(jobs)}
			p.bonds[id] = append(p.bonds[id], of.Seq)
		case of == j:
		}
		if of == j {
			continue
		}
		alone := p.rnd.IntN(8) == 0 // it failed alone
		m.after(m.upTo(8*time.Millisecond), func() {
			if e.Again || again || alone {
				m.s.Rest(of, m.now.Add(m.upTo(200*time.Millisecond)))
				return
			}
			m.s.Finished(of)
			m.finished++
		})
	}
}

// TestSimulationOfPacks runs seeds in which a call has several jobs. One seed alone: go test ./dispatcher/schedule -run
// OfPacks/seed=7.
func TestSimulationOfPacks(t *testing.T) {
	broken, again, calls, jobs := 0, 0, 0, 0
	for seed := range seeds.Of(10_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			m := newSimulation(t, seed).packed(seed)
			if seed%2 == 1 {
				m.sendAway()
			}
			m.run(1+m.rnd.IntN(12), 1+m.rnd.IntN(120))
			m.rest()
			m.check()
			broken, again, calls, jobs = broken+m.packing.broken, again+len(m.packing.bonds), calls+m.packing.calls, jobs+m.packing.jobs
		})
	}
	if again == 0 || broken == 0 || jobs < calls*3/2 {
		t.Errorf("%d calls had %d jobs, %d packs were called again, %d jobs of broken packs were parked", calls, jobs, again, broken)
	}
}

// TestPacksAreFull checks that 1,000 jobs in packs of 50 take 20 calls if they wait.
func TestPacksAreFull(t *testing.T) {
	m := steady(t, bucket.Rate{Count: 10, Per: time.Second, Burst: 1})
	m.packed(1)
	m.policy.Packs = &Packing{Jobs: 50, Wait: 200 * time.Millisecond}
	m.deadlines, m.appointments.rnd = deadlines{}, nil
	m.packing.rnd = rand.New(zero{})
	m.run(1, 1000)
	m.rest()
	m.check()
	if m.packing.jobs != 1000 || m.packing.calls > 25 {
		t.Errorf("%d jobs took %d calls", m.packing.jobs, m.packing.calls)
	}
}

// zero draws only the largest numbers, so that no job is put back and none fails.
type zero struct{}

func (zero) Uint64() uint64 { return 1<<64 - 1 }

// TestPackGathers checks when the jobs of a key go together: when the pack is full, when the first has waited, or
// before a deadline.
func TestPackGathers(t *testing.T) {
	for _, c := range []struct {
		what     string
		jobs     int
		deadline time.Duration // of the second job, 0 for none
		after    time.Duration // the call starts at most that late
		least    time.Duration
	}{
		{"as many as a call may have", 3, 0, 50 * time.Millisecond, 0},
		{"fewer", 2, 0, 300 * time.Millisecond, 200 * time.Millisecond},
		{"fewer, of which one has a deadline", 2, 400 * time.Millisecond, 200 * time.Millisecond, 100 * time.Millisecond},
		{"fewer, of which one has a deadline that is near", 2, 100 * time.Millisecond, 60 * time.Millisecond, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, p, now, run := packedSchedule(t, &Packing{Jobs: 3, Wait: 300 * time.Millisecond})
			begun := *now
			for seq := range uint64(c.jobs) {
				if c.deadline > 0 && seq == 1 {
					p.Expect(seq+1, now.Add(c.deadline))
				}
				s.Push("k", seq+1, p)
			}
			called := run(1)
			if took := begun.Until(called[0].At); took > c.after || took < c.least {
				t.Errorf("the call started after %s, want %s to %s", took, c.least, c.after)
			}
			if n := len(inCall(called[0])); n != c.jobs {
				t.Errorf("the call has %d jobs, want %d", n, c.jobs)
			}
		})
	}
}

// TestInspectGatheringPack checks that a key whose pack waits for more jobs shows when the pack's call is made, and that
// a job's deadline comes before the pack's wait.
func TestInspectGatheringPack(t *testing.T) {
	for deadline, want := range map[time.Duration]time.Duration{0: 300 * time.Millisecond, 400 * time.Millisecond: 400*time.Millisecond - hurry} {
		s, p, now, run := packedSchedule(t, &Packing{Jobs: 3, Wait: 300 * time.Millisecond})
		if deadline > 0 {
			p.Expect(1, now.Add(deadline))
		}
		s.Push("k", 1, p)
		begun := *now
		s.Step(begun)
		q := s.Queues.Find("k")
		w := s.At(begun).Inspect(q).Waits
		if w.For != WaitPack || w.Until == nil || begun.Until(bucket.MicrosOf(*w.Until)) != want {
			t.Errorf("with a deadline in %s, the key waits for %+v", deadline, w)
		}
		if eta := s.At(begun).FirstJobs(q, 1)[0].ETA; eta == nil || w.Until != nil && !eta.Equal(*w.Until) {
			t.Errorf("with a deadline in %s, the job is to be called at %v, and the key waits until %v", deadline, eta, w.Until)
		}
		if at := run(1)[0].At; w.Until != nil && max(begun.Until(at)-want, want-begun.Until(at)) > 50*time.Millisecond {
			t.Errorf("with a deadline in %s, the call started after %s, and was announced for %s", deadline, begun.Until(at), want)
		}
	}
}

// TestInspectAfterAGathering checks that a key can be shown after its only urgent job, which waited for others, was cancelled.
func TestInspectAfterAGathering(t *testing.T) {
	s, p, now, _ := packedSchedule(t, &Packing{Jobs: 3, Wait: time.Minute})
	s.PushEarly("k", 1, p, bucket.High, *now, 0)
	s.Push("k", 2, p)
	s.Step(*now)
	if _, c := s.Cancel("k", 1); c != CancelTaken {
		t.Fatalf("a job that waits for others is %s", c)
	}
	fx := s.Step(*now)
	if len(fx.Cancel) != 1 {
		t.Fatalf("%d jobs are cancelled", len(fx.Cancel))
	}
	s.Finished(fx.Cancel[0])
	for range 3 {
		*now = now.Add(10 * time.Second)
		s.Step(*now)
		if w := s.At(*now).Inspect(s.Queues.Find("k")).Waits; w.For != WaitPack {
			t.Errorf("the key waits for %+v", w)
		}
	}
}

// TestCancelOfAGatheringJob checks that the wait for others ends with the only job that waits: the next job of its
// priority begins its own, and until then the key does not show it. It checks a key in which only the jobs of one
// priority are gone, and a key without jobs that is kept.
func TestCancelOfAGatheringJob(t *testing.T) {
	const wait = time.Minute
	cancel := func(s *Schedule, seq uint64, now bucket.Micros) {
		t.Helper()
		s.Cancel("k", seq)
		fx := s.Step(now)
		if len(fx.Cancel) != 1 {
			t.Fatalf("%d jobs are cancelled", len(fx.Cancel))
		}
		s.Finished(fx.Cancel[0])
		s.Step(now)
	}
	gathersUntil := func(what string, s *Schedule, now, want bucket.Micros) {
		t.Helper()
		s.Step(now)
		if w := s.At(now).waits(s.Queues.Find("k")); w.For != WaitPack || w.Until == nil || !w.Until.Equal(want.Time()) {
			t.Errorf("%s: the key waits for %+v, want a pack until %v", what, w, want.Time())
		}
	}

	s, p, now, run := packedSchedule(t, &Packing{Jobs: 3, Wait: wait})
	for seq := range uint64(3) {
		s.PushEarly("k", seq+1, p, bucket.High, *now, 0)
	}
	called := run(1)[0]
	for jobs := inCall(called); len(jobs) > 0; jobs = jobs[1:] {
		if jobs[0] == called {
			s.Ended(called, nil, *now)
		}
		s.Finished(jobs[0])
	}
	*now = now.Add(100 * time.Millisecond)
	s.PushEarly("k", 4, p, bucket.High, *now, 0)
	s.Step(*now)
	*now = now.Add(10 * time.Second)
	normal := *now
	s.Push("k", 5, p)
	s.Step(*now)
	cancel(s, 4, *now)
	gathersUntil("normal jobs are left", s, *now, normal.Add(wait))
	*now = now.Add(wait - time.Second)
	gathersUntil("normal jobs are left, and time has passed", s, *now, normal.Add(wait))

	s, p, now, _ = packedSchedule(t, &Packing{Jobs: 3, Wait: wait})
	p.Leftover = now.Add(2 * wait)
	q := s.Push("k", 1, p)
	q.Orphaned = 1
	s.Step(*now)
	cancel(s, 1, *now)
	if s.Queues.Find("k") != q {
		t.Fatal("the queue is not kept")
	}
	*now = now.Add(wait - time.Second)
	s.Push("k", 2, p)
	gathersUntil("the queue was empty", s, *now, now.Add(wait))
}

// TestPackGathersBesideOthers checks that a full pack of one priority does not wait for a pack of another priority of
// its key that is still being gathered, and that the other pack is called when its first job has waited long enough. It
// checks a slow key, in which each turn makes the key's first job ready, and a key that is not slow.
func TestPackGathersBesideOthers(t *testing.T) {
	for _, inFlight := range []int64{1, 2} {
		s, p, now, run := packedSchedule(t, &Packing{Jobs: 3, Wait: 300 * time.Millisecond})
		s.policy.Rules.Key.InFlight = inFlight
		begun := *now
		s.PushEarly("k", 1, p, bucket.High, begun, 0)
		for seq := range uint64(3) {
			s.PushEarly("k", seq+2, p, bucket.Low, begun, 0)
		}
		called := run(1)[0]
		if took := begun.Until(called.At); took > 50*time.Millisecond || len(inCall(called)) != 3 || called.Priority != bucket.Low {
			t.Errorf("%d in flight: the first call starts after %s, has %d jobs and priority %s", inFlight, took, len(inCall(called)), called.Priority)
		}
		jobs := inCall(called)
		s.Ended(called, nil, *now)
		for _, j := range jobs {
			s.Finished(j)
		}
		called = run(1)[0]
		if took := begun.Until(called.At); took < 270*time.Millisecond || took > 340*time.Millisecond || called.Seq != 1 {
			t.Errorf("%d in flight: the second call starts after %s, with job %d", inFlight, took, called.Seq)
		}
	}
}

// TestProbeIsOneJob checks that the probe of an open breaker has one job, and waits for no others, since it may well
// fail; a pack that must be called as it was stays together. When the breaker is closed again, jobs go together.
func TestProbeIsOneJob(t *testing.T) {
	for _, bonded := range []bool{false, true} {
		s, p, now, run := packedSchedule(t, &Packing{Jobs: 3, Wait: 300 * time.Millisecond})
		for seq := range uint64(5) {
			s.Push("k", seq+1, p)
		}
		want := 1
		if q := s.Queues.Find("k"); bonded {
			want = 3
			for seq := range uint64(3) {
				j := s.Extract(q, seq+1)
				j.Calls, j.Bond = 1, &Bond{ID: "p", Place: int(seq), Of: 3}
			}
		}
		s.Holds.breaker.open(BreakerPolicy{Failures: 1, Min: 100 * time.Millisecond, Max: time.Second}, *now, 0)
		begun := *now
		called := run(1)[0]
		jobs := inCall(called)
		if took := begun.Until(called.At); len(jobs) != want || took < 100*time.Millisecond || took > 150*time.Millisecond {
			t.Errorf("bonded %t: the probe has %d jobs, want %d, and starts after %s", bonded, len(jobs), want, took)
		}
		s.Ended(called, nil, *now)
		s.OnCallEnd(called, CallEnd{Sent: true, Started: called.At, Now: *now})
		for _, j := range jobs {
			s.Finished(j)
		}
		if n, left := len(inCall(run(1)[0])), min(3, 5-want); n != left {
			t.Errorf("bonded %t: the call after the probe has %d jobs, want %d", bonded, n, left)
		}
	}
}

// TestPackWaitsForRetries checks that a job goes in a pack only if the pack is not called before its retry is due, and
// that a pack that is called again as it was waits for all of its jobs.
func TestPackWaitsForRetries(t *testing.T) {
	for _, bonded := range []bool{false, true} {
		s, p, now, run := packedSchedule(t, &Packing{Jobs: 3, Wait: 0})
		for seq := range uint64(3) {
			s.Push("k", seq+1, p)
		}
		q := s.Queues.Find("k")
		for seq := range uint64(3) {
			j := s.Extract(q, seq+1)
			j.Calls, j.NotBefore = 1, now.Add(time.Duration(seq)*10*time.Millisecond)
			if bonded {
				j.Bond = &Bond{ID: "p", Place: int(seq), Of: 3}
			}
		}
		due := map[*Job]bucket.Micros{}
		for _, j := range q.Jobs {
			due[j] = j.NotBefore
		}
		for n := 0; n < 3; {
			called := run(1)[0]
			for _, j := range inCall(called) {
				if n++; called.At < due[j] {
					t.Errorf("bonded %t: job %d is called %s before its retry is due", bonded, j.Seq, called.At.Until(due[j]))
				}
			}
			s.Ended(called, nil, *now)
			s.Finished(called)
		}
	}
}

// TestFoundJobsPackBehindOlderOnes packs jobs of which a takeover has found the last ones with intents, for calls that
// had not begun. They are called behind the jobs before them, also if the key makes one pack ready at a time.
func TestFoundJobsPackBehindOlderOnes(t *testing.T) {
	for _, atOnce := range []int64{1, 2} {
		s, p, now, run := packedSchedule(t, &Packing{Jobs: 3, Wait: 0})
		s.policy.Rules.Key.InFlight = atOnce
		for seq := range uint64(5) {
			s.Push("k", seq+1, p)
		}
		q := s.Queues.Find("k")
		for _, seq := range []uint64{3, 5} {
			s.Extract(q, seq).NotBefore = 1
		}
		var order []uint64
		for len(order) < 5 {
			began := run(1)
			jobs := inCall(began[0])
			s.Ended(began[0], nil, *now)
			for _, j := range jobs {
				order, j.Calls = append(order, j.Seq), 1
				s.Finished(j)
			}
		}
		if !slices.IsSorted(order) {
			t.Errorf("%d at once are called in the order %v", atOnce, order)
		}
	}
}

// packedSchedule returns a schedule with packs, and a function that lets time pass until n calls have started.
func packedSchedule(t *testing.T, of *Packing) (s *Schedule, p *Partition, now *bucket.Micros, run func(n int) []*Job) {
	t.Helper()
	at := bucket.Micros(1_700_000_000_000_000)
	rules := bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 2}}
	store, err := bucket.NewMemory(rules, func() bucket.Micros { return at })
	if err != nil {
		t.Fatal(err)
	}
	pace := Pace{PrepareLead: 24 * time.Millisecond, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls}
	s = New(&Policy{Rules: rules, Packs: of}, pace, func(string) bucket.Micros { return 0 })
	return s, &Partition{Open: true}, &at, func(n int) (began []*Job) {
		for until := at.Add(5 * time.Second); at < until && len(began) < n; at = at.Add(time.Millisecond) {
			fx := s.Step(at)
			for _, j := range fx.Load {
				j.Policy = s.policy
				s.Loaded(j)
			}
			for _, j := range fx.Start {
				j.Calls++
				began = append(began, j)
				s.Sent(j, at)
			}
			if len(fx.Asks) > 0 {
				a, err := store.Reserve(t.Context(), fx.Asks)
				s.Answer(&fx, Reply{Sent: at, Came: at, Answers: a, Err: err})
			}
		}
		if len(began) < n {
			t.Fatalf("%d calls started, want %d", len(began), n)
		}
		return began
	}
}

// TestCancelOfMember checks that a job of a pack can be cancelled until the pack is called, and that the others are
// called without it.
func TestCancelOfMember(t *testing.T) {
	s, p, now, run := packedSchedule(t, &Packing{Jobs: 3, Wait: 0})
	for seq := range uint64(3) {
		s.Push("k", seq+1, p)
	}
	fx := s.Step(*now)
	if len(fx.Load) != 1 || len(fx.Load[0].Members()) != 2 {
		t.Fatalf("%d packs are made ready", len(fx.Load))
	}
	if _, c := s.Cancel("k", 2); c != CancelTaken {
		t.Fatalf("a member of a pack that is made ready is %s", c)
	}
	s.Loaded(fx.Load[0])
	var gone, loads []*Job
	for len(gone) == 0 && s.Next(*now) <= *now {
		fx = s.Step(*now)
		gone, loads = append(gone, fx.Cancel...), append(loads, fx.Load...)
	}
	if len(gone) != 1 || gone[0].Seq != 2 {
		t.Fatalf("%d jobs are cancelled", len(gone))
	}
	s.Finished(gone[0])
	for _, j := range loads {
		s.Loaded(j)
	}
	called := run(1)
	if jobs := inCall(called[0]); len(jobs) != 2 || jobs[0].Seq != 1 || jobs[1].Seq != 3 {
		t.Errorf("%d jobs are called", len(jobs))
	}
	if _, c := s.Cancel("k", 3); c != CancelCalling {
		t.Errorf("a member of a pack that is called is %s", c)
	}
	if depth := s.Queues.Find("k").Depth(); depth != 2 {
		t.Errorf("the key has %d jobs, want 2", depth)
	}
}

// TestUnderWayInPack checks that the jobs of a pack count as under way from when it is called until each of them is
// settled.
func TestUnderWayInPack(t *testing.T) {
	s, p, now, run := packedSchedule(t, &Packing{Jobs: 3, Wait: 0})
	for seq := range uint64(4) {
		s.Push("k", seq+1, p)
	}
	q := s.Queues.Find("k")
	flying := func() (seqs []uint64) {
		for seq := range uint64(4) {
			if j := q.UnderWay(seq + 1); j != nil && j.Seq == seq+1 {
				seqs = append(seqs, j.Seq)
			}
		}
		return seqs
	}
	for _, j := range s.Step(*now).Load {
		if got := flying(); got != nil {
			t.Errorf("while a pack is made ready, %d are under way", got)
		}
		s.Loaded(j)
	}
	called := run(1)[0]
	members := called.Members()
	if got := flying(); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("while a pack is called, %d are under way", got)
	}
	s.Ended(called, nil, *now)
	s.Finished(called)
	s.Rest(members[0], now.Add(time.Second))
	if got := flying(); !slices.Equal(got, []uint64{3}) {
		t.Errorf("after the call, %d are under way", got)
	}
}

// TestWithdrawnPackIsNotOvertaken checks that no later job is called before the members of a pack that is withdrawn, or
// whose leader ends because of its deadline.
func TestWithdrawnPackIsNotOvertaken(t *testing.T) {
	for _, ends := range []bool{false, true} {
		s, p, now, _ := packedSchedule(t, &Packing{Jobs: 2, Wait: 0})
		s.policy.Rules.Key.Rate.Count = 1000
		for seq := range uint64(4) {
			s.Push("k", seq+1, p)
		}
		fx := s.Step(*now)
		for _, j := range fx.Load {
			j.Policy = s.policy
			s.Loaded(j)
		}
		q := s.Queues.Find("k")
		if len(fx.Load) != 2 || len(q.Jobs) != 2 {
			t.Fatalf("%d packs are made ready", len(fx.Load))
		}
		lead := q.Jobs[0]
		lead.Calls = 1 // a retry: only its member was never called
		do := step{Schedule: s, now: *now}
		if ends {
			lead.Deadline = *now
		} else {
			lead.Policy = &Policy{}
		}
		do.ask(q, allClasses)
		if n := q.Jobs.count(asking); n > 0 {
			t.Errorf("by its deadline %t: a pack is asked for before the job that was taken after it", ends)
		}
	}
}

// TestPackDoesNotOvertake checks that a pack is withdrawn if it would be called before a job that came before one of
// the pack's own: that job left an earlier pack, which was withdrawn after this pack had been made.
func TestPackDoesNotOvertake(t *testing.T) {
	s, p, now, _ := packedSchedule(t, &Packing{Jobs: 3, Wait: 0})
	for seq := range uint64(5) {
		s.Push("k", seq+1, p)
	}
	q := s.Queues.Find("k")
	for seq := range uint64(5) {
		s.Extract(q, seq+1)
	}
	lead := func(seq uint64, members ...uint64) *Job {
		j := q.Job(seq)
		s.Pipe.stage(j, j.Priority)
		for _, of := range members {
			j.attach(q.Job(of))
		}
		j.Policy, j.Calls = s.policy, 1
		s.Loaded(j)
		return j
	}
	first, second := lead(1, 3), lead(2, 4, 5)
	do := step{Schedule: s, now: *now}
	if do.unready(q); first.Phase != ready || second.Phase != ready {
		t.Fatal("packs that were made in their order are withdrawn")
	}
	do.withdraw(first, now.Add(time.Hour))
	s.packs.loosen(&s.Queues)
	if do.unready(q); second.Phase != resting {
		t.Error("jobs 4 and 5 are called before job 3")
	}
}
