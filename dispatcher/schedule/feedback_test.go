package schedule

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
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

func TestBreaker(t *testing.T) {
	o := BreakerPolicy{Failures: 3, Min: time.Second, Max: 5 * time.Second}
	var b breaker
	now := someTime
	fail := func(times int) (opened int) {
		for range times {
			now = now.Add(time.Millisecond)
			if b.failed(o, now, now, 0) {
				opened++
			}
		}
		return opened
	}
	if fail(2) != 0 || !b.closed() {
		t.Fatal("open after two failures")
	}
	b.worked(now)
	if fail(2) != 0 || fail(1) != 1 || b.closed() || b.halfOpen(now) {
		t.Fatalf("not open after three failures in a row: %+v", b)
	}
	if fail(5) != 0 {
		t.Error("opened twice")
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := b.turned.Until(b.until); got != want {
			t.Errorf("the %d. time in a row it is open for %v, want %v", i+1, got, want)
		}
		now = b.until
		if !b.halfOpen(now) {
			t.Errorf("no probe when its time is over")
		}
		b.worked(now) // not the probe
		b.open(o, now, 0)
	}
	b.close(now)
	if !b.closed() {
		t.Fatal("closed is not closed")
	}
	old := now.Add(-time.Second)
	for range 10 {
		if b.failed(o, old, now, 0) {
			t.Error("opened by calls that had started before it closed")
		}
	}
	fail(2)
	b.worked(old)
	if fail(1) != 1 {
		t.Error("an answer to a call that had started before it closed counts against the failures since")
	}
	b.close(now)
	b.open(o, now, 0)
	if got := b.turned.Until(b.until); got != time.Second {
		t.Errorf("after closing it opens for %v, want %v", got, time.Second)
	}
	never := breaker{}
	for range 1000 {
		if never.failed(BreakerPolicy{}, now, now, 0) {
			t.Fatal("a breaker that is off opened")
		}
	}
}

// TestBreakerOpenTimeProperty bounds how long a breaker stays open.
func TestBreakerOpenTimeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(24*time.Hour)).Draw(t, "min"))
		o := BreakerPolicy{Failures: 1, Min: least, Max: time.Duration(rapid.Int64Range(int64(least), int64(24*time.Hour)).Draw(t, "max"))}
		var b breaker
		now, before := someTime, time.Duration(0)
		for range rapid.IntRange(1, 100).Draw(t, "times") {
			b.open(o, now, rapid.Float64Range(0, 1).Draw(t, "jitter"))
			d := now.Until(b.until)
			if d < o.Min*3/4-time.Microsecond || d > o.Max || d < min(before*3/2, o.Max*3/4)-time.Microsecond {
				t.Fatalf("open for %v after %v, from %v to %v", d, before, o.Min, o.Max)
			}
			if b.closed() || b.halfOpen(now) || !b.halfOpen(now.Add(d)) {
				t.Fatalf("%+v at %v", b, now)
			}
			before, now = d, b.until
		}
	})
}

const someTime = bucket.Micros(1_700_000_000_000_000)

// TestGovernorStartsSlowly walks through a slow start at 10/s: a call at once, then pauses that halve with every
// answer.
func TestGovernorStartsSlowly(t *testing.T) {
	var g governor
	const interval = 100 * time.Millisecond
	now := someTime
	g.restart(now)
	for i, want := range []time.Duration{time.Second, 800 * time.Millisecond, 400 * time.Millisecond, 200 * time.Millisecond, 0} {
		if at := g.earliest(); at > now {
			t.Errorf("call %d must wait until %v from now", i+1, now.Until(at))
		}
		if got := g.pause(interval); got != want {
			t.Errorf("after call %d there is a pause of %v, want %v", i+1, got, want)
		}
		g.granted(interval, now)
		started := now
		now = max(now, g.earliest())
		g.answered(started, now)
	}
	if g.slows() {
		t.Errorf("the slow start is not over: %+v", g)
	}
}

// TestGovernorCountsOneMomentOnce checks that the answers to calls that ran together double the ramp once, and
// lower the ceiling once.
func TestGovernorCountsOneMomentOnce(t *testing.T) {
	var g governor
	a := &Adaptive{Floor: 10, Recover: time.Hour}
	g.restart(someTime)
	for range 8 {
		g.answered(someTime.Add(time.Millisecond), someTime.Add(time.Second))
	}
	if g.ramp != 2*slowStart {
		t.Errorf("eight answers at once: the ramp is %d, want %d", g.ramp, 2*slowStart)
	}
	for range 8 {
		g.pushedBack(a, someTime.Add(time.Millisecond), someTime.Add(time.Second))
	}
	if g.ceiling != whole/2 {
		t.Errorf("eight pushbacks at once: the ceiling is %d, want %d", g.ceiling, whole/2)
	}
	g.pushedBack(a, someTime.Add(2*time.Second), someTime.Add(3*time.Second))
	if g.ceiling != whole/4 {
		t.Errorf("another pushback later: the ceiling is %d, want %d", g.ceiling, whole/4)
	}
}

// TestGovernorProperty checks a governor's bounds under random events: while it slows it never allows less than
// the configured interval, it never keeps the rate below the floor, and it stops slowing in the end.
func TestGovernorProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g governor
		interval := time.Duration(rapid.Int64Range(1, int64(400*24*time.Hour/time.Microsecond)).Draw(t, "interval")) * time.Microsecond
		a := &Adaptive{
			Floor:   rapid.Int64Range(1, 100).Draw(t, "floor"),
			Recover: time.Duration(rapid.Int64Range(1e6, 24*3600e6).Draw(t, "recover")) * time.Microsecond,
		}
		now := someTime
		most := max(interval, mostRamp, share(min(interval, limits.LongestInterval), max(whole*a.Floor/100, 1)))
		var last bucket.Micros
		var gap time.Duration
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 5e6).Draw(t, "passes")) * time.Microsecond)
			started := now.Add(-time.Duration(rapid.Int64Range(0, 3e6).Draw(t, "took")) * time.Microsecond)
			switch rapid.IntRange(0, 4).Draw(t, "event") {
			case 0:
				g.restart(now)
			case 1:
				grown := g
				grown.grow(a, now)
				g.pushedBack(a, started, now)
				if left := func(c int64) int64 { return (c + whole - 1) % whole }; left(g.ceiling) > left(grown.ceiling) {
					t.Fatalf("pushback raised the ceiling from %d to %d", grown.ceiling, g.ceiling)
				}
			case 2:
				g.answered(started, now)
			case 3:
				g.grow(a, now)
			case 4:
				if at := g.earliest(); at > now {
					if now.Until(at) > most {
						t.Fatalf("the next call must wait %v, more than %v", now.Until(at), most)
					}
					continue
				}
				if g.slows() && last != 0 && gap > 0 && last.Until(now) < min(gap, interval) {
					t.Fatalf("two calls %v apart, %v was asked for", last.Until(now), gap)
				}
				g.granted(interval, now)
				last, gap = now, g.pause(interval)
				if gap != 0 && gap < interval {
					t.Fatalf("a pause of %v, below the configured interval of %v", gap, interval)
				}
			}
			if g.ceiling != 0 && (g.ceiling < max(whole*a.Floor/100, 1) || g.ceiling >= whole) {
				t.Fatalf("the ceiling is %d of %d, the floor %d %%", g.ceiling, whole, a.Floor)
			}
		}
		now = now.Add(a.Recover + time.Millisecond)
		g.grow(a, now)
		for range 4 {
			g.answered(now, now)
		}
		if g.slows() {
			t.Fatalf("without pushback it still slows: %+v", g)
		}
	})
}

// TestGovernorRecovers checks that the ceiling grows by the clock, however often it is looked at.
func TestGovernorRecovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &Adaptive{Floor: 1, Recover: time.Duration(rapid.Int64Range(1e6, 3600e6).Draw(t, "recover")) * time.Microsecond}
		var often, once governor
		often.pushedBack(a, someTime, someTime)
		once = often
		end := someTime.Add(a.Recover * 2 / 5)
		for now := someTime; now < end; now = now.Add(time.Duration(rapid.Int64Range(1, int64(a.Recover)/20).Draw(t, "step"))) {
			often.grow(a, now)
		}
		often.grow(a, end)
		once.grow(a, end)
		if d := often.ceiling - once.ceiling; d < -1 || d > 1 || once.ceiling < whole*89/100 || once.ceiling > whole*91/100 {
			t.Fatalf("after two fifths of the time: %d looked at often, %d looked at once, of %d", often.ceiling, once.ceiling, whole)
		}
	})
}

func TestBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(24*time.Hour)).Draw(t, "min"))
		most := time.Duration(rapid.Int64Range(int64(least), int64(24*time.Hour)).Draw(t, "max"))
		n := rapid.IntRange(1, 1_000_000).Draw(t, "n")
		full := least
		for range min(n, 60) - 1 {
			full = min(2*full, most)
		}
		if d := Backoff(least, most, n, rapid.Float64Range(0, 1).Draw(t, "jitter")); d < full/2 || d > full {
			t.Fatalf("backoff %v to %v after %d failures: %v, not from %v to %v", least, most, n, d, full/2, full)
		}
	})
}
