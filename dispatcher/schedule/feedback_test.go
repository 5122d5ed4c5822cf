package schedule

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
)

// outage is a time in which every call fails, or, with dials, not even a connection is made.
type outage struct {
	from, until bucket.Micros
	dials       bool
}

// grudge is the pause that a queue's slow start must keep behind the first call after its hold.
type grudge struct {
	first bucket.Micros
	pause time.Duration
}

// openAPI draws how the api behaves, and what is configured for it.
func (m *simulation) openAPI() {
	m.grudges = map[*KeyQueue]*grudge{}
	m.policy.Retry = Retry{
		Attempts: 3, Min: 20 * time.Millisecond, Max: 200 * time.Millisecond, HoldAPI: m.rnd.IntN(3) == 0,
	}
	m.obey = m.rnd.IntN(4) > 0
	if m.rnd.IntN(3) == 0 {
		m.policy.Retry.Adaptive = &Adaptive{Floor: 1 + m.rnd.Int64N(99), Recover: time.Second + m.upTo(time.Minute)}
	}
	m.policy.Breaker = BreakerPolicy{Failures: []int{0, 1, 3, 5}[m.rnd.IntN(4)], Min: 10 * time.Millisecond, Max: 300 * time.Millisecond}
	for range []int{0, 0, 1, 2}[m.rnd.IntN(4)] {
		from := m.now.Add(m.upTo(time.Second))
		m.outages = append(m.outages, outage{from, from.Add(m.upTo(2 * time.Second)), m.rnd.IntN(2) == 0})
	}
}

func (m *simulation) unreachable() bool {
	for _, o := range m.outages {
		if o.dials && o.from <= m.now && m.now < o.until {
			return true
		}
	}
	return false
}

// unconnected handles a job for which there is no connection.
func (m *simulation) unconnected(j *Job) {
	probe := m.s.Holds.breaker.probe == j
	m.s.Unstage(j)
	if probe {
		m.s.Holds.breaker.probe = j
	}
	j.Calls++
	m.heard(j, CallEnd{Again: true, Fault: true, Started: m.now, Now: m.now, Jitter: m.rnd.Float64()})
}

// fate draws how a call ends.
func (m *simulation) fate(j *Job, started bucket.Micros) CallEnd {
	e := CallEnd{Sent: true, Started: started, Now: m.now, Jitter: m.rnd.Float64()}
	for _, o := range m.outages {
		if o.from <= m.now && m.now < o.until {
			e.Again, e.Fault = true, true
			return e
		}
	}
	if m.outcome == 0 || j.Calls > 5 || m.rnd.IntN(m.outcome) > 0 {
		return e
	}
	switch m.rnd.IntN(6) {
	case 0:
		e.PushedBack = true
	case 1:
		e.PushedBack, e.Hold = true, Advice{Wait: m.upTo(300 * time.Millisecond), Header: "retry-after"}
	case 2:
		if m.obey {
			e.Hold = Advice{Wait: m.upTo(300 * time.Millisecond), Header: "ratelimit"}
		}
	case 3:
		if m.obey {
			e.Hold = Advice{Spent: true, Header: "x-shop-call-limit"}
		}
	case 4:
		e.Again, e.Fault = true, true
	case 5:
		e.Denied, e.Detail = true, "the api answered 401"
		if m.rnd.IntN(2) == 0 {
			e.Hold = Advice{Wait: m.upTo(300 * time.Millisecond), Header: "retry-after"}
		}
	}
	return e
}

// heard tells the schedule of a call's end, checks its feedback against the promises, and stores the outcome,
// which takes time.
func (m *simulation) heard(j *Job, e CallEnd) {
	open := !m.s.Holds.breaker.closed()
	if m.probing == j {
		m.probing = nil
	}
	probe := m.s.Holds.breaker.probe == j
	failed := e.Fault || e.Denied || e.PushedBack && m.s.Holds.breaker.denied
	f := m.s.OnCallEnd(j, e)
	m.digest.add("ended", j.Seq, m.now, e, f.NotBefore, f.Free, j.Queue.brake.held, m.s.Holds.held, m.s.Holds.breaker.until)
	if probe && m.s.Holds.breaker.closed() == failed {
		m.t.Fatalf("the probe ended with %+v, and the breaker is closed: %v", e, m.s.Holds.breaker.closed())
	}
	if e.Denied && j.Policy == m.s.policy && m.s.Holds.breaker.closed() && e.Started >= m.s.Holds.breaker.turned {
		m.t.Fatalf("the api denied weir and may be called")
	}
	if f.Free && (!open || !e.Again || e.Sent) {
		m.t.Fatalf("a call did not count that ended with %+v, the breaker open: %v", e, open)
	}
	if e.PushedBack || e.Denied || f.Free {
		m.free++
	}
	if !e.Denied && e.Hold.Wait > 0 && max(j.Queue.brake.held, m.s.Holds.held) < e.Now.Add(e.Hold.Wait) {
		m.t.Fatalf("the api asked for %s and is held until %s", e.Hold.Wait, e.Now.Until(max(j.Queue.brake.held, m.s.Holds.held)))
	}
	notBefore := max(f.NotBefore, m.now.Add(m.upTo(200*time.Millisecond)))
	m.after(m.upTo(5*time.Millisecond), func() {
		m.keepRecord(j)
		if !e.Again && !e.PushedBack && !e.Denied {
			m.s.Finished(j)
			m.finished++
			return
		}
		m.s.Rest(j, notBefore)
	})
}

// checkBreaker checks a call that starts against the breaker: none while it is open, and then one.
func (m *simulation) checkBreaker(j *Job) {
	b := &m.s.Holds.breaker
	if b.closed() {
		return
	}
	if !b.halfOpen(m.now) {
		m.t.Fatalf("a call started %s before the breaker lets one pass", m.now.Until(b.until))
	}
	if m.probing != nil || m.s.Holds.breaker.probe != j {
		m.t.Fatalf("a second call started while the breaker was half open")
	}
	m.probing = j
}

// checkOpen checks that a step spends neither intents nor grants while the breaker is open, except the probe's.
func (m *simulation) checkOpen(fx Effects) {
	if m.s.Holds.breaker.closed() {
		return
	}
	for _, j := range fx.Load {
		if j != m.s.Holds.breaker.probe {
			m.t.Fatalf("job %d was made ready while the breaker was not closed", j.Seq)
		}
	}
	for _, jobs := range fx.asked {
		if len(jobs) != 1 || jobs[0] != m.s.Holds.breaker.probe {
			m.t.Fatalf("%d slots were asked for while the breaker was not closed", len(jobs))
		}
	}
}

// resumed notes that a hold is over.
func (m *simulation) resumed(q *KeyQueue) {
	if q == nil {
		return
	}
	m.grudges[q] = &grudge{}
}

// checkSlowStart checks the pause between the first two calls of a queue after its hold.
func (m *simulation) checkSlowStart(j *Job) {
	g := m.grudges[j.Queue]
	if g == nil {
		return
	}
	interval := m.policy.Rules.Interval(m.policy.Rules.Key.Rate).Duration()
	if g.first == 0 {
		g.first, g.pause = m.now, min(16*interval, max(interval, mostRamp))
		return
	}
	delete(m.grudges, j.Queue)
	if slack := m.s.Pipe.pace.ReserveAhead + m.s.Pipe.pace.GrantTTL + m.late; g.first.Until(m.now) < g.pause-slack {
		m.t.Fatalf("two calls %s apart after a hold, want %s", g.first.Until(m.now), g.pause)
	}
}

// TestSlowStartOfAnAPI checks that a hundred keys whose api was held do not all call when the hold is over, and
// that all have their whole rate again soon after.
func TestSlowStartOfAnAPI(t *testing.T) {
	const keys, jobs = 100, 5
	m := steady(t, bucket.Rate{Count: 1, Per: time.Second, Burst: 1})
	m.s.policy.Breaker, m.s.policy.Retry.Adaptive = BreakerPolicy{}, nil
	until := m.now.Add(time.Second)
	m.s.Holds.Hold(nil, until, "429")
	for k := range keys {
		for range jobs {
			m.seq++
			m.s.Push(fmt.Sprintf("key-%d", k), m.seq, m.part)
		}
	}
	m.drain(keys * jobs)
	early := 0
	for _, arrivals := range m.starts {
		for _, a := range arrivals {
			if bucket.Micros(a.At/1000) < until.Add(250*time.Millisecond) {
				early++
			}
		}
	}
	if early == 0 || early > 4 {
		t.Errorf("%d calls in the first quarter of a second after a hold", early)
	}
	if took := until.Until(m.now); took > (jobs+1)*time.Second {
		t.Errorf("five calls of each key at 1/s took %s after a hold", took)
	}
}
