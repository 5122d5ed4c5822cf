package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/bucket"
)

// council is the schedules of several replicas that share one entry. A replica writes the entry only if it has read the
// newest one.
type council struct {
	desks   []*desk
	entry   Finding
	version int
	read    []int // the version that each replica has learned
	news    [][]HoldChange
}

func newCouncil(replicas, keys int) *council {
	f := &council{read: make([]int, replicas), news: make([][]HoldChange, replicas)}
	for i := range replicas {
		d := newDesk(fast(4))
		d.Holds.common.on = true
		d.policy.Breaker = BreakerPolicy{Failures: 2, Min: time.Second, Max: 8 * time.Second}
		d.policy.Retry = Retry{
			Attempts: 100, Min: 100 * time.Millisecond, Max: time.Second, HoldAPI: true, Adaptive: &Adaptive{Floor: 10, Recover: time.Minute},
		}
		d.add(names(fmt.Sprint("r", i, "k"), keys)...)
		f.desks = append(f.desks, d)
	}
	return f
}

func (f *council) pass(d time.Duration) {
	for _, r := range f.desks {
		r.now = r.now.Add(d)
	}
}

// learn lets a replica read the entry.
func (f *council) learn(i int) {
	d := f.desks[i]
	if f.read[i] < f.version {
		f.news[i] = append(f.news[i], d.Findings.Learn(f.entry, d.now)...)
		f.read[i] = f.version
	}
}

// tell lets a replica write what it has to say, if it has read the newest entry.
func (f *council) tell(i int) {
	d := f.desks[i]
	if f.read[i] != f.version {
		return
	}
	if said, more := d.Findings.Tell(f.entry, d.now); more {
		f.version++
		f.entry, f.read[i] = said, f.version
		d.Findings.Told(said)
	}
}

// settle lets all replicas read and write until none has more to say.
func (f *council) settle() {
	for range 3 * len(f.desks) {
		for i := range f.desks {
			f.learn(i)
			f.tell(i)
		}
	}
}

// end ends a call of a replica.
func (f *council) end(i int, e CallEnd) Feedback {
	d := f.desks[i]
	e.Now, e.Sent = d.now, true
	if e.Started == 0 {
		e.Started = d.now
	}
	j := &Job{Queue: d.Queue(fmt.Sprintf("r%dk0", i), d.part), Seq: 1000, Policy: d.policy}
	return d.OnCallEnd(j, e)
}

// starts returns how many calls a replica starts if it gets every slot that it asks for.
func (f *council) starts(i int) (n int) {
	for range 10 {
		before := f.desks[i].inPhase(calling)
		f.desks[i].grant()
		n += f.desks[i].inPhase(calling) - before
	}
	return n
}

// TestHoldsAreShared checks that a hold that one replica learns holds all, for as long, and that no replica tells what
// it has learned from another.
func TestHoldsAreShared(t *testing.T) {
	f := newCouncil(3, 2)
	f.end(0, CallEnd{PushedBack: true, Again: true, Detail: "429", Hold: Advice{Wait: 3 * time.Second, Header: "retry-after"}})
	if !f.desks[0].Findings.HasUnsaid() {
		t.Fatal("there is nothing to tell after a 429")
	}
	f.settle()
	if f.version != 1 {
		t.Errorf("%d writes for one finding", f.version)
	}
	f.pass(2999 * time.Millisecond)
	for i := range f.desks {
		if n := f.starts(i); n != 0 {
			t.Errorf("replica %d starts %d calls while the api is held", i, n)
		}
		if told := len(f.news[i]); told != min(i, 1) {
			t.Errorf("replica %d learns %d news", i, told)
		}
	}
	f.pass(10 * time.Millisecond)
	for i := range f.desks {
		n := 0
		for range 10 {
			f.pass(100 * time.Millisecond)
			n += f.starts(i)
		}
		if n == 0 || f.desks[i].Holds.governor.began == 0 {
			t.Errorf("replica %d makes %d calls after the hold, or does not start slowly", i, n)
		}
	}
	f.settle()
	f.end(1, CallEnd{PushedBack: true, Again: true, Hold: Advice{Wait: 48 * time.Hour}})
	f.settle()
	if until := f.desks[2].Holds.held; f.desks[2].now.Until(until) > MostHold {
		t.Errorf("another replica's hold lasts %v", f.desks[2].now.Until(until))
	}
}

// TestShorterHoldIsNotTold checks that a hold that ends before the known one is not written.
func TestShorterHoldIsNotTold(t *testing.T) {
	f := newCouncil(2, 1)
	f.end(0, CallEnd{PushedBack: true, Hold: Advice{Wait: 3 * time.Second}})
	f.settle()
	f.end(1, CallEnd{PushedBack: true, Hold: Advice{Wait: time.Second}, Started: f.desks[1].now.Add(-time.Minute)})
	before := f.entry.Held
	if f.settle(); f.entry.Held != before {
		t.Error("a shorter hold replaces a longer one")
	}
}

// TestHoldOfAnAccountIsShared checks that a hold that comes from another api of the account reaches the other replicas.
func TestHoldOfAnAccountIsShared(t *testing.T) {
	f := newCouncil(2, 1)
	d := f.desks[0]
	if news := d.Holds.HoldLonger(d.now.Add(time.Second), "account: 429", d.now); len(news) != 1 || !d.Findings.HasUnsaid() {
		t.Errorf("%d news, and nothing to tell", len(news))
	}
	if f.settle(); len(f.news[1]) != 1 || f.news[1][0].Why != "account: 429" {
		t.Errorf("the other replica learns %+v", f.news[1])
	}
}

// TestLoweredRateIsShared checks that pushback lowers the rate of all replicas once, and that they grow back together.
func TestLoweredRateIsShared(t *testing.T) {
	f := newCouncil(3, 1)
	for i := range f.desks { // calls that ran at the same time
		f.pass(time.Millisecond)
		f.end(i, CallEnd{PushedBack: true, Hold: Advice{Wait: time.Second}, Started: f.desks[i].now.Add(-100 * time.Millisecond)})
		f.settle()
	}
	for i, d := range f.desks {
		if got := d.Holds.governor.ceiling; got != whole/2 {
			t.Errorf("replica %d has %d of %d of the rate left", i, got, whole)
		}
	}
	f.pass(10 * time.Second)
	f.end(1, CallEnd{PushedBack: true, Hold: Advice{Wait: time.Second}})
	f.settle()
	for i, d := range f.desks {
		if got := d.Holds.governor.ceiling; got > whole/2 || got < whole/4 {
			t.Errorf("replica %d has %d of %d left", i, got, whole)
		}
	}
	f.pass(2 * time.Minute)
	for i, d := range f.desks {
		if d.turn(); d.Findings.shareOf(f.entry, d.now) != whole {
			t.Errorf("replica %d: the rate does not grow back", i)
		}
	}
}

// TestSlowPaceIsDivided checks that replicas together start as slowly after a hold as one would.
func TestSlowPaceIsDivided(t *testing.T) {
	shared := bucket.Limit{Name: "all", Rate: &bucket.Rate{Count: 100, Per: time.Second, Burst: 1}}
	pause := func(replicas int) time.Duration {
		d := newDesk(fast(4), shared)
		d.Findings.Divide(replicas)
		d.Holds.governor.restart(d.now)
		d.Holds.governor.ramp = whole / 2
		d.add("key")
		for range 20 {
			if d.grant(); d.inPhase(calling) > 0 {
				return d.now.Until(d.Holds.governor.next)
			}
		}
		t.Fatal("no call was granted")
		return 0
	}
	if one, four := pause(0), pause(4); four < 3*one {
		t.Errorf("one replica pauses %v, and each of four %v", one, four)
	}
}

// TestCouncilProperty lets replicas find, read and write in any order. When all have read and written everything, they
// agree. No replica is held for less than what it found itself.
func TestCouncilProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "replicas")
		f := newCouncil(n, 1)
		own := make([]bucket.Micros, n)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "who")
			switch rapid.SampledFrom([]string{"held", "fault", "denied", "fine", "learn", "tell", "pass", "probe"}).Draw(t, "what") {
			case "held":
				wait := time.Duration(rapid.IntRange(100, 5000).Draw(t, "ms")) * time.Millisecond
				f.end(i, CallEnd{PushedBack: true, Hold: Advice{Wait: wait}})
				own[i] = max(own[i], f.desks[i].now.Add(wait))
			case "fault":
				f.end(i, CallEnd{Fault: true, Again: true, Detail: "500"})
			case "denied":
				f.end(i, CallEnd{Denied: true, Detail: "401"})
			case "fine":
				f.end(i, CallEnd{})
			case "learn":
				f.learn(i)
			case "tell":
				f.tell(i)
			case "pass":
				f.pass(time.Duration(rapid.IntRange(1, 2000).Draw(t, "passes")) * time.Millisecond)
			case "probe":
				f.probe(i, rapid.Bool().Draw(t, "fails"))
			}
			for k, d := range f.desks {
				if d.Holds.held != 0 && d.Holds.held < own[k] && own[k] > d.now {
					t.Fatalf("replica %d is held for %v less than its own answer asked", k, d.Holds.held.Until(own[k]))
				}
			}
		}
		f.settle()
		for i, d := range f.desks {
			b, first := &d.Holds.breaker, &f.desks[0].Holds.breaker
			if b.closed() != first.closed() || b.denied != first.denied || d.Holds.common.turn != f.entry.Turn || d.Holds.common.turned {
				t.Fatalf("replica %d: %+v\nreplica 0: %+v\nentry: %+v", i, *b, *first, f.entry)
			}
			if most := slices.Max(own); most > d.now.Add(tellLonger) && d.Holds.held < most.Add(-tellLonger) {
				t.Fatalf("replica %d is held until %v, and an answer asked for %v", i, d.Holds.held, most)
			}
		}
	})
}

// probe makes and ends a probe of a replica, if it may make one.
func (f *council) probe(i int, fails bool) {
	d := f.desks[i]
	turn, from := d.Findings.AwaitsProbe()
	if turn == 0 || from > d.now || f.read[i] != f.version {
		return
	}
	if d.Findings.Claim(turn, d.now); !d.Findings.HasClaim() {
		return
	}
	j := &Job{Queue: d.Queue(fmt.Sprintf("r%dk0", i), d.part), Seq: 1000, Policy: d.policy}
	d.Holds.breaker.probe = j
	d.OnCallEnd(j, CallEnd{Fault: fails, Again: fails, Sent: true, Started: d.now, Now: d.now})
}

// TestOwnHoldIsNotShared checks that the end of a hold of which the replicas have told each other is distinguished from
// the end of one of which they have not, and from the end of a spent budget.
func TestOwnHoldIsNotShared(t *testing.T) {
	f := newCouncil(2, 1)
	ends := func(i int) (n int, shared bool) {
		f.pass(2 * time.Second)
		fx := f.desks[i].turn()
		return len(fx.Resumed), fx.Shared
	}
	hold := func() { f.end(0, CallEnd{PushedBack: true, Hold: Advice{Wait: time.Second}}) }
	hold()
	f.settle()
	f.pass(2 * time.Second)
	for i, d := range f.desks {
		if fx := d.turn(); len(fx.Resumed) != 1 || !fx.Shared {
			t.Errorf("replica %d: the shared hold ends %d times, shared: %v", i, len(fx.Resumed), fx.Shared)
		}
	}
	hold()
	if n, shared := ends(0); n != 1 || shared {
		t.Errorf("a hold that was not told ends %d times, shared: %v", n, shared)
	}
	f.desks[0].Holds.spent = f.desks[0].now.Add(time.Second)
	if n, shared := ends(0); n != 1 || shared {
		t.Errorf("a spent budget ends %d times, shared: %v", n, shared)
	}
}

// TestRaisedFloorIsToldOnce checks that a replica does not tell the rate again and again after the configuration has
// raised the floor above it.
func TestRaisedFloorIsToldOnce(t *testing.T) {
	f := newCouncil(2, 1)
	for range 4 {
		f.pass(time.Second)
		f.end(0, CallEnd{PushedBack: true, Hold: Advice{Wait: time.Second}})
		f.settle()
	}
	for _, d := range f.desks {
		next := *d.policy
		next.Retry.Adaptive = &Adaptive{Floor: 50, Recover: time.Minute}
		d.Adopt(&next)
	}
	before := f.version
	for range 20 {
		f.pass(10 * time.Millisecond)
		f.settle()
	}
	if f.version > before+1 {
		t.Errorf("%d writes after the floor was raised", f.version-before)
	}
}

// TestOtherClockDoesNotDenyAgain checks that a mark of a denial does not hold the replicas longer while they share the
// denial: a replica whose clock is ahead stored it.
func TestOtherClockDoesNotDenyAgain(t *testing.T) {
	f := newCouncil(2, 1)
	f.end(0, CallEnd{Denied: true, Detail: "401"})
	f.settle()
	d := f.desks[1]
	until := d.Holds.breaker.until
	d.Findings.DenyAgain(d.now.Add(time.Hour), d.now.Add(time.Hour), d.now, "401")
	if f.settle(); d.Holds.breaker.until != until || f.desks[0].Holds.breaker.until != until {
		t.Errorf("the breaker is open for %v more", until.Until(d.Holds.breaker.until))
	}
}

// TestLostFindingIsToldAgain checks that a replica tells the breaker's state again if the entry was lost.
func TestLostFindingIsToldAgain(t *testing.T) {
	f := newCouncil(3, 1)
	f.end(0, CallEnd{Denied: true, Detail: "401"})
	f.settle()
	f.entry = Finding{}
	if f.settle(); f.entry.Turn != 1 || !f.entry.Denied || f.version != 2 {
		t.Errorf("the entry after %d writes: %+v", f.version, f.entry)
	}
}

// TestNearlyWholeRateIsNotTold checks that a rate that has almost grown back is not told to replicas that know of no
// lower rate.
func TestNearlyWholeRateIsNotTold(t *testing.T) {
	f := newCouncil(2, 1)
	g := &f.desks[0].Holds.governor
	for share, writes := range map[int64]int{whole - tellLower: 0, whole - 2*tellLower: 1} {
		f.entry, f.version, f.read = Finding{}, 0, make([]int, 2)
		g.ceiling, g.lowered, g.grown = share, f.desks[0].now, f.desks[0].now
		if f.tell(0); f.version != writes {
			t.Errorf("%d writes of %d of %d of the rate", f.version, share, whole)
		}
	}
}

// TestMarkOfAnotherClockHoldsShortly checks that a mark of a denial that another replica's clock dates far ahead holds
// the replicas no longer than a denial may, if they do not share a denial yet.
func TestMarkOfAnotherClockHoldsShortly(t *testing.T) {
	f := newCouncil(2, 1)
	d := f.desks[1]
	d.Findings.DenyAgain(d.now.Add(time.Hour), d.now.Add(time.Hour), d.now, "401")
	f.settle()
	for i, d := range f.desks {
		if until, most := d.Holds.breaker.until, d.now.Add(d.policy.Retry.Max); until == 0 || until > most {
			t.Errorf("replica %d: the breaker is open for %v, retry.max is %v", i, d.now.Until(until), d.policy.Retry.Max)
		}
	}
}

// TestLongFindingIsBounded checks that a Finding that lasts longer than a hold may holds the api for as long as a hold
// may, counted from when it was said, and that it is not told on.
func TestLongFindingIsBounded(t *testing.T) {
	f := newCouncil(1, 1)
	d := f.desks[0]
	said := d.now
	long := Finding{At: said, Held: said.Add(300 * 24 * time.Hour), Why: "damage", Turn: 1, Until: said.Add(300 * 24 * time.Hour), Denied: true}
	most := said.Add(max(MostHold, d.policy.Retry.Max, d.policy.Breaker.Max))
	for range 3 {
		d.Findings.Learn(long, d.now)
		d.now = d.now.Add(time.Hour)
	}
	if until := d.Holds.held; until != most {
		t.Errorf("the api is held for %v after it was said", said.Until(until))
	}
	if until := d.Holds.breaker.until; until != most {
		t.Errorf("the breaker is open for %v after it was said", said.Until(until))
	}
	if told, _ := d.Findings.Tell(long, d.now); told.Held > most || told.Until > most {
		t.Errorf("the replicas are told %+v", told)
	}
}
