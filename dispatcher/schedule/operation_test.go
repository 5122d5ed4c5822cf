package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/bucket"
)

// polledSchedule returns a schedule with a key of two calls in flight, and a function that lets it call for a while.
// The function returns the jobs whose calls it started.
func polledSchedule(t *testing.T) (s *Schedule, p *Partition, run func() []*Job) {
	t.Helper()
	now := bucket.Micros(1_700_000_000_000_000)
	rules := bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 100}, Capacity: 1000, InFlight: 2}}
	store, err := bucket.NewMemory(rules, func() bucket.Micros { return now })
	if err != nil {
		t.Fatal(err)
	}
	s = New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls}, func(string) bucket.Micros { return 0 })
	p = &Partition{Open: true}
	return s, p, func() (began []*Job) {
		for until := now.Add(time.Second); now < until; now = now.Add(time.Millisecond) {
			for {
				fx := s.Step(now)
				for _, j := range fx.Load {
					j.Policy = s.policy
					s.Loaded(j)
				}
				for _, j := range fx.Start {
					j.Calls++
					began = append(began, j)
					s.Sent(j, now)
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
		return began
	}
}

// accept ends a call, and lets its job be polled.
func accept(s *Schedule, j *Job, holds bool) {
	s.Ended(j, nil, 0)
	s.Submit(j, holds)
}

// TestPolledJobIsNotCalled checks that a polled job is never called again, counts as unfinished until it has ended, and
// does not keep the jobs behind it from being called.
func TestPolledJobIsNotCalled(t *testing.T) {
	s, p, run := polledSchedule(t)
	for seq, of := range []bucket.Priority{bucket.High, bucket.Normal, bucket.Low} {
		s.push("k", uint64(seq)+1, p, of, 0)
	}
	called := map[uint64]int{}
	for range 4 {
		for _, j := range run() {
			called[j.Seq]++
			accept(s, j, false)
		}
	}
	q := s.Queues.Find("k")
	if len(called) != 3 || called[1]+called[2]+called[3] != 3 {
		t.Fatalf("called %v", called)
	}
	if q.Empty() || q.Depth() != 3 || s.At(0).Unfinished() != 3 || s.At(0).Count(func(string) bool { return true }).Polled != 3 {
		t.Errorf("depth %d, %d unfinished", q.Depth(), s.At(0).Unfinished())
	}
	if phase, calls := q.PhaseOf(2); phase != JobPolling || calls != 1 || !q.has(2) || q.Waits(2) {
		t.Errorf("phase %s after %d calls", phase, calls)
	}
	if jobs := s.At(0).FirstJobs(q, 3); len(jobs) != 3 || jobs[0].Phase != JobPolling || jobs[0].Seq != 1 ||
		jobs[0].Priority != "high" || jobs[1].Priority != "" || jobs[2].Priority != "low" {
		t.Errorf("%+v", jobs)
	}
	// The intake counts them among the key's jobs: they do not put off the job that comes next.
	if eta := s.At(1_700_000_010_000_000).ETA(Place{Key: "k", Position: 4}); eta > bucket.Micros(1_700_000_010_000_000).Add(time.Second) {
		t.Errorf("the next job is called at %v", eta.Time())
	}
	var seqs []uint64
	for seq := range q.Seqs {
		seqs = append(seqs, seq)
	}
	if len(seqs) != 3 {
		t.Errorf("%v", seqs)
	}
	for seq := range uint64(3) {
		j := q.Job(seq + 1)
		if !s.EndPolled(j) || s.EndPolled(j) {
			t.Error("one end, once")
		}
		s.Finished(j)
	}
	if run(); !q.Empty() || s.Queues.Find("k") != nil || s.At(0).Unfinished() != 0 || s.Pipe.polling.jobs != 0 {
		t.Errorf("depth %d, %d unfinished, %d polled", q.Depth(), s.At(0).Unfinished(), s.Pipe.polling.jobs)
	}
}

// TestPauseOfPolledJobs checks that a key or an api is shown as paused while all jobs are at the api.
func TestPauseOfPolledJobs(t *testing.T) {
	for _, key := range []string{"k", ""} {
		s, p, run := polledSchedule(t)
		s.Push("k", 1, p)
		accept(s, run()[0], false)
		q := s.Queues.Find("k")
		if w := s.At(0).waits(q); w.For != WaitNothing {
			t.Errorf("the key waits for %+v", w)
		}
		s.Holds.Pause(key, Pause{})
		if w := s.At(0).waits(q); w.For != WaitPaused {
			t.Errorf("after a pause of %q, the key waits for %+v", key, w)
		}
	}
}

// TestHeldSlots checks that an operation that holds its slot counts as a call in flight of its key until its end is
// stored.
func TestHeldSlots(t *testing.T) {
	s, p, run := polledSchedule(t)
	for seq := range uint64(4) {
		s.Push("k", seq+1, p)
	}
	first := run()
	if len(first) != 2 {
		t.Fatalf("%d calls run", len(first))
	}
	for _, j := range first {
		accept(s, j, true)
	}
	if n := len(run()); n != 0 {
		t.Errorf("%d calls beside two operations that hold the key's slots", n)
	}
	q := s.Queues.Find("k")
	if w := s.At(0).waits(q); w.For != WaitInFlight {
		t.Errorf("the key waits for %+v", w)
	}
	if state := s.At(0).Inspect(q); state.InFlight != 2 || state.WaitMS != -1 {
		t.Errorf("%d calls in flight, and a wait of %d ms, although nothing tells when an operation ends", state.InFlight, state.WaitMS)
	}
	for _, j := range s.At(0).FirstJobs(q, 4) {
		if j.ETA != nil {
			t.Errorf("job %d should start at %v, although nothing tells when an operation ends", j.Seq, j.ETA)
		}
	}
	if s.EndPolled(first[0]); len(run()) != 0 {
		t.Error("a call while the end is being stored")
	}
	s.Finished(first[0])
	if more := run(); len(more) != 1 || more[0].Seq != 3 {
		t.Errorf("%d calls when one has ended", len(more))
	}
	s.Forget(s.Queues.Find("k"))
	if s.Pipe.polling.jobs != 0 || s.Pipe.polling.held != 0 {
		t.Errorf("%+v", s.Pipe.polling)
	}
}

// TestKeptSlot checks that a found job whose operation holds its slot counts as a call in flight before it is polled,
// and no more if it is called again.
func TestKeptSlot(t *testing.T) {
	s, p, run := polledSchedule(t)
	for seq := range uint64(3) {
		s.Push("k", seq+1, p)
	}
	first := run()
	s.Ended(first[0], nil, 0)
	for range 2 {
		s.Pipe.KeepSlot(first[0])
	}
	if n := len(run()); n != 0 || s.Pipe.polling.held != 1 {
		t.Errorf("%d calls beside an operation that holds its slot, %d held", n, s.Pipe.polling.held)
	}
	s.Rest(first[0], bucket.Micros(1_700_003_600_000_000))
	if n := len(run()); n != 1 || s.Pipe.polling.held != 0 {
		t.Errorf("%d calls when it is called again, %d held", n, s.Pipe.polling.held)
	}
}

// TestCancelPolled checks that the cancellation of a polled job is handed out once, and that the job has one end.
func TestCancelPolled(t *testing.T) {
	s, p, run := polledSchedule(t)
	s.Push("k", 1, p)
	j := run()[0]
	if _, verdict := s.Cancel("k", 1); verdict != CancelCalling {
		t.Errorf("during the call: %s", verdict)
	}
	accept(s, j, false)
	for range 2 {
		if of, verdict := s.Cancel("k", 1); of != j || verdict != CancelTaken || !j.IsCancelled() {
			t.Errorf("%v, %s", of, verdict)
		}
	}
	if s.Next(1) != 1 {
		t.Error("the step is not due")
	}
	if fx := s.Step(1); len(fx.Recall) != 1 || fx.Recall[0] != j || len(fx.Cancel) != 0 {
		t.Errorf("%+v", fx)
	}
	if fx := s.Step(2); len(fx.Recall) != 0 {
		t.Errorf("%+v", fx)
	}
	s.EndPolled(j)
	if _, verdict := s.Cancel("k", 1); verdict != CancelCalling {
		t.Errorf("while its end is being stored: %s", verdict)
	}
	s.Finished(j)
	if _, verdict := s.Cancel("k", 1); verdict != CancelGone {
		t.Errorf("after its end: %s", verdict)
	}
}

// TestManyOperations checks that no call starts while as many operations are under way as may be.
func TestManyOperations(t *testing.T) {
	s, p, run := polledSchedule(t)
	s.Push("k", 1, p)
	s.Pipe.polling.jobs = MaxPolled
	if n := len(run()); n != 0 {
		t.Errorf("%d calls", n)
	}
	s.Pipe.polling.jobs--
	if n := len(run()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestHeldSlotsMakeNothingReady checks that a key of which operations hold all slots makes no job ready, whose intent
// would be stored and dropped again and again. The loads of jobs end one after the other.
func TestHeldSlotsMakeNothingReady(t *testing.T) {
	s, p, run := polledSchedule(t)
	for seq := range uint64(5) {
		s.Push("k", seq+1, p)
	}
	for _, j := range run() {
		accept(s, j, true)
	}
	var staged []*Job
	loads, now := 0, bucket.Micros(1_700_000_003_000_000)
	for range 100 {
		fx := s.Step(now)
		loads += len(fx.Load)
		if staged = append(staged, fx.Load...); len(staged) > 0 {
			s.Loaded(staged[0])
			staged = staged[1:]
		}
		now += 1000
	}
	if loads > 0 {
		t.Errorf("%d jobs were made ready while two operations held both slots", loads)
	}
}

// TestHeldSlotsOfAReplica checks that operations that hold their slots count as calls in flight of the process, until
// their ends are stored.
func TestHeldSlotsOfAReplica(t *testing.T) {
	s, p, run := polledSchedule(t)
	next := *s.policy
	next.Rules.Key.InFlight = 100
	next.Rules.Replica = []bucket.Limit{{Name: "few", InFlight: 2, Replica: true}}
	s.Adopt(&next)
	for i := range 4 {
		s.Rebind(s.Push(fmt.Sprint("k", i), uint64(i+1), p), 1_700_000_000_000_000)
	}
	first := run()
	if len(first) != 2 {
		t.Fatalf("%d calls run", len(first))
	}
	for _, j := range first {
		accept(s, j, true)
	}
	if n := len(run()); n != 0 {
		t.Errorf("%d calls beside two operations that hold the slots", n)
	}
	if u := s.At(1_700_000_003_000_000).Uses(); len(u) != 1 || u[0].Used != 2 {
		t.Errorf("the limit's use is %+v", u)
	}
	s.EndPolled(first[0])
	if s.Finished(first[0]); s.gate.opens != 0 {
		t.Error("the end of an operation does not let the next call be asked for")
	}
	if n := len(run()); n != 1 {
		t.Errorf("%d calls when one operation has ended", n)
	}
	if s.Forget(first[1].Queue); s.gate.opens != 0 {
		t.Error("an operation whose partition was lost still holds its slot")
	}
}

// deadlines draws the deadlines of a simulation's jobs, independently of the simulation's other draws.
type deadlines struct {
	rnd *rand.Rand // nil: no job has one
	of  map[uint64]bucket.Micros
}

func newDeadlines(seed uint64) deadlines {
	if seed%3 != 1 {
		return deadlines{}
	}
	return deadlines{rand.New(rand.NewPCG(seed, 2)), map[uint64]bucket.Micros{}}
}

// push adds a job that came now, or that was read again.
func (m *simulation) push(key string, seq uint64) {
	d := &m.deadlines
	if _, known := d.of[seq]; !known && d.rnd != nil && d.rnd.IntN(3) > 0 {
		d.of[seq] = m.now.Add(time.Duration(d.rnd.Int64N(int64(time.Second))))
	}
	if at := d.of[seq]; at != 0 {
		m.part.Expect(seq, at)
	}
	m.s.PushEarly(key, seq, m.part, m.priorities.priority(seq), m.appointments.cameAt(seq, m.now), m.appointments.notBefore(seq, m.now))
}

// expire makes letters of jobs whose deadlines have passed, and checks that the schedule expires no other.
func (m *simulation) expire(jobs []*Job) {
	for _, j := range jobs {
		if at := m.deadlines.of[j.Seq]; at == 0 || at > m.now {
			m.t.Fatalf("job %d expired %s before its deadline", j.Seq, m.now.Until(at))
		}
		m.after(m.upTo(5*time.Millisecond), func() { m.s.Finished(j); m.finished++ })
	}
}

// checkLapsed checks that the schedule ends jobs when their deadlines pass, whatever keeps them from being
// called.
func (m *simulation) checkLapsed() {
	if m.deadlines.rnd == nil || m.steps%16 != 0 || !m.part.Open || m.s.Next(m.now) <= m.now || m.s.Queues.ending >= maxLapsing {
		return
	}
	for _, q := range m.s.Queues.byKey {
		for _, of := range q.waits.Priorities() {
			p, _ := q.waits.Of(of).Next()
			if at := m.deadlines.of[p.Seq]; at != 0 && at <= m.now {
				m.t.Fatalf("job %d still waits %s after its deadline", p.Seq, at.Until(m.now))
			}
		}
		for l := range q.waits.AllEarly {
			if at := m.deadlines.of[l.Seq]; at != 0 && at <= m.now {
				m.t.Fatalf("job %d is not to be called yet and still waits %s after its deadline", l.Seq, at.Until(m.now))
			}
		}
		for _, j := range q.Jobs {
			if at := m.deadlines.of[j.Seq]; at != 0 && at <= m.now && (j.Phase == resting || j.Phase == ready) && !j.cancelled {
				m.t.Fatalf("job %d is still there %s after its deadline", j.Seq, at.Until(m.now))
			}
		}
	}
}

// TestDeadlineUnderHold checks that a key's jobs expire when their deadlines pass, whatever keeps the key from
// being called. Those before jobs with time left expire first, and none takes a slot, a message or a probe.
func TestDeadlineUnderHold(t *testing.T) {
	far := 20 * time.Second
	for name, stop := range map[string]func(d *desk){
		"api paused": func(d *desk) { d.Holds.Pause("", Pause{}) },
		"key paused": func(d *desk) { d.Holds.Pause("a", Pause{}) },
		"api held":   func(d *desk) { d.Holds.Hold(nil, d.now.Add(far), "429") },
		"key held":   func(d *desk) { d.Holds.Hold(d.Queues.byKey["a"], d.now.Add(far), "429") },
		"breaker":    func(d *desk) { d.Holds.breaker.open(BreakerPolicy{Failures: 1, Min: far, Max: far}, d.now, 0) },
		"far limit":  func(d *desk) { d.gate.shut("q", d.now.Add(far)) },
		"own rate":   func(d *desk) { d.Queues.byKey["a"].TAT = d.now.Add(far) },
		"store down": func(d *desk) { d.store.failures, d.gate = 1, gate{by: storeDown, opens: d.now.Add(far)} },
	} {
		d := newDesk(fast(4))
		d.add("a", "a", "a", "a")
		for seq, after := range map[uint64]time.Duration{1: time.Second, 2: time.Second, 4: time.Second} {
			d.part.Expect(seq, d.now.Add(after))
		}
		stop(d)
		var ended []uint64
		made, woken := 0, 0
		for end := d.now.Add(5 * time.Second); d.now < end; woken++ {
			fx := d.turn()
			made += len(fx.Load) + len(fx.Asks)
			for _, j := range fx.Expire {
				ended = append(ended, j.Seq)
				d.Finished(j)
			}
			d.now = max(d.now, min(end, d.Next(d.now)))
		}
		if fmt.Sprint(ended) != "[1 2]" || made > 0 || d.census.unfinished != 2 {
			t.Errorf("%s: jobs %v expired, not 1 and 2; %d times something was made ready or asked for; %d jobs wait", name, ended, made, d.census.unfinished)
		}
		if woken > 8 {
			t.Errorf("%s: looked at %d times in 5 s", name, woken)
		}
	}
}

// TestDeadlineOfRetryUnderHold checks that a job that was called and rests until a hold is over ends at its
// deadline, and so does a ready job.
func TestDeadlineOfRetryUnderHold(t *testing.T) {
	d := newDesk(fast(4))
	d.add("a")
	q := d.Queues.byKey["a"]
	d.part.Expect(1, d.now.Add(3*time.Second))
	for d.inPhase(calling) == 0 {
		d.grant()
		d.now = d.now.Add(time.Millisecond)
	}
	j := q.Jobs[0]
	j.Calls = 1
	d.Ended(j, nil, d.now)
	d.Holds.Hold(q, d.now.Add(20*time.Second), "429")
	d.Rest(j, d.now.Add(20*time.Second))
	d.turn()
	d.now = d.Next(d.now)
	fx := d.turn()
	if len(fx.Expire) != 1 || len(d.part.deadlines) != 0 {
		t.Errorf("%d jobs expired, not the one at its deadline", len(fx.Expire))
	}
}

// TestManyPausedKeysWithDeadlines checks that only keys whose first job has a deadline have timers, and that of
// many jobs whose deadlines pass at once only a few are loaded at a time.
func TestManyPausedKeysWithDeadlines(t *testing.T) {
	const keys = 2000
	d := newDesk(fast(4))
	d.Holds.Pause("", Pause{})
	for i, key := range names("k", keys) {
		d.add(key)
		if i%2 == 0 {
			d.part.Expect(uint64(i+1), d.now.Add(time.Second))
		}
	}
	d.turn()
	if n := len(d.Queues.timers); n != keys/2 {
		t.Errorf("%d keys are timed, %d have a deadline", n, keys/2)
	}
	d.now = d.now.Add(time.Second)
	ended := 0
	for d.Next(d.now) <= d.now {
		fx := d.turn()
		if n := len(fx.Expire); n > maxLapsing {
			t.Fatalf("%d jobs end at once", n)
		}
		for _, j := range fx.Expire {
			d.Finished(j)
			ended++
		}
	}
	if ended != keys/2 || d.census.unfinished != keys/2 || len(d.Queues.byKey) != keys/2 || len(d.part.deadlines) != 0 {
		t.Errorf("%d of %d jobs expired; %d jobs, %d queues and %d deadlines are left", ended, keys/2, d.census.unfinished, len(d.Queues.byKey), len(d.part.deadlines))
	}
}
