package replicas

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"
)

// fleet drives the schedules of several replicas through virtual time. They share one store, which counts by the
// fleet's own time. Each replica has a clock of its own that drifts, and messages between it and the store take their
// time or are lost. The seed alone decides what happens.
type fleet struct {
	t        testing.TB
	rnd      *rand.Rand
	now      bucket.Micros
	rules    bucket.Rules
	store    *bucket.Memory
	replicas []*replica
	next     events
	keys     map[string]*fleetKey
	seq      uint64
	way      time.Duration // each way to the store, at best
	slow     int           // one leg in so many takes much longer, 0 for none
	losses   int           // one round of asks in so many is lost, on one of the two ways; 0 for none
	call     time.Duration // how long a call takes

	grants   []fleetGrant
	arrivals []bucket.Arrival
	made     []fleetGrant // the calls, when they were made
	calls    int
	costs    map[string]int64 // of keys whose calls take more than one unit
	loads    map[string]int   // how often a job of a key was made ready
	digest   *digest
	plant    mistake
	actual   []int64                     // what each call takes, if answers say so
	ended    func()                      // is told of the end of each call
	classes  func(k int) bucket.Priority // of the jobs of an api's key; nil: all are normal
	twins    bool                        // each api has two replicas
}

// replica is one process of a fleet.
type replica struct {
	name  string
	s     *schedule.Schedule
	part  *schedule.Partition
	store *bucket.Memory
	skew  time.Duration
	drift float64 // its seconds are this much longer
	woken int     // counts its wakes: a later one replaces those before it
	dead  bool

	lost, worst int // rounds of asks that were lost in a row, and the most so far
}

// fleetKey is a key of a fleet.
type fleetKey struct {
	name    string
	replica int
	tenant  string
	of      bucket.Priority // of its jobs
	left    int             // jobs that were not granted a slot yet
}

// mistake is a planted mistake.
type mistake int

const (
	noMistake     mistake = iota
	noLines               // replicas do not say what waits
	evenLines             // every replica says that one key waits
	ownTenants            // a replica does not learn of its tenants' keys elsewhere
	sameNames             // replicas have the same name
	sameLines             // replicas do not say which priorities wait
	ownPriorities         // a replica does not learn how much of its priorities is elsewhere
)

func newFleet(t testing.TB, seed uint64) *fleet {
	f := &fleet{
		t: t, digest: digestOf(t), rnd: rand.New(rand.NewPCG(seed, 27)), now: 1_700_000_000_000_000, keys: map[string]*fleetKey{}, loads: map[string]int{},
		way: time.Duration(50+seed%4*700) * time.Microsecond, call: 20 * time.Millisecond,
	}
	rate := bucket.Rate{Count: []int64{20, 5, 60, 200}[f.rnd.IntN(4)], Per: time.Second, Burst: 1}
	f.rules = bucket.Rules{
		Jitter: 5 * time.Millisecond,
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 8},
		Shared: []bucket.Limit{{Name: "account", Rate: &rate}},
	}
	if f.rnd.IntN(2) == 0 {
		f.rules.TenantUntil = "."
	}
	return f
}

// crew says which keys a fleet has.
type crew struct {
	replicas int
	keys     []fleetKey
	jobs     int // of each key
}

// crewOf draws a crew.
func crewOf(rnd *rand.Rand, jobs int, tenants bool) crew {
	c := crew{replicas: 2 + rnd.IntN(19), jobs: jobs}
	few := 1 + rnd.IntN(5)
	for i := range c.replicas + rnd.IntN(3*c.replicas) {
		key := fleetKey{replica: rnd.IntN(c.replicas), tenant: fmt.Sprint("t", rnd.IntN(few))}
		if i < c.replicas {
			key.replica = i // each has one at least
		}
		if key.name = fmt.Sprintf("%s.k%d", key.tenant, i); !tenants {
			key.tenant = ""
		}
		c.keys = append(c.keys, key)
	}
	return c
}

// jobs returns how many jobs each key needs, so that keys wait for long enough.
func (f *fleet) jobs() int { return 12 + int(f.rules.Shared[0].Rate.Count/5) }

// man makes the replicas and their keys.
func (f *fleet) man(c crew) {
	var err error
	if f.store, err = bucket.NewMemory(f.rules, func() bucket.Micros { return f.now }); err != nil {
		f.t.Fatal(err)
	}
	for i := range c.replicas {
		r := &replica{name: fmt.Sprint("r", i), part: &schedule.Partition{Open: true}, skew: f.upTo(2*time.Hour) - time.Hour, drift: (f.rnd.Float64() - 0.5) / 1000}
		name := r.name
		if f.plant == sameNames {
			name = "r"
		}
		r.s = schedule.New(&schedule.Policy{Rules: f.rules}, schedule.Pace{
			PrepareLead: schedule.LeastLead, ReserveAhead: schedule.LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls, Clock: schedule.OtherClock, Replica: name,
		}, func(string) bucket.Micros { return 0 })
		r.store = f.store
		f.replicas = append(f.replicas, r)
	}
	for _, key := range c.keys {
		key.left = c.jobs
		r := f.replicas[key.replica%len(f.replicas)]
		f.keys[key.name] = &key
		for range c.jobs {
			f.seq++
			r.s.PushEarly(key.name, f.seq, r.part, key.of, 0, 0)
		}
	}
	for _, r := range f.replicas {
		f.after(f.upTo(50*time.Millisecond), func() { f.wake(r) })
	}
}

func (f *fleet) upTo(most time.Duration) time.Duration {
	return time.Duration(f.rnd.Int64N(int64(most) + 1))
}

func (f *fleet) after(d time.Duration, do func()) { heap.Push(&f.next, event{f.now.Add(d), do}) }

// local returns what a replica's clock reads.
func (f *fleet) local(r *replica) bucket.Micros {
	const start = 1_700_000_000_000_000
	return f.now.Add(r.skew) + bucket.Micros(float64(f.now-start)*r.drift)
}

func (f *fleet) leg() time.Duration {
	if f.slow > 0 && f.rnd.IntN(f.slow) == 0 {
		return f.way + f.upTo(30*time.Millisecond)
	}
	return f.way + f.upTo(f.way/4)
}

// run lets things happen until all is over, or until then.
func (f *fleet) run(until bucket.Micros) {
	for steps := 0; len(f.next) > 0 && f.next[0].at <= until; steps++ {
		if steps > 2_000_000 {
			f.t.Fatal("it never ends")
		}
		e := heap.Pop(&f.next).(event)
		f.now = max(f.now, e.at)
		e.do()
	}
}

// wake steps a replica until nothing is to be done now, and sets when to wake it next.
func (f *fleet) wake(r *replica) {
	if r.dead {
		return
	}
	for more := true; more; more = r.s.Next(f.local(r)) <= f.local(r) {
		f.step(r)
	}
	r.woken++
	if next := r.s.Next(f.local(r)); next != schedule.Never {
		number := r.woken
		f.after(f.local(r).Until(next)+time.Microsecond+f.upTo(300*time.Microsecond), func() {
			if r.woken == number {
				f.wake(r)
			}
		})
	}
}

// then does something for a replica after a while, if it lives.
func (f *fleet) then(d time.Duration, r *replica, do func()) {
	f.after(d, func() {
		if !r.dead {
			do()
			f.wake(r)
		}
	})
}

func (f *fleet) step(r *replica) {
	fx := r.s.Step(f.local(r))
	f.digest.effects(r.s, f.now, &fx)
	if len(fx.Unused) > 0 {
		f.settle(r, fx.Unused)
	}
	for _, j := range fx.Load {
		f.loads[j.Queue.Key]++
		j.Policy, j.Costs = r.s.Policy(), slices.Repeat([]int64{max(1, f.costs[j.Queue.Key])}, len(r.s.Policy().Rules.Shared))
		f.then(f.upTo(2*time.Millisecond), r, func() { r.s.Pipe.LearnLead(2 * time.Millisecond); r.s.Loaded(j) })
	}
	for _, j := range fx.Start {
		j.Calls++
		f.calls++
		r.s.Sent(j, f.local(r))
		f.arrivals = append(f.arrivals, bucket.Arrival{At: int64(f.now) * 1000})
		f.made = append(f.made, fleetGrant{f.now, j.Queue.Key})
		f.then(f.call, r, func() {
			f.settle(r, []bucket.Use{{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs, Actual: f.actual}})
			r.s.Pipe.LearnCall(f.call)
			r.s.Ended(j, nil, f.local(r))
			r.s.OnCallEnd(j, schedule.CallEnd{Sent: true, Started: f.local(r), Now: f.local(r)})
			r.s.Finished(j)
			if f.ended != nil {
				f.ended()
			}
		})
	}
	if len(fx.Asks) > 0 {
		f.reserve(r, fx)
	}
}

func (f *fleet) settle(r *replica, uses []bucket.Use) {
	f.then(f.leg(), r, func() {
		if err := r.store.Settle(context.Background(), uses); err != nil {
			f.t.Fatal(err)
		}
		r.s.PermitFreed()
	})
}

// reserve sends a round of asks to the store, and brings its answers back.
func (f *fleet) reserve(r *replica, fx schedule.Effects) {
	reply, lost := schedule.Reply{Sent: f.local(r)}, 0
	if f.losses > 0 && f.rnd.IntN(f.losses) == 0 {
		lost = 1 + f.rnd.IntN(2)
		r.lost++
		r.worst = max(r.worst, r.lost)
	} else {
		r.lost = 0
	}
	back := func(d time.Duration) {
		f.then(d, r, func() {
			reply.Came = f.local(r)
			out := r.s.Answer(&fx, reply)
			if len(out.Unused) > 0 {
				f.settle(r, out.Unused)
			}
			if out.PutOff {
				f.askAgain(r)
			}
		})
	}
	if lost == 1 {
		reply.Err = errLost
		back(300 * time.Millisecond)
		return
	}
	f.after(f.leg(), func() {
		f.spoil(fx.Asks)
		if reply.Answers, reply.Err = r.store.Reserve(context.Background(), fx.Asks); reply.Err != nil {
			f.t.Fatal(reply.Err)
		}
		for i, a := range reply.Answers {
			for _, g := range a.Grants {
				f.grants = append(f.grants, fleetGrant{g.At, fx.Asks[i].Key})
				f.digest.add(g.At, fx.Asks[i].Key)
				f.keys[fx.Asks[i].Key].left--
			}
			f.spoilAnswer(&reply.Answers[i])
		}
		if lost == 2 {
			reply.Answers, reply.Err = nil, errLost
			back(300 * time.Millisecond)
			return
		}
		back(f.leg())
	})
}

// spoil plants mistakes in what replicas say.
func (f *fleet) spoil(asks []bucket.Ask) {
	for i := range asks {
		switch f.plant {
		case noLines:
			asks[i].Line = nil
		case evenLines:
			asks[i].Line = &bucket.Line{Replica: asks[i].Line.Replica, Tenants: []bucket.Waiting{{Tenant: "", Keys: 1}}}
		case sameLines:
			asks[i].Line, asks[i].Priority = plain(asks[i].Line), bucket.Normal
		case noMistake, ownTenants, sameNames, ownPriorities:
		}
	}
}

func (f *fleet) spoilAnswer(a *bucket.Answer) {
	if f.plant == ownTenants {
		a.Elsewhere = 0
	}
	if f.plant == ownPriorities {
		a.Whole = 1000
	}
}

// shares returns for each key its due part of all calls while all keys wait.
func (f *fleet) shares() map[string]float64 {
	keys := map[string]float64{}
	for _, k := range f.keys {
		keys[k.tenant]++
	}
	shares := map[string]float64{}
	for name, k := range f.keys {
		shares[name] = 1 / float64(len(keys)) / keys[k.tenant]
	}
	return shares
}

// contended returns the grants in the order of their slots: those from the time when all replicas have come and had
// their first turns, until the first key has no job left.
func (f *fleet) contended(jobs int) []fleetGrant {
	all := slices.Clone(f.grants)
	slices.SortStableFunc(all, func(a, b fleetGrant) int { return cmp.Compare(a.at, b.at) })
	made, end := map[string]int{}, len(all)
	for i, g := range all {
		if made[g.key]++; made[g.key] == jobs {
			end = i
			break
		}
	}
	begin := slices.IndexFunc(all, func(g fleetGrant) bool { return g.at > all[0].at.Add(100*time.Millisecond) })
	begin = max(begin, len(f.keys))
	return all[min(begin, end):end]
}

// off returns for each key by how many calls it was off its share at most, in any span of the grants.
func (f *fleet) off(grants []fleetGrant) map[string]float64 {
	shares, made := f.shares(), map[string]float64{}
	low, high := map[string]float64{}, map[string]float64{}
	for i, g := range grants {
		for name, share := range shares {
			off := made[name] - share*float64(i)
			low[name], high[name] = min(low[name], off), max(high[name], off)
		}
		made[g.key]++
		high[g.key] = max(high[g.key], made[g.key]-shares[g.key]*float64(i+1))
	}
	for name := range shares {
		high[name] -= low[name]
	}
	return high
}

// used returns the part of the rate that was used between the first and the last of the grants.
func (f *fleet) used(grants []fleetGrant) float64 {
	span := grants[0].at.Until(grants[len(grants)-1].at)
	each := f.rules.Interval(*f.rules.Shared[0].Rate).Duration()
	return float64(len(grants)-1) * float64(each) / float64(span)
}
