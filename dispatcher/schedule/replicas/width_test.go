package replicas

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/internal/seeds"
	"weir/dispatcher/schedule"
	"weir/dispatcher/schedule/limits"
	"weir/ingest"
)

// owner is a process of a fleet: a schedule that shares a store with others, over a round trip each time.
type owner struct {
	s     *schedule.Schedule
	part  *schedule.Partition
	clock schedule.StoreClock
}

// crowd is several owners at one store, in virtual time.
type crowd struct {
	t      testing.TB
	rnd    *rand.Rand
	now    bucket.Micros
	store  *bucket.Memory
	rules  bucket.Rules
	owners []*owner
	next   []event
	took   time.Duration // a call
	load   time.Duration // what a job takes to be made ready
	seq    uint64

	starts  []bucket.Micros
	running int
	buried  int // jobs that a spent budget ended
}

func newCrowd(t testing.TB, seed uint64, owners int, rules bucket.Rules) *crowd {
	t.Helper()
	c := &crowd{
		t: t, rnd: rand.New(rand.NewPCG(seed, 9)), now: bucket.MicrosOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), rules: rules,
		took: 10 * time.Millisecond, load: 3 * time.Millisecond,
	}
	var err error
	if c.store, err = bucket.NewMemory(rules, func() bucket.Micros { return c.now }); err != nil {
		t.Fatal(err)
	}
	for range owners {
		o := &owner{part: &schedule.Partition{Open: true}, clock: schedule.OwnClock}
		if owners > 1 {
			o.clock = schedule.OtherClock
		}
		o.s = schedule.New(&schedule.Policy{Rules: rules, Price: 1}, schedule.Pace{
			PrepareLead: schedule.LeastLead, ReserveAhead: schedule.LeastAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: schedule.MaxStaged, MaxCalls: schedule.MaxCalls, Clock: o.clock,
		}, func(string) bucket.Micros { return 0 })
		c.owners = append(c.owners, o)
	}
	return c
}

func (c *crowd) after(d time.Duration, do func()) {
	c.next = append(c.next, event{c.now.Add(d), do})
}

// submit gives a job of a key to the owner of the key.
func (c *crowd) submit(key int) {
	c.seq++
	o := c.owners[key%len(c.owners)]
	o.s.Push(fmt.Sprint("k", key), c.seq, o.part)
}

// run lets time pass, a millisecond at a time, and calls look after each.
func (c *crowd) run(d time.Duration, look func()) {
	for end := c.now.Add(d); c.now < end; c.now = c.now.Add(time.Millisecond) {
		for i := 0; i < len(c.next); i++ {
			if e := c.next[i]; e.at <= c.now {
				c.next = slices.Delete(c.next, i, i+1)
				i--
				e.do()
			}
		}
		for _, o := range c.owners {
			o.s.Shared.Learn(c.store.Levels())
			for more := true; more; more = o.s.Next(c.now) <= c.now {
				c.step(o)
			}
		}
		look()
	}
}

func (c *crowd) step(o *owner) {
	fx := o.s.Step(c.now)
	digestOf(c.t).effects(o.s, c.now, &fx)
	for _, j := range fx.Load {
		j.Policy, j.Costs = o.s.Policy(), make([]int64, len(c.rules.Shared))
		for i := range j.Costs {
			j.Costs[i] = max(1, c.rules.Shared[i].Cost.Usual())
		}
		c.after(c.load, func() { o.s.Pipe.LearnLead(c.load); o.s.Loaded(j) })
	}
	for _, j := range fx.Start {
		c.starts = append(c.starts, c.now)
		c.running++
		j.Calls++
		o.s.Sent(j, c.now)
		c.after(c.took, func() {
			c.running--
			o.s.Pipe.LearnCall(c.took)
			o.s.Ended(j, nil, c.now)
			c.settle(o, []bucket.Use{{Key: j.Queue.Key, Grant: j.Grant, Costs: j.Costs}})
			o.s.Finished(j)
		})
	}
	c.settle(o, fx.Unused)
	if len(fx.Asks) == 0 {
		return
	}
	if o.clock == schedule.OwnClock {
		a, err := c.store.Reserve(c.t.Context(), fx.Asks)
		c.answer(o, &fx, schedule.Reply{Sent: c.now, Came: c.now, Answers: a, Err: err})
		return
	}
	sent := c.now
	c.after(time.Duration(c.rnd.IntN(2))*time.Millisecond, func() {
		a, err := c.store.Reserve(c.t.Context(), fx.Asks)
		c.after(time.Duration(1+c.rnd.IntN(2))*time.Millisecond, func() {
			c.answer(o, &fx, schedule.Reply{Sent: sent, Came: c.now, Answers: a, Err: err})
		})
	})
}

func (c *crowd) answer(o *owner, fx *schedule.Effects, r schedule.Reply) {
	out := o.s.Answer(fx, r)
	c.settle(o, out.Unused)
	for _, j := range out.OverBudget {
		c.buried++
		o.s.Finished(j)
	}
}

func (c *crowd) settle(o *owner, uses []bucket.Use) {
	if err := c.store.Settle(c.t.Context(), uses); err != nil {
		c.t.Fatal(err)
	}
	if len(uses) > 0 {
		o.s.PermitFreed()
	}
}

// ready returns how many jobs have an intent, or are about to get one, and whose calls have not started.
func (c *crowd) ready() (n int) {
	for _, o := range c.owners {
		for q := range o.s.Queues.All() {
			for _, j := range q.Jobs {
				if phase, _ := q.PhaseOf(j.Seq); phase == schedule.JobNext {
					n++
				}
			}
		}
	}
	return n
}

// lets returns how many calls the limits let start within LongWait, computed only from the calls that started.
func (c *crowd) lets() int {
	soon, most := c.now.Add(limits.LongWait), 1<<20
	for i := range c.rules.Shared {
		l := &c.rules.Shared[i]
		n := 0
		switch l.Kind() {
		case bucket.KindRate:
			cost, tat := bucket.Micros(max(1, l.Cost.Usual())), bucket.Micros(0)
			unit := bucket.Micros(c.rules.Interval(*l.Rate).Duration().Microseconds())
			for _, at := range c.starts {
				tat = max(tat, at) + cost*unit
			}
			for saved := (bucket.Micros(l.Rate.Burst) - cost) * unit; max(tat, c.now)-saved <= soon; n++ {
				tat = max(tat, c.now) + cost*unit
			}
		case bucket.KindInFlight:
			n = int(l.InFlight) - c.running + int(l.InFlight*int64(limits.LongWait/c.took+1))
		case bucket.KindQuota, bucket.KindBudget:
			quota := l.Quota
			if l.Budget != nil {
				quota = &l.Budget.Quota
			}
			n = int(quota.Count)
			from, to := quota.Period(c.now)
			for _, at := range c.starts {
				if at >= from {
					n--
				}
			}
			if to <= soon {
				n += int(quota.Count)
			}
		}
		most = min(most, n)
	}
	return most
}

// playWidth plays one seed of jobs at shared limits.
func playWidth(t testing.TB, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 8))
	rules := bucket.Rules{Key: bucket.KeyLimits{
		Rate: bucket.Rate{Count: 1 + r.Int64N(1000), Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 1 + r.Int64N(8),
	}}
	if r.IntN(3) > 0 {
		per := []time.Duration{time.Second, 10 * time.Second, time.Minute}[r.IntN(3)]
		rate := bucket.Rate{Count: 1 + r.Int64N(60), Per: per, Burst: 1}
		if r.IntN(2) == 0 {
			rate.Burst = 1 + r.Int64N(rate.Count)
		}
		account := bucket.Limit{Name: "account", Rate: &rate}
		if r.IntN(3) == 0 {
			account.Cost = ingest.Units(1 + r.Int64N(rate.Burst))
		}
		rules.Shared = append(rules.Shared, account)
	}
	if r.IntN(2) == 0 {
		rules.Shared = append(rules.Shared, bucket.Limit{Name: "concurrent", InFlight: 1 + r.Int64N(6)})
	}
	quota := bucket.Quota{Window: bucket.Fixed, Per: 5 * time.Second, Count: 1 + r.Int64N(40)}
	switch r.IntN(3) {
	case 0:
		rules.Shared = append(rules.Shared, bucket.Limit{Name: "calls", Quota: &quota})
	case 1:
		rules.Shared = append(rules.Shared, bucket.Limit{Name: "money", Budget: &bucket.Budget{Quota: quota, OnExhausted: bucket.Hold}})
	}
	if len(rules.Shared) == 0 {
		return
	}
	c := newCrowd(t, seed, 1, rules)
	c.took = []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}[r.IntN(3)]
	keys := 1 + r.IntN(60)
	worst := 0
	for range 8 {
		for range r.IntN(100) {
			c.submit(r.IntN(keys))
		}
		c.run(c.upTo(2*time.Second), func() {
			if over := c.ready() - c.lets() - len(rules.Shared); over > worst {
				worst = over
				t.Logf("at %s %d jobs are ready, and the limits let %d start", c.now.Time(), c.ready(), c.lets())
			}
		})
	}
	if worst > 0 {
		t.Errorf("up to %d jobs had an intent and could not start soon: %+v", worst, rules.Shared)
	}
}

// TestNoIntentBeyondTheLimits checks that no more jobs have intents than the limits let start within LongWait,
// plus one for each limit. That holds before anything was refused and while a quota or budget holds the api, and
// from the first call on.
func TestNoIntentBeyondTheLimits(t *testing.T) {
	for seed := range seeds.Of(300) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			playWidth(t, seed)
		})
	}
}

// TestSlowPreparationWidens checks that replicas count the grants of a longer time if it takes long to make a
// job ready, as on a slow disk. Otherwise few jobs would be ready, few granted, and fewer made ready.
func TestSlowPreparationWidens(t *testing.T) {
	rate := bucket.Rate{Count: 100, Per: time.Second, Burst: 1}
	c := newCrowd(t, 1, 2, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, Capacity: 10000, InFlight: 8},
		Shared: []bucket.Limit{{Name: "account", Rate: &rate}},
	})
	c.load = 500 * time.Millisecond
	for i := range 3000 {
		c.submit(i % 48)
	}
	c.run(10*time.Second, func() {})
	from := len(c.starts)
	c.run(10*time.Second, func() {})
	if n := len(c.starts) - from; n < 600 {
		t.Errorf("%d calls in 10 s, want 1000, and 600 at least", n)
	}
}

// TestSpentBudgetEndsManyAtOnce checks that jobs that a spent budget ends are made ready many at a time without
// a grant, also in a fleet.
func TestSpentBudgetEndsManyAtOnce(t *testing.T) {
	month := bucket.Quota{Window: bucket.Fixed, Per: 720 * time.Hour, Count: 1}
	c := newCrowd(t, 1, 2, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 100}, Capacity: 10000, InFlight: 8},
		Shared: []bucket.Limit{{Name: "money", Budget: &bucket.Budget{Quota: month, OnExhausted: bucket.DeadLetter}}},
	})
	const jobs = 2000
	for i := range jobs {
		c.submit(i % 100)
	}
	c.run(500*time.Millisecond, func() {})
	if len(c.starts) != 1 || c.buried != jobs-1 {
		t.Errorf("%d jobs were called and %d ended of %d", len(c.starts), c.buried, jobs)
	}
}

func (c *crowd) upTo(most time.Duration) time.Duration {
	return time.Duration(c.rnd.Int64N(int64(most)))
}

// TestReplicasShareTheWidth checks that the replicas at one limit together have hardly more intents than the limit lets
// start within LongWait, since each allows itself as many as it was granted lately, and one more. No replica waits for
// another's share, and the limit is used up.
func TestReplicasShareTheWidth(t *testing.T) {
	for _, perSecond := range []int64{2, 10, 40, 200} {
		for _, replicas := range []int{2, 3, 4} {
			t.Run(fmt.Sprintf("%d/s,%d", perSecond, replicas), func(t *testing.T) {
				rate := bucket.Rate{Count: perSecond, Per: time.Second, Burst: 1}
				c := newCrowd(t, uint64(perSecond), replicas, bucket.Rules{
					Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, Capacity: 10000, InFlight: 8},
					Shared: []bucket.Limit{{Name: "account", Rate: &rate}},
				})
				const keys, seconds = 48, 20
				for i := range int(perSecond) * (seconds + 5) {
					c.submit(i % keys)
				}
				looks, sum := 0, 0
				c.run(seconds*time.Second, func() {
					looks++
					sum += c.ready()
				})
				mean, most := float64(sum)/float64(looks), 1.3*float64(perSecond)*limits.LongWait.Seconds()+float64(replicas)
				if mean > most {
					t.Errorf("%.1f jobs were ready on an average, want %.1f at most", mean, most)
				}
				if n := len(c.starts); n < int(perSecond)*seconds*95/100-1 {
					t.Errorf("%d calls in %d s, want %d", n, seconds, perSecond*seconds)
				}
			})
		}
	}
}
