package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/httpcall"
)

// desk is a schedule driven by hand: nothing happens in it but what a test does.
type desk struct {
	*schedule
	part    *Partition
	now     bucket.Micros
	spacing time.Duration // of the slots that are granted
}

func newDesk(limits bucket.KeyLimits, shared ...bucket.Limit) *desk {
	r := bucket.Rules{Key: limits, Shared: shared}
	s := newSchedule(&Policy{Rules: r}, pace{
		lead: leastLead, ahead: leastAhead, late: 4 * time.Millisecond, maxStaged: maxStaged, maxCalls: maxCalls,
	}, func(string) bucket.Micros { return 0 })
	s.policy.Breaker = httpcall.Breaker{Failures: 1, Min: time.Second, Max: time.Minute}
	return &desk{s, &Partition{open: true}, 1_700_000_000_000_000, 10 * time.Millisecond}
}

func fast(inFlight int64) bucket.KeyLimits {
	return bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: inFlight}
}

// add lets a job of each key wait.
func (d *desk) add(keys ...string) {
	for _, key := range keys {
		d.push(key, uint64(d.jobs+1), d.part)
	}
}

// turn steps once, and everything that is to be made ready is.
func (d *desk) turn() effects {
	fx := d.step(d.now)
	for _, t := range fx.load {
		t.policy, t.costs = d.policy, make([]int64, len(d.rules.Shared))
		for i := range t.costs {
			t.costs[i] = 1
		}
		d.loaded(t)
	}
	return fx
}

// grant is a turn in which every ask gets a slot at once, and every call that starts leaves and goes on.
func (d *desk) grant() {
	fx := d.turn()
	for _, x := range fx.start {
		d.sent(x, d.now)
	}
	if len(fx.asks) == 0 {
		return
	}
	r := reply{sent: d.now, came: d.now}
	for range fx.asks {
		r.answers = append(r.answers, bucket.Answer{Grants: []bucket.Grant{{At: d.now, TAT: d.now.Add(d.spacing)}}})
	}
	d.answer(&fx, r)
}

func (d *desk) inPhase(p phase) (n int) {
	for _, l := range d.lines {
		n += l.count(p)
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

// TestPausedKeyGivesTheProbeUp: a key that is paused, or held for long, while its job is the breaker's probe keeps no
// other key from being it.
func TestPausedKeyGivesTheProbeUp(t *testing.T) {
	for name, stop := range map[string]func(d *desk, l *line){
		"paused": func(d *desk, l *line) { d.pause(l.key, Pause{}) },
		"held":   func(d *desk, l *line) { d.hold(l, d.now.Add(time.Hour), "429") },
	} {
		d := newDesk(fast(4))
		d.add("a", "b")
		d.breaker.open(d.policy.Breaker, d.now.Add(-2*time.Second), 0) // half open by now
		d.turn()
		first := d.probe
		if first == nil {
			t.Fatal("no probe")
		}
		stop(d, first.line)
		asked := false
		for range 100 {
			d.now = d.now.Add(10 * time.Millisecond)
			for _, a := range d.turn().asks {
				asked = asked || a.Key != first.line.key
			}
		}
		if !asked {
			t.Errorf("%s: the other key's job did not become the probe", name)
		}
	}
}

// TestNothingStaysReadyForAFarLimit: jobs that are ready when a shared limit turns out to open in three hours are put
// back, those that were not asked for too: a crash meanwhile must not make them unknown.
func TestNothingStaysReadyForAFarLimit(t *testing.T) {
	d := newDesk(fast(4), bucket.Limit{Name: "q", Quota: &bucket.Quota{Count: 10, Per: 3 * time.Hour, Window: bucket.Sliding}})
	d.add(names("k", 300)...)
	until := d.now.Add(3 * time.Hour)
	for i := range 2000 {
		fx := d.turn()
		if len(fx.asks) > 0 {
			wait := d.now.Add(20 * time.Millisecond) // something else binds first
			if i > 50 {
				wait = until
			}
			r := reply{sent: d.now, came: d.now}
			for range fx.asks {
				r.answers = append(r.answers, bucket.Answer{Wait: bucket.Wait{Limit: "q", Until: wait}})
			}
			d.answer(&fx, r)
		}
		d.now = d.now.Add(10 * time.Millisecond)
	}
	if n := d.inPhase(ready) + d.inPhase(staging); n > 0 {
		t.Errorf("%s before the limit opens %d jobs are ready", d.now.Until(until), n)
	}
}

// TestLongCallsLeaveRoom: behind long calls nothing is made ready that cannot start: keys whose calls may are not kept
// waiting by it.
func TestLongCallsLeaveRoom(t *testing.T) {
	d := newDesk(fast(1))
	d.learnCall(12 * time.Second)
	busy := names("busy", 300)
	d.add(busy...)
	d.add(busy...)
	for range 500 { // every busy key has a call that runs, and a job behind it
		d.now = d.now.Add(2 * time.Millisecond)
		for d.next(d.now) <= d.now {
			d.grant()
		}
	}
	if n := d.inPhase(calling); n < 300 {
		t.Fatalf("%d of 300 calls run", n)
	}
	d.add("idle")
	if fx := d.turn(); len(fx.load) != 1 || fx.load[0].line.key != "idle" {
		t.Errorf("%d jobs are made ready at once, %d are ready already: the idle key waits for others' calls", len(fx.load), d.inPhase(ready))
	}
}

// TestBreakerTurnedOffCloses: a configuration without a breaker lets an api be called whose breaker was open.
func TestBreakerTurnedOffCloses(t *testing.T) {
	d := newDesk(fast(4))
	d.add(names("k", 5)...)
	d.breaker.open(d.policy.Breaker, d.now, 0)
	next := *d.policy
	next.Breaker.Failures = 0
	d.adopt(&next)
	for _, l := range d.lines {
		d.rebind(l, d.now)
	}
	if n := len(d.turn().load); n != 5 {
		t.Errorf("%d of 5 jobs are made ready", n)
	}
}

// TestPartGoesWhileRulesChange: lines that are let go of between the adoption of new terms and their own turn at them
// disturb neither tenants nor turns.
func TestPartGoesWhileRulesChange(t *testing.T) {
	d := newDesk(fast(4), bucket.Limit{Name: "q", Quota: &bucket.Quota{Count: 10, Per: 3 * time.Hour, Window: bucket.Sliding}})
	d.rules.TenantUntil = "."
	d.reseat()
	d.until = d.now.Add(time.Hour)
	d.add("a.1", "b.1", "c.1", "c.2", "d.1")
	d.turn()
	if d.blocked.size != 5 {
		t.Fatalf("%d of 5 lines wait", d.blocked.size)
	}
	kept := d.lines["a.1"]
	next := *d.policy
	next.Rules.TenantUntil = "."
	d.adopt(&next)
	d.rebind(kept, d.now)
	var gone []*line
	for _, l := range d.lines {
		if l != kept {
			d.forget(l)
			gone = append(gone, l)
		}
	}
	d.forgetWaiting(&Partition{})
	for _, l := range gone {
		d.rebind(l, d.now)
	}
	if len(d.tenants) != 1 || d.tenants["a"] != kept.tenant || len(d.lines) != 1 {
		t.Errorf("%d tenants and %d lines are left of one", len(d.tenants), len(d.lines))
	}
}

// TestSuspectsAreCalledFewAtATime: one death makes nobody a suspect; what two make one does not wait in a single file, and what
// three do is called alone.
func TestSuspectsAreCalledFewAtATime(t *testing.T) {
	d := newDesk(fast(4))
	d.add("k0")
	x := d.lines["k0"].extract(1)
	d.suspects.alone = &task{deaths: aloneFrom} // is being called
	if x.deaths = 1; !d.suspects.mayCall(x) {
		t.Error("after one death a job waits as a suspect")
	}
	for deaths, most := range map[int]int{suspectFrom: manySuspects, aloneFrom: 1} {
		d := newDesk(fast(4))
		d.add(names("k", 50)...)
		for _, l := range d.lines {
			x := l.extract(l.first)
			x.phase, x.notBefore, x.calls, x.deaths = resting, 1, 1, deaths
		}
		ended := 0
		for range 200 {
			fx := d.turn()
			if n := len(d.suspects.called); n > most {
				t.Fatalf("after %d deaths %d suspects are called at once", deaths, n)
			}
			for x := range d.suspects.called {
				if x.phase == ready || x.phase == asking {
					d.unstage(x)
					d.finished(x)
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
