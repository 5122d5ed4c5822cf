package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/bucket"
)

// playMembers plays a random schedule, checks that no limit is exceeded in any window, and returns the answers.
func playMembers(t *testing.T, open OpenAccount, seed uint64) (answers []string) {
	rnd := rand.New(rand.NewPCG(seed, 62))
	shared := []bucket.Limit{
		sharedRate("rate", 5+rnd.Int64N(60), time.Second, 1+rnd.Int64N(4)),
		quota("minute", bucket.Quota{Count: 100 + rnd.Int64N(400), Window: bucket.Sliding, Per: time.Minute}),
		{Name: "running", InFlight: 2 + rnd.Int64N(6)},
	}
	own := make([][]bucket.Limit, 2+rnd.IntN(3))
	for i := range own {
		if rnd.IntN(2) == 0 {
			own[i] = append(own[i], sharedRate("own", 2+rnd.Int64N(20), time.Second, 1+rnd.Int64N(3)))
		}
		if rnd.IntN(3) == 0 {
			own[i] = append(own[i], bucket.Limit{Name: "open", InFlight: 1 + rnd.Int64N(3)})
		}
	}
	rules := inAccount(shared, own...)
	for i := range rules {
		rules[i].In.Weight, rules[i].In.Jitter, rules[i].Jitter = 1+rnd.Int64N(3), 5*time.Millisecond, 5*time.Millisecond
	}
	b := &members{T: t, open: open}
	b.lay(rules)
	arrivals := make([]map[string][]bucket.Arrival, len(rules))
	for i := range arrivals {
		arrivals[i] = map[string][]bucket.Arrival{}
	}
	type running struct {
		api int
		end bucket.Micros
		use bucket.Use
	}
	var calls []running
	costs := func(api int, c int64) []int64 {
		all := make([]int64, len(rules[api].Shared))
		for i := range all {
			if all[i] = 1; rules[api].Shared[i].Quota != nil {
				all[i] = c
			}
		}
		return all
	}
	for range 600 {
		b.clock.now += bucket.Micros(rnd.Int64N(30_000))
		calls = slices.DeleteFunc(calls, func(c running) bool {
			if c.end <= b.clock.now {
				b.settle(c.api, c.use)
			}
			return c.end <= b.clock.now
		})
		api, cost := rnd.IntN(len(rules)), 1+rnd.Int64N(5)
		r := b.apis[api]
		if r.at > b.clock.now && rnd.IntN(4) > 0 {
			continue
		}
		r.line.API, r.line.Weight, r.line.Tenants[0].Keys = rules[api].In.API, rules[api].In.Weight, 1+rnd.IntN(3)
		got, err := b.stores[api].Reserve(context.Background(), []bucket.Ask{{
			Key: fmt.Sprint("k", rnd.IntN(3)), Limits: rules[api].Key, Want: 1, Costs: costs(api, cost), Horizon: 4 * time.Millisecond, Line: &r.line,
			Service: bucket.Micros(1_000_000 / shared[0].Rate.Count),
		}})
		if err != nil {
			t.Fatal(err)
		}
		a := got[0]
		r.at = b.clock.now + 1
		if len(a.Grants) == 0 {
			r.at = a.Wait.Until
			answers = append(answers, fmt.Sprintf("%d with %d waits for %s until %d", api, a.Part, a.Wait.Limit, a.Wait.Until))
			continue
		}
		g := a.Grants[0]
		answers = append(answers, fmt.Sprintf("%d with %d at %d", api, a.Part, g.At))
		u := bucket.Use{Grant: g, Costs: costs(api, cost)}
		if rnd.IntN(8) == 0 {
			u.Returned = true
			b.settle(api, u)
			continue
		}
		late := bucket.Micros(rnd.Int64N(5001))
		c := running{api, g.At + late + bucket.Micros(rnd.Int64N(300_000)), u}
		for i := range rules[api].Shared {
			l := &rules[api].Shared[i]
			arrivals[api][l.Name] = append(arrivals[api][l.Name], bucket.Arrival{At: int64(g.At+late) * 1000, End: int64(c.end) * 1000, Cost: u.Costs[i]})
		}
		calls = append(calls, c)
	}
	for api := range rules {
		for i := range rules[api].Shared {
			l := &rules[api].Shared[i]
			seen := arrivals[api][l.Name]
			if l.Account != "" {
				if api > 0 {
					continue
				}
				for other := 1; other < len(rules); other++ {
					seen = append(seen, arrivals[other][l.Name]...)
				}
			}
			if v := bucket.Check(seen, bucket.Expectation{Limit: *l, Jitter: 5*time.Millisecond + time.Microsecond}); v.Outcome == bucket.Fail {
				t.Errorf("%s of %s: %s", l.Name, rules[api].In.API, v)
			}
		}
	}
	return answers
}

// InMemory opens the stores of one account's apis in memory, with their pool.
func InMemory(t testing.TB, rules []bucket.Rules, clock *Clock) (stores []Store) {
	pools := &bucket.Pools{}
	pool, err := bucket.NewMemory(rules[0].Pool(), clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	pools.Add(rules[0].In.Account, pool)
	for i := range rules {
		m, err := bucket.NewMember(rules[i], pools, clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, m)
	}
	return stores
}
