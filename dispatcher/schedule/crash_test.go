package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
)

// crashes holds what a simulation in which the process dies also remembers: what would be in NATS.
type crashes struct {
	once   bool                     // the api is not idempotent now: what was in the air, without a key or before, is parked
	ledger map[string]bucket.Micros // the pace of every key, by the store's clock
	saved  bucket.Snapshot          // the last checkpoint
	found  map[uint64]remains
	parked map[uint64]bool
	died   int
}

// remains is what a crash leaves of a job that was called or about to be.
type remains struct {
	seq       uint64
	calls     int
	notBefore bucket.Micros
	inAir     bool // its last call has an intent and no record
	keyless   bool // that call carried no key
	cancelled bool
}

// mortal makes the process of a simulation die a few times.
func (m *simulation) mortal() *simulation {
	m.crashes = crashes{
		ledger: map[string]bucket.Micros{}, found: map[uint64]remains{}, parked: map[uint64]bool{}, once: m.rnd.IntN(2) == 0,
	}
	m.policy.Rules.Lease = 500 * time.Millisecond
	m.openStore()
	if m.s.store.clock == OwnClock {
		m.s.store.tatOf = func(key string) bucket.Micros {
			tat, _ := m.store.TAT(key)
			return max(tat, m.crashes.ledger[key])
		}
		m.store.Restore(bucket.Snapshot{})
		m.keepCheckpoints()
	}
	for range 1 + m.rnd.IntN(5) {
		m.outside(m.upTo(900*time.Millisecond), m.crash)
	}
	for range 20 {
		m.outside(m.upTo(time.Second), m.twice)
	}
	return m
}

// keepCheckpoints does what the dispatcher does for limits that are counted in it.
func (m *simulation) keepCheckpoints() {
	s := m.store.Checkpoint(300 * time.Millisecond)
	store := m.store
	m.after(m.upTo(10*time.Millisecond), func() {
		m.crashes.saved = s
		store.Saved(s)
	})
	m.after(40*time.Millisecond, m.keepCheckpoints)
}

// twice repeats a report to the schedule, or makes one without effect.
func (m *simulation) twice() {
	switch m.rnd.IntN(6) {
	case 0:
		m.s.Queues.touchAll()
	case 1:
		m.s.PermitFreed()
	case 2:
		m.s.Holds.Hold(nil, m.s.Holds.held, "again")
	case 3:
		m.s.Holds.Resume("nobody", m.now)
	case 4:
		for _, key := range slices.Sorted(maps.Keys(m.s.Holds.paused.keys)) {
			m.s.Holds.Pause(key, m.s.Holds.paused.keys[key])
		}
	case 5:
		m.s.Holds.TryNow(m.now)
	}
	m.step()
}

// keepRecord does at a call's end what the ledger does.
func (m *simulation) keepRecord(j *Job) {
	if m.crashes.ledger != nil {
		key := j.Queue.Key
		m.crashes.ledger[key] = max(m.crashes.ledger[key], j.Grant.TAT, m.s.At(m.now).Floor(j.Queue))
	}
}

// mayLeave checks that the schedule calls no job again whose outcome is unknown.
func (m *simulation) mayLeave(j *Job) {
	if m.crashes.parked[j.Seq] {
		m.t.Fatalf("job %d was called after it was parked as unknown", j.Seq)
	}
}

// crash ends the process and starts another, which finds in the stream what was not deleted.
func (m *simulation) crash() {
	m.life++
	m.crashes.died++
	old := m.s
	m.calling, m.inFlight = map[string]int{}, 0
	if old.store.clock == OwnClock {
		m.openStore()
		m.store.Restore(m.crashes.saved)
		m.keepCheckpoints()
	}
	m.s = New(old.policy, old.Pipe.pace, old.store.tatOf)
	m.s.store.clock = old.store.clock
	m.probing, m.grudges = nil, map[*KeyQueue]*grudge{}
	for key, p := range old.Holds.paused.keys {
		m.s.Holds.Pause(key, p)
	}
	if p := old.Holds.paused.api; p != nil {
		m.s.Holds.Pause("", *p)
	}
	m.part = &Partition{Reading: true}
	for _, key := range slices.Sorted(maps.Keys(old.Queues.byKey)) {
		m.reread(old.Queues.byKey[key])
	}
	if m.rnd.IntN(3) == 0 {
		m.crashes.once = !m.crashes.once // the next one is told so by its file
	}
	m.after(m.upTo(30*time.Millisecond), m.reopen)
}

// reread pushes a queue's jobs again, and reports what else is known of them.
func (m *simulation) reread(q *KeyQueue) {
	var seqs []uint64
	for _, j := range q.Jobs {
		seqs = append(seqs, j.Seq)
		r := remains{
			seq: j.Seq, calls: j.Calls, inAir: j.Phase == calling || j.Phase == settling || m.crashes.parked[j.Seq],
			keyless: m.crashes.once || m.crashes.parked[j.Seq], cancelled: m.cancelled[j.Seq],
		}
		if j.Phase == resting && !j.limited {
			r.notBefore = j.NotBefore
		}
		if r.calls > 0 || r.cancelled {
			m.crashes.found[j.Seq] = r
		}
	}
	seqs = append(seqs, q.waitingSeqs()...)
	slices.SortFunc(seqs, cmp.Compare)
	for _, seq := range seqs {
		m.push(q.Key, seq)
	}
}

// reopen does what the dispatcher does when a partition has been read.
func (m *simulation) reopen() {
	for _, key := range slices.Sorted(maps.Keys(m.s.Queues.byKey)) {
		q := m.s.Queues.byKey[key]
		unsure := false
		for _, seq := range q.waitingSeqs() {
			r, ok := m.crashes.found[seq]
			if !ok {
				continue
			}
			j := m.s.Extract(q, seq)
			j.Calls, j.NotBefore = r.calls, max(r.notBefore, 1)
			unsure = unsure || r.inAir
			parks := r.inAir && (m.crashes.once || r.keyless)
			if r.inAir && !parks && m.rnd.IntN(2) == 0 {
				j.Deaths = 1 + m.rnd.IntN(3)
			}
			switch {
			case r.cancelled: // the mark of its end was stored, or it waits for its letter still
				j.Phase = settling
				m.after(m.upTo(3*time.Millisecond), func() { m.s.Finished(j); m.finished++ })
			case parks:
				m.crashes.parked[r.seq] = true
				m.s.Pipe.stage(j, j.Priority)
				m.after(m.upTo(3*time.Millisecond), func() { m.s.Unstage(j) })
				m.after(4*time.Millisecond, func() { m.keepRecord(j); m.s.Finished(j); m.finished++ })
			}
		}
		q.cold = true
		if unsure && m.s.store.clock == OwnClock { // the records of the lost calls say so
			m.crashes.ledger[key] = max(m.crashes.ledger[key], m.now.Add(m.s.policy.DrainTime(q.Limits)))
		}
		known := m.crashes.ledger[key]
		if m.s.store.clock == OtherClock {
			q.floor = known
			continue
		}
		q.TAT = max(q.TAT, known)
	}
	m.part.Open, m.part.Reading = true, false
	m.s.Queues.touchAll()
}

// playCrashes plays one seed of a process that dies at any moment, and returns how often it died.
func playCrashes(t testing.TB, seed uint64) (died int) {
	m := newSimulation(t, seed)
	if m.rnd.IntN(3) == 0 {
		m.sendAway()
	}
	m.mortal().play()
	return m.crashes.died
}

// TestSimulationOfCrashes runs seeds in which the process dies at any moment and the next one continues from what would
// be in NATS. One seed alone: go test ./dispatcher/schedule -run OfCrashes/seed=7.
func TestSimulationOfCrashes(t *testing.T) {
	died := 0
	for seed := range seeds.Of(3_000) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			died += playCrashes(t, seed)
		})
	}
	t.Logf("the process died %d times", died)
}

// TestCallsLeftUnderWayCount checks that calls that the previous owner may still have under way count as the
// key's calls in flight, for as long as a call may take, even if the key has had no job for a while.
func TestCallsLeftUnderWayCount(t *testing.T) {
	start := bucket.Micros(1_700_000_000_000_000)
	now := start
	rules := bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 100}, Capacity: 1000, InFlight: 3}}
	store, err := bucket.NewMemory(rules, func() bucket.Micros { return now })
	if err != nil {
		t.Fatal(err)
	}
	s := New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, ReserveAhead: LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls}, func(string) bucket.Micros { return 0 })
	p := &Partition{Open: true, Leftover: start.Add(10 * time.Second)}
	running := map[string]int{}
	run := func(until bucket.Micros) {
		for ; now < until; now = now.Add(time.Millisecond) {
			for {
				fx := s.Step(now)
				for _, j := range fx.Load {
					j.Policy = s.policy
					s.Loaded(j)
				}
				for _, j := range fx.Start {
					running[j.Queue.Key]++
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
	}
	left := map[string]int32{"none": 0, "two": 2, "three": 3, "empty": 3}
	for key, n := range left {
		s.Queue(key, p).Orphaned = n
		if key != "empty" {
			for k := range 4 {
				s.Push(key, uint64(k+1), p)
			}
		}
		s.Queues.Touch(s.Queues.byKey[key])
	}
	run(start.Add(5 * time.Second))
	s.Allow(false) // the right to call is in doubt for a moment
	run(now.Add(10 * time.Millisecond))
	s.Allow(true)
	s.Push("empty", 9, p)
	if w := s.At(now).waits(s.Queues.byKey["empty"]); w.For != WaitInFlight || w.Until == nil {
		t.Errorf("a key whose calls may all be running waits for %+v", w)
	}
	run(p.Leftover)
	for key, n := range left {
		if most := int(3 - n); running[key] != most {
			t.Errorf("%s: %d calls were begun beside %d that were left, %d should", key, running[key], n, most)
		}
	}
	run(p.Leftover.Add(time.Second))
	for key, want := range map[string]int{"none": 3, "two": 3, "three": 3, "empty": 1} {
		if running[key] != want {
			t.Errorf("%s: %d calls run in the end, want %d", key, running[key], want)
		}
	}
}

// TestLineThatIsGoneIsTouched checks that a queue that was dropped without jobs may still be touched, for
// example because a suspect's call has ended. It takes no turn then, whatever holds the api.
func TestLineThatIsGoneIsTouched(t *testing.T) {
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, InFlight: 1, Capacity: 10}}
	s := New(&Policy{Rules: rules}, Pace{MaxStaged: MaxStaged, MaxCalls: MaxCalls}, func(string) bucket.Micros { return 0 })
	now, p := bucket.Micros(1_000_000_000), &Partition{Open: true}
	s.policy = &Policy{Rules: rules}
	q := s.Push("k", 1, p)
	job := s.Extract(q, 1)
	job.Phase = settling
	s.Finished(job)
	for range 10 {
		now = now.Add(time.Hour)
		s.Step(now)
	}
	if s.Queues.byKey["k"] != nil || q.seats.IsJoined(bucket.Normal) {
		t.Fatal("an hour later the line without jobs is still there")
	}
	s.gate.opens = now.Add(time.Hour)
	s.Queues.Touch(q)
	s.Step(now)
	if s.turns.Waiting() != 0 {
		t.Error("a line without jobs waits for its turn")
	}
}

// TestLostQueueWaitsForNoTurn checks that a queue waits for no turn if its partition is lost while a slot is asked for,
// and the slot is then refused or the store does not answer. The schedule must not tell other processes that the
// queue's key waits.
func TestLostQueueWaitsForNoTurn(t *testing.T) {
	rules := bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, InFlight: 1, Capacity: 10},
		Shared: []bucket.Limit{{Name: "account", Rate: &bucket.Rate{Count: 1, Per: time.Second, Burst: 1}}},
	}
	now := bucket.Micros(1_000_000_000)
	for name, reply := range map[string]Reply{
		"refused":    {Answers: []bucket.Answer{{Now: now, Wait: bucket.Wait{Limit: "account", Until: now.Add(100 * time.Millisecond)}}}},
		"unanswered": {Err: errLost},
	} {
		t.Run(name, func(t *testing.T) {
			pace := Pace{MaxStaged: MaxStaged, MaxCalls: MaxCalls, PrepareLead: LeastLead, ReserveAhead: LeastAhead, Replica: "r", Clock: OtherClock}
			s, p := New(&Policy{Rules: rules}, pace, func(string) bucket.Micros { return 0 }), &Partition{Open: true}
			q := s.Push("k", 1, p)
			fx := s.Step(now)
			fx.Load[0].Policy, fx.Load[0].Costs = s.policy, []int64{1}
			s.Loaded(fx.Load[0])
			if fx = s.Step(now); len(fx.Asks) != 1 {
				t.Fatalf("%+v", fx)
			}
			p.Open = false
			var lost Effects
			s.Unwind([]*KeyQueue{q}, now, &lost)
			s.Forget(q)
			s.ForgetWaiting(p)
			reply.Sent, reply.Came = now, now
			s.Answer(&fx, reply)
			for range 5 {
				s.Step(now)
				now = now.Add(time.Second)
			}
			if _, coming, _ := s.turns.Left(bucket.Normal); coming > 0 || s.turns.Waiting() > 0 {
				t.Errorf("%d tenants are said to have keys that wait, and %d queues wait", coming, s.turns.Waiting())
			}
		})
	}
}

// TestLostQueueIsPutBack checks that a queue waits for no turn if an answer puts it back in line between the steps in
// which its partition is lost.
func TestLostQueueIsPutBack(t *testing.T) {
	s, p := New(&Policy{}, Pace{}, func(string) bucket.Micros { return 0 }), &Partition{}
	q := s.Push("k", 1, p)
	q.begin(q.waits.Take(bucket.Normal)).Phase = ready
	s.turns.Wait(q, bucket.Normal)
	s.Forget(q)
	for _, waiting := range s.turns.TakeAll() {
		s.turns.PutBack(waiting)
	}
	s.ForgetWaiting(p)
	if _, coming, _ := s.turns.Left(bucket.Normal); coming > 0 || s.turns.Waiting() > 0 {
		t.Errorf("%d tenants are said to have keys that wait, and %d queues wait", coming, s.turns.Waiting())
	}
}

// TestNobodyOvertakesALostFirstCall checks that a job keeps its place in its key's order when its lost first
// call is repeated, while its record is stored and until then. An intent is stored before a call, so that first
// call may never have reached the api.
func TestNobodyOvertakesALostFirstCall(t *testing.T) {
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, InFlight: 4, Capacity: 10}}
	s := New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls}, func(string) bucket.Micros { return 0 })
	s.policy = &Policy{Rules: rules}
	now, p := bucket.Micros(1_000_000_000), &Partition{Open: true}
	q := s.Push("k", 1, p)
	lost := s.Extract(q, 1)
	lost.Calls, lost.Unseen, lost.Phase = 1, true, settling
	s.Push("k", 2, p)
	staged := func() (seqs []uint64) {
		t.Helper()
		now = now.Add(time.Second)
		fx := s.Step(now)
		for _, job := range fx.Load {
			seqs = append(seqs, job.Seq)
		}
		return seqs
	}
	if got := staged(); len(got) != 0 {
		t.Fatalf("jobs %v were made ready while the lost call of the job before them was settled", got)
	}
	s.Rest(lost, now.Add(time.Hour))
	if got := staged(); len(got) != 0 {
		t.Fatalf("jobs %v overtook the one whose first call was lost, and which waits", got)
	}
	alone := &Job{Deaths: aloneFrom, Queue: q}
	s.suspects.call(alone)
	lost.Deaths, lost.NotBefore = aloneFrom, 1 // a suspect waits for its turn, and those behind it wait for it
	s.Queues.Touch(q)
	if got := staged(); len(got) != 0 {
		t.Fatalf("jobs %v overtook the one whose first call was lost, and which is a suspect", got)
	}
	s.suspects.clear(alone, &s.Queues)
	if got := staged(); len(got) == 0 || got[0] != 1 {
		t.Fatalf("jobs %v are made ready; want job 1 first", got)
	}
}

// TestFoundJobWaitsForOlderOnes makes jobs of a key ready of which a takeover has found one with an intent, for a call
// that had not begun. The job before it has no intent, and is called first.
func TestFoundJobWaitsForOlderOnes(t *testing.T) {
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, InFlight: 10, Capacity: 10}}
	for _, phase := range []Phase{resting, settling} {
		s := New(&Policy{Rules: rules}, Pace{MaxStaged: MaxStaged, MaxCalls: MaxCalls, PrepareLead: time.Second}, func(string) bucket.Micros { return 0 })
		now, p := bucket.Micros(1_000_000_000), &Partition{Open: true}
		var q *KeyQueue
		for seq := range uint64(3) {
			q = s.Push("k", seq+1, p)
		}
		found := s.Extract(q, 2)
		found.NotBefore, found.Phase, found.Unseen = 1, phase, phase == settling // it is looked up what became of its call
		var ready []uint64
		for _, j := range s.Step(now).Load {
			ready = append(ready, j.Seq)
		}
		want := map[Phase][]uint64{resting: {1, 2, 3}, settling: {1}}[phase]
		if !slices.Equal(ready, want) {
			t.Errorf("phase %d: the jobs %v are made ready, want %v", phase, ready, want)
		}
		if next := q.nextFirst(bucket.Normal); next == nil || next.Seq != 1 {
			t.Errorf("phase %d: the next job is %+v, want 1", phase, next)
		}
	}
}
