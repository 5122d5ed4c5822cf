package storetest

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
)

// scene plays a plan in virtual time. The store and its callers read a wall clock, which is true time plus a step. The
// step only falls. Arrivals are stamped in true time.
type scene struct {
	plan
	t      testing.TB
	store  Store
	clock  Clock
	rng    *rand.Rand
	true   bucket.Micros
	step   bucket.Micros
	seen   bucket.Micros // the latest time that the store has read
	events events
	calls  []call
	held   [][]grant // by key, in the order of granting
	over   []charge
	eras   []era           // of the rules, the first from the start
	next   []bucket.Micros // by key: when it asks next
	waits  []bool          // by key: it was told to wait for a shared limit
	given  int             // grants so far
}

// call is a call that reached the api.
type call struct {
	at    int64 // true time, nanoseconds
	end   int64
	costs []int64 // what it really took
	grant
}

// charge is what a call took from a limit beyond its estimate.
type charge struct {
	at     bucket.Micros // when the store heard of it
	limit  int
	units  int64
	number int // its place in the order of granting: after all grants until then
}

// grant is a slot that a caller holds.
type grant struct {
	bucket.Grant
	key    int
	costs  []int64 // as asked
	number int     // in the order of granting, over all keys
	era    int     // the era in which it was given
}

func (g *grant) use() bucket.Use {
	return bucket.Use{Key: fmt.Sprint("key", g.key), Grant: g.Grant, Costs: g.costs}
}

// event is something that happens at a true time.
type event struct {
	at bucket.Micros
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	x := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return x
}

func newScene(t testing.TB, open Open, p plan, seed uint64) *scene {
	s := &scene{plan: p, t: t, true: Start, rng: rand.New(rand.NewPCG(seed, 1))}
	s.clock.now = Start
	s.store = open(t, p.rules, &s.clock)
	s.eras, s.held = []era{{p.rules, Start}}, make([][]grant, p.keys)
	s.next, s.waits = make([]bucket.Micros, p.keys), make([]bool, p.keys)
	return s
}

// most bounds the calls of a scene. A fast rate shows nothing more in a longer scene.
const most = 1500

func (s *scene) play() {
	s.askAll()
	for _, x := range s.turns {
		s.at(Start.Add(x.after), func() { s.turn(x.rules) })
	}
	end := Start.Add(s.length)
	for len(s.events) > 0 && len(s.calls) < most {
		e := heap.Pop(&s.events).(event)
		if e.at > end {
			return
		}
		s.true = max(s.true, e.at)
		s.clock.now = s.true + s.step
		e.do()
	}
}

func (s *scene) at(when bucket.Micros, do func()) { heap.Push(&s.events, event{when, do}) }

// chance returns true with a probability of percent.
func (s *scene) chance(percent int) bool { return s.rng.IntN(100) < percent }

// wall returns the true time at which the wall clock will show m, unless it is set again.
func (s *scene) wall(m bucket.Micros) bucket.Micros { return m - s.step }

func (s *scene) ask(k int) {
	if s.chance(s.adverse.pauses) {
		s.later(k, s.true+bucket.Micros(s.rng.Int64N(int64(s.length/time.Microsecond)/20+1)))
		return
	}
	costs := make([]int64, len(s.costs))
	for i, c := range s.costs {
		costs[i] = c
		if s.adverse != (adversity{}) {
			costs[i] = 1 + s.rng.Int64N(c)
		}
	}
	s.seen = max(s.seen, s.clock.now)
	ask := bucket.Ask{Key: fmt.Sprint("key", k), Limits: s.rules.Key, Costs: costs, Want: s.want, Horizon: s.horizon}
	if s.replicas > 0 {
		ask.Line, ask.Tenant, ask.Priority, ask.Service = s.line(k), tenantOf(k), s.priorityOf(k), bucket.Micros(1+s.rng.Int64N(2000))
	}
	got, err := s.store.Reserve(context.Background(), []bucket.Ask{ask})
	if err != nil {
		s.t.Fatal(err)
	}
	s.waits[k] = got[0].Wait.Limit != "" && got[0].Wait.Limit != bucket.OwnRate
	last := s.true
	for _, g := range got[0].Grants {
		last = max(last, s.wall(g.At))
		held := grant{g, k, costs, s.given, len(s.eras) - 1}
		s.given++
		s.held[k] = append(s.held[k], held)
		s.at(s.wall(g.At), func() { s.start(held) })
	}
	next := last
	if s.chance(s.adverse.eager) {
		next = s.true + 1
	}
	if w := got[0].Wait; w.Until > 0 {
		next = max(s.wall(w.Until), s.true+1)
	} else if w.Never || len(got[0].Grants) == 0 {
		s.t.Fatalf("no grant and no time to ask again: %+v", got[0])
	}
	s.later(k, next)
	// The clock is set back only here: a store remembers the latest time that it has read, and stores do not read the
	// clock equally often.
	if s.chance(s.adverse.clockBack) {
		s.step -= bucket.Micros(s.rng.Int64N(3_000_000))
		s.clock.now = s.true + s.step
	}
}

// line returns the Line of the replica that has a key. Unless the plan is frank, the line says that all keys of the
// replica wait, and more: the store keeps turns for keys that do not ask.
func (s *scene) line(key int) *bucket.Line {
	keys, all, asking := map[bucket.Waiting]int{}, 0, 0
	for k := key % s.replicas; k < s.keys; k += s.replicas {
		asks := k == key || s.next[k] <= s.true
		if s.frank && !asks && !s.waits[k] {
			continue
		}
		keys[bucket.Waiting{Tenant: tenantOf(k), Priority: s.priorityOf(k)}]++
		all++
		if asks {
			asking++
		}
	}
	l := &bucket.Line{Replica: fmt.Sprint("replica", key%s.replicas), More: key % 2, Held: s.chance(20)}
	if s.frank {
		l.More, l.Held = 0, asking == 1
	}
	for of, n := range keys {
		of.Keys = n
		l.Tenants = append(l.Tenants, of)
	}
	slices.SortFunc(l.Tenants, func(a, b bucket.Waiting) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Tenant, b.Tenant))
	})
	if s.prioritized {
		l.Keys, l.Weights = all, bucket.Weights{High: 5, Normal: 3, Low: 1}
	}
	return l
}

// priorityOf returns the priority of a key's jobs.
func (s *scene) priorityOf(key int) bucket.Priority {
	if !s.prioritized {
		return bucket.Normal
	}
	return bucket.Priorities[key%len(bucket.Priorities)]
}

func tenantOf(key int) string { return fmt.Sprint("tenant", key%3/2) }

// askAll makes every key ask now.
func (s *scene) askAll() {
	for k := range s.keys {
		s.later(k, s.true)
	}
}

// later makes a key ask at the time when. If the rules change before, the key asks at once.
func (s *scene) later(k int, when bucket.Micros) {
	era := len(s.eras)
	s.next[k] = when
	s.at(when, func() {
		if era == len(s.eras) {
			s.ask(k)
		}
	})
}

// start uses a grant whose slot was not missed. If the slot was missed, start returns the grant, sometimes with all
// later ones, newest first.
func (s *scene) start(g grant) {
	i := slices.IndexFunc(s.held[g.key], func(h grant) bool { return h.number == g.number })
	if i < 0 {
		return // it was returned
	}
	use := g.use()
	now := s.true + s.step
	if now < g.At { // the clock was set back: wait longer
		s.at(s.wall(g.At), func() { s.start(g) })
		return
	}
	if s.chance(s.adverse.misses) || now > g.At.Add(s.rules.Jitter) {
		from := i + 1
		if s.chance(50) {
			from = len(s.held[g.key])
		}
		for _, h := range slices.Backward(s.held[g.key][i:from]) {
			use = h.use()
			use.Returned = true
			s.settle(use)
		}
		s.held[g.key] = slices.Delete(s.held[g.key], i, from)
		return
	}
	s.held[g.key] = slices.Delete(s.held[g.key], i, i+1)
	late := s.rng.Int64N(int64(s.rules.Jitter)+1) * s.rng.Int64N(2)
	if s.chance(30) {
		late = int64(s.rules.Jitter)
	}
	c := call{at: int64(s.true)*1000 + late, costs: g.costs, grant: g}
	c.end = c.at + s.rng.Int64N(int64(s.service)+1)
	if s.chance(s.adverse.misestimates) {
		// Mostly fewer units than estimated: overages exceed the limits whatever a store does.
		c.costs, use.Actual = make([]int64, len(g.costs)), make([]int64, len(g.costs))
		for i, cost := range g.costs {
			c.costs[i] = cost
			if s.settles(i) {
				c.costs[i] = s.rng.Int64N(cost + 1)
			}
			if s.adverse.overages > 0 && s.chance(s.adverse.overages) {
				c.costs[i] = cost + 1 + s.rng.Int64N(2*cost)
			}
			use.Actual[i] = c.costs[i]
		}
	}
	if s.chance(s.adverse.reports) {
		use.Left = s.anyLeft()
	}
	s.calls = append(s.calls, c)
	if s.chance(s.adverse.unsettled) {
		return
	}
	s.at(bucket.Micros(c.end/1000+1), func() { s.settle(use) })
}

// anyLeft returns random answers about what is left of each limit, for random times.
func (s *scene) anyLeft() []bucket.Left {
	left := make([]bucket.Left, len(s.rules.Shared))
	for i := range left {
		left[i] = bucket.Left{Valid: s.chance(80), Units: s.rng.Int64N(60)}
		if s.chance(60) {
			left[i].Until = s.clock.now + bucket.Micros(s.rng.Int64N(40_000_000)-4_000_000)
			left[i].Least = left[i].Until - bucket.Micros(s.rng.Int64N(1_000_000))
		}
	}
	return left
}

// settles reports whether limit i gives back what calls did not use. A quota always does, a rate only if its cost
// settles.
func (s *scene) settles(i int) bool {
	l := s.rules.Shared[i]
	return l.Rate == nil || l.Cost.Settles()
}

func (s *scene) settle(u bucket.Use) {
	s.seen = max(s.seen, s.clock.now)
	for i, actual := range u.Actual {
		if more := actual - u.Costs[i]; more > 0 {
			s.over = append(s.over, charge{s.seen, i, more, s.given})
			s.given++
		}
	}
	if err := s.store.Settle(context.Background(), []bucket.Use{u}); err != nil {
		s.t.Fatal(err)
	}
}
