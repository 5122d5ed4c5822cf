package replicas

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
	"weir/dispatcher/schedule"
)

// sharing draws a fleet whose replicas are apis of one account in one process. Each api has its own schedule and
// limits, and all count the account's limits together.
func sharing(t testing.TB, seed uint64, shared ...bucket.Limit) *fleet {
	f := newFleet(t, seed)
	f.way = 0
	f.rules = bucket.Rules{Jitter: 5 * time.Millisecond, Key: f.rules.Key}
	for _, l := range shared {
		l.Name, l.Account = "acme/"+l.Name, "acme"
		f.rules.Shared = append(f.rules.Shared, l)
	}
	return f
}

// open makes the apis of the account, and gives each of some keys that many jobs.
func (f *fleet) open(apis, jobs int, keysOf func(api int) int, change func(api int, r *bucket.Rules)) {
	var names []string
	for i := range apis {
		names = append(names, fmt.Sprint("api", i))
	}
	now, pools := func() bucket.Micros { return f.now }, &bucket.Pools{}
	for i, name := range names {
		rules := f.rules
		rules.In = &bucket.Membership{Account: "acme", API: name, APIs: names, Weight: 1, Jitter: f.rules.Jitter}
		if change(i, &rules); i == 0 {
			pool, err := bucket.NewMemory(rules.Pool(), now)
			if err != nil {
				f.t.Fatal(err)
			}
			pools.Add("acme", pool)
		}
		store, err := bucket.NewMember(rules, pools, now)
		if err != nil {
			f.t.Fatal(err)
		}
		pace, twins := schedule.Pace{
			PrepareLead: schedule.LeastLead, ReserveAhead: schedule.LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls,
		}, 1
		if f.twins {
			pace.Clock, twins = schedule.OtherClock, 2
		}
		first := len(f.replicas)
		for twin := range twins {
			if f.twins {
				pace.Replica = fmt.Sprint(name, "/", twin)
			}
			r := &replica{name: name, part: &schedule.Partition{Open: true}, store: store}
			r.s = schedule.New(&schedule.Policy{Rules: rules}, pace, func(string) bucket.Micros { return 0 })
			f.replicas = append(f.replicas, r)
		}
		for k := range keysOf(i) {
			r := f.replicas[first+k/3%twins]
			key := &fleetKey{name: fmt.Sprintf("%s.k%d", name, k), replica: i, left: jobs}
			if f.classes != nil {
				key.of = f.classes(k)
			}
			f.keys[key.name] = key
			for range jobs {
				f.seq++
				r.s.PushEarly(key.name, f.seq, r.part, key.of, 0, 0)
			}
		}
	}
	for _, r := range f.replicas {
		f.after(f.upTo(20*time.Millisecond), func() { f.wake(r) })
	}
}

// lastSlot returns the last slot of an api.
func (f *fleet) lastSlot(api string) (at bucket.Micros) {
	for _, g := range f.grants {
		if apiOf(g.key) == api {
			at = max(at, g.at)
		}
	}
	return at
}

// apiOf returns the api of a key.
func apiOf(key string) string {
	api, _, _ := strings.Cut(key, ".")
	return api
}

// inSlots returns the grants in the order of their slots.
func (f *fleet) inSlots() []fleetGrant {
	all := slices.Clone(f.grants)
	slices.SortStableFunc(all, func(a, b fleetGrant) int { return cmp.Compare(a.at, b.at) })
	return all
}

// whileAll returns the grants in the order of their slots, from the time when every api has had a turn until one api
// has no job left.
func (f *fleet) whileAll() []fleetGrant {
	jobs, seen := map[string]int{}, map[string]bool{}
	for _, g := range f.grants {
		jobs[apiOf(g.key)]++
	}
	all, begin := f.inSlots(), -1
	for i, g := range all {
		seen[apiOf(g.key)] = true
		if begin < 0 && len(seen) == len(f.replicas) {
			begin = i + len(f.replicas)
		}
		if jobs[apiOf(g.key)]--; jobs[apiOf(g.key)] == 0 {
			return all[min(max(begin, 0), i):i]
		}
	}
	return nil
}

// lead returns the largest lead of one api over another in any span, in calls of weight 1.
func lead(grants []fleetGrant, one, other string, weight int) int {
	low, high, n := 0, 0, 0
	for _, g := range grants {
		switch apiOf(g.key) {
		case one:
			n++
		case other:
			n -= weight
		}
		low, high = min(low, n), max(high, n)
	}
	return high - low
}

// wrong lists jobs that were never called, and limits that were exceeded.
func (f *fleet) wrong() (bad []string) {
	for _, k := range f.keys {
		if k.left > 0 {
			bad = append(bad, fmt.Sprintf("%d jobs of %s were never called", k.left, k.name))
		}
	}
	check := func(l bucket.Limit, of func(key string) bool) {
		var arrivals []bucket.Arrival
		for _, c := range f.made {
			if of(c.key) {
				at := int64(c.at) * 1000
				arrivals = append(arrivals, bucket.Arrival{At: at, End: at + int64(f.call)})
			}
		}
		if v := bucket.Check(arrivals, bucket.Expectation{Limit: l, Jitter: f.rules.Jitter}); v.Outcome == bucket.Fail {
			bad = append(bad, fmt.Sprintf("over the limit %s: %s", l.Name, v))
		}
	}
	for _, l := range f.rules.Shared {
		check(l, func(string) bool { return true })
	}
	for _, r := range f.replicas {
		for _, l := range r.s.Policy().Rules.Own().Shared {
			check(l, func(key string) bool { return apiOf(key) == r.name })
		}
	}
	return bad
}

func noChange(int, *bucket.Rules) {}

func accountRate(count int64) bucket.Limit {
	return bucket.Limit{Name: "rate", Rate: &bucket.Rate{Count: count, Per: time.Second, Burst: 1}}
}

// TestSimulationOfAccounts runs seeds of two to four apis with keys of their own that share a rate. It checks that the
// calls of two apis differ by at most one in any span in which all apis wait, that the whole rate is used, and that
// every job is called. It does not check the turns at a thousand calls a second, because jobs are not made ready as
// fast.
func TestSimulationOfAccounts(t *testing.T) {
	for seed := range seeds.Of(80) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			f := sharing(t, seed)
			rate := accountRate([]int64{5, 20, 60, 200, 1000}[f.rnd.IntN(5)])
			rate.Name, rate.Account = "acme/rate", "acme"
			f.rules.Shared = []bucket.Limit{rate}
			apis := 2 + f.rnd.IntN(3)
			jobs := 10 + int(rate.Rate.Count)/10
			f.open(apis, jobs, func(int) int { return 1 + f.rnd.IntN(4) }, noChange)
			f.run(f.now.Add(time.Hour))
			for _, bad := range f.wrong() {
				t.Error(bad)
			}
			grants := f.whileAll()
			for i := range apis {
				for k := range i {
					if n := lead(grants, f.replicas[i].name, f.replicas[k].name, 1); n > 1 && rate.Rate.Count <= 200 {
						t.Errorf("of %d calls at %d/s, one of %d apis was %d ahead in some span", len(grants), rate.Rate.Count, apis, n)
					}
				}
			}
			if used := f.used(f.inSlots()); used < 0.97 && rate.Rate.Count <= 200 || used < 0.9 {
				t.Errorf("%.1f %% of %d/s was used", 100*used, rate.Rate.Count)
			}
		})
	}
}

// TestAccountByWeight checks that apis get turns by their weights, however many keys each has.
func TestAccountByWeight(t *testing.T) {
	f := sharing(t, 1, accountRate(20))
	f.open(2, 200, func(api int) int { return 1 + 4*api }, func(api int, r *bucket.Rules) { r.In.Weight = int64(3 - 2*api) })
	f.run(f.now.Add(time.Minute))
	if n := lead(f.whileAll(), "api0", "api1", 3); n > 6 {
		t.Errorf("in some span an api of weight 3 was %d calls off three times as many as one of weight 1", n)
	}
}

// TestAccountPriorities runs seeds of apis whose keys have jobs of several priorities. It checks that the weights of
// the priorities divide what each api has of the account, and that the apis still alternate: in one process, and if
// each api has two replicas.
func TestAccountPriorities(t *testing.T) {
	for seed := range seeds.Of(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rate := accountRate([]int64{20, 60, 200}[seed%3])
			f := sharing(t, seed, rate)
			if f.rules.Weights, f.twins = someWeights(f.rnd), seed%2 == 1; f.twins {
				f.way = time.Duration(50+f.rnd.IntN(700)) * time.Microsecond
			}
			f.classes = func(k int) bucket.Priority { return bucket.Priorities[k%len(bucket.Priorities)] }
			apis, jobs := 2+f.rnd.IntN(2), 12+int(rate.Rate.Count/3)
			f.open(apis, jobs, func(int) int { return 3 + f.rnd.IntN(6) }, noChange)
			f.run(f.now.Add(4 * time.Hour))
			for _, bad := range f.wrong() {
				t.Error(bad)
			}
			grants := f.contended(jobs)
			for i, r := range f.replicas {
				own := slices.DeleteFunc(slices.Clone(grants), func(g fleetGrant) bool { return apiOf(g.key) != r.name })
				for p, off := range f.offWeights(own) {
					if off > 5 {
						t.Errorf("%s jobs of %s were %.2f calls off their part by %+v, in %d calls", p, r.name, off, f.rules.Weights, len(own))
					}
				}
				most := 1
				if f.twins {
					most = 4 // each replica may have asked for one more before it knew of the other's
				}
				for _, other := range f.replicas[:i] {
					if n := lead(grants, r.name, other.name, 1); n > most && other.name != r.name {
						t.Errorf("of %d calls at %d/s one api was %d ahead in some span", len(grants), rate.Rate.Count, n)
					}
				}
			}
			if used := f.used(grants); used < 0.97 {
				t.Errorf("%.1f %% of %d/s was used", 100*used, rate.Rate.Count)
			}
		})
	}
}

// TestAccountWithoutRival checks that an api has the whole rate while no other api waits, and shares the rate at once
// when another api comes.
func TestAccountWithoutRival(t *testing.T) {
	f := sharing(t, 2, accountRate(50))
	f.open(2, 500, func(api int) int { return 1 - api }, noChange)
	f.run(f.now.Add(5 * time.Second))
	alone := len(f.grants)
	if alone < 240 {
		t.Errorf("alone an api had %d slots in 5 s at 50/s", alone)
	}
	late := f.replicas[1]
	f.keys["api1.k0"] = &fleetKey{name: "api1.k0", replica: 1, left: 50}
	for range 50 {
		f.seq++
		late.s.PushEarly("api1.k0", f.seq, late.part, bucket.Normal, 0, 0)
	}
	f.wake(late)
	f.run(f.now.Add(10 * time.Second))
	both := f.grants[alone:]
	last := slices.IndexFunc(both, func(g fleetGrant) bool { return apiOf(g.key) == "api1" && g.at == f.lastSlot("api1") })
	if last < 95 || last > 110 {
		t.Errorf("the 50 jobs of an api that came later had the last of %d slots", last)
	}
	for _, bad := range f.wrong() {
		t.Error(bad)
	}
}

// TestAccountPermits checks that calls in flight are bounded over all apis, and that no api starves.
func TestAccountPermits(t *testing.T) {
	for seed := range seeds.Of(30) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			f := sharing(t, seed, bucket.Limit{Name: "running", InFlight: 1 + int64(seed%3)})
			f.call = 40 * time.Millisecond
			f.ended = func() { f.wakeAll() }
			f.open(3, 30, func(int) int { return 2 }, noChange)
			f.run(f.now.Add(time.Hour))
			for _, bad := range f.wrong() {
				t.Error(bad)
			}
			grants := f.whileAll()
			for i := range f.replicas {
				for k := range i {
					if n := lead(grants, f.replicas[i].name, f.replicas[k].name, 1); n > 2+int(seed%3) {
						t.Errorf("of %d calls one api was %d ahead in some span", len(grants), n)
					}
				}
			}
		})
	}
}

// wakeAll lets every api look whether permits or units came back, as the dispatcher does.
func (f *fleet) wakeAll() {
	for _, r := range f.replicas {
		f.then(time.Microsecond, r, func() { // after the store heard of the end
			r.s.PermitFreed()
			if r.s.UnitsCameBack(f.local(r)) {
				f.askAgain(r)
			}
		})
	}
}

// askAgain makes those keys of a replica ask again that a limit has put off for long.
func (f *fleet) askAgain(r *replica) {
	for q := range r.s.Queues.All() {
		r.s.AskAgain(q, f.local(r))
	}
}

// TestAccountUnitsComeBack checks that no job waits for a quota's next period while the quota has units. Two apis share
// the quota, and their calls take less than they reserve.
func TestAccountUnitsComeBack(t *testing.T) {
	for seed := range seeds.Of(30) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			f := sharing(t, seed, bucket.Limit{Name: "tokens", Quota: &bucket.Quota{Count: 100, Window: bucket.Sliding, Per: time.Hour}})
			f.costs, f.actual, f.ended = map[string]int64{}, []int64{1}, func() { f.wakeAll() }
			for api := range 2 {
				for k := range 2 {
					f.costs[fmt.Sprintf("api%d.k%d", api, k)] = 40
				}
			}
			f.open(2, 15, func(int) int { return 2 }, noChange)
			f.run(f.now.Add(10 * time.Minute))
			for _, bad := range f.wrong() {
				t.Error(bad)
			}
		})
	}
}

// TestAccountOwnLimits checks that an api's own limits, beside those of the account, hold that api alone.
func TestAccountOwnLimits(t *testing.T) {
	for seed := range seeds.Of(30) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			f := sharing(t, seed, accountRate(40))
			f.open(3, 40, func(int) int { return 2 }, func(api int, r *bucket.Rules) {
				if api == 0 {
					own := bucket.Limit{Name: "own", Rate: &bucket.Rate{Count: 2, Per: time.Second, Burst: 1}}
					r.Shared = append([]bucket.Limit{own}, r.Shared...)
				}
			})
			f.run(f.now.Add(time.Hour))
			for _, bad := range f.wrong() {
				t.Error(bad)
			}
			fast := slices.DeleteFunc(f.inSlots(), func(g fleetGrant) bool { return apiOf(g.key) == "api0" })
			if took := fast[0].at.Until(fast[len(fast)-1].at); took > 4600*time.Millisecond {
				t.Errorf("two apis with 160 jobs beside one that its own limit holds took %s at 40/s", took)
			}
			if n := lead(fast[4:], "api1", "api2", 1); n > 6 {
				t.Errorf("of two apis that are not held one was %d ahead in some span", n)
			}
		})
	}
}

// TestAccountTurnsCountItsLimits checks that an api's own limit does not count in the account's turns: apis alternate
// although a call of one api takes more of its own limit than of the account's.
func TestAccountTurnsCountItsLimits(t *testing.T) {
	f := sharing(t, 4, accountRate(40))
	f.open(2, 100, func(int) int { return 2 }, func(api int, r *bucket.Rules) {
		if api == 0 {
			own := bucket.Limit{Name: "own", Rate: &bucket.Rate{Count: 25, Per: time.Second, Burst: 1}}
			r.Shared = append([]bucket.Limit{own}, r.Shared...)
		}
	})
	f.run(f.now.Add(time.Minute))
	for _, bad := range f.wrong() {
		t.Error(bad)
	}
	if n := lead(f.whileAll(), "api0", "api1", 1); n > 2 {
		t.Errorf("in some span one api was %d calls ahead", n)
	}
}

// TestAccountOfDeadAPI checks that an api which stops asking in the middle of its turns delays the others by a second
// at most.
func TestAccountOfDeadAPI(t *testing.T) {
	for seed := range seeds.Of(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			f := sharing(t, seed, accountRate(20))
			f.open(2, 60, func(int) int { return 2 }, noChange)
			f.run(f.now.Add(time.Second + f.upTo(time.Second)))
			f.replicas[0].dead = true
			died := f.now
			f.run(f.now.Add(time.Hour))
			last := died
			for _, g := range f.inSlots() {
				if g.at > died && last.Until(g.at) > 1100*time.Millisecond {
					t.Errorf("no slot was given for %s", last.Until(g.at))
				}
				last = max(last, g.at)
			}
			for _, k := range f.keys {
				if k.replica == 1 && k.left > 0 {
					t.Errorf("%d jobs of %s were never called", k.left, k.name)
				}
			}
		})
	}
}

// TestAccountForecast checks that the forecast of an api's last job allows for the other api that waits.
func TestAccountForecast(t *testing.T) {
	for _, weight := range []int64{1, 3} {
		f := sharing(t, 3, accountRate(20))
		f.open(2, 100, func(int) int { return 1 }, func(api int, r *bucket.Rules) {
			if r.In.Weight = 1; api == 0 {
				r.In.Weight = weight
			}
		})
		f.run(f.now.Add(2 * time.Second))
		api, left := f.replicas[0], f.keys["api0.k0"].left
		eta := api.s.At(f.local(api)).ETA(schedule.Place{Key: "api0.k0", Position: left})
		from := f.now
		f.run(f.now.Add(time.Minute))
		last := f.lastSlot("api0")
		if off := float64(from.Until(eta)) / float64(from.Until(last)); off < 0.85 || off > 1.15 {
			t.Errorf("of weight %d, the last of %d jobs was to be called in %s, and was in %s", weight, left, from.Until(eta), from.Until(last))
		}
	}
}
