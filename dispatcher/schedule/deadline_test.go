package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/bucket"
)

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
	if m.deadlines.rnd == nil || m.steps%16 != 0 || !m.part.Open || m.s.Next(m.now) <= m.now || m.s.agenda.ending >= maxLapsing {
		return
	}
	for _, q := range m.s.byKey {
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
		"key held":   func(d *desk) { d.Holds.Hold(d.byKey["a"], d.now.Add(far), "429") },
		"breaker":    func(d *desk) { d.Holds.breaker.open(BreakerPolicy{Failures: 1, Min: far, Max: far}, d.now, 0) },
		"far limit":  func(d *desk) { d.gate.shut("q", d.now.Add(far)) },
		"own rate":   func(d *desk) { d.byKey["a"].TAT = d.now.Add(far) },
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
	q := d.byKey["a"]
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
	if n := len(d.agenda.timers); n != keys/2 {
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
	if ended != keys/2 || d.census.unfinished != keys/2 || len(d.byKey) != keys/2 || len(d.part.deadlines) != 0 {
		t.Errorf("%d of %d jobs expired; %d jobs, %d queues and %d deadlines are left", ended, keys/2, d.census.unfinished, len(d.byKey), len(d.part.deadlines))
	}
}
