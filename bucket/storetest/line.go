package storetest

import (
	"context"
	"fmt"
	"time"

	"weir/bucket"
)

// lineTests are about replicas that take turns. In each test some replicas ask again when they were told to.
var lineTests = []test{
	{"two replicas alternate", alternate},
	{"a replica gets as much as it has keys", byKeys},
	{"a replica gets as much as it has of each tenant", byTenants},
	{"a replica gets as much as its priorities weigh", byPriorities},
	{"a priority gets no more by having more tenants", byPrioritiesOfTenants},
	{"a replica that dies gives up its turn within a second", diesInTurn},
	{"what is free is kept for no other replica", freeForAll},
	{"a dear call waits for no cheap ones of other replicas", dearFirst},
	{"what a dear call waits for is named", dearIsNamed},
	{"what a dear call waits for is not kept for a replica that is gone", dearIsGone},
	{"keys that wait for a new day have no part of today's turns", waitForTheDay},
	{"permits go round", permitsGoRound},
	{"an ask without a line waits for no turn", outOfTurn},
	{"hundreds of replicas that come and go hold nothing up", manyReplicas},
}

// asker is a replica of a test. Every ask is for the next of its keys.
type asker struct {
	line bucket.Line
	cost int64
	at   bucket.Micros // when it asks next
	dead bool
	got  []bucket.Micros
	next int // key
}

func replicaOf(name string, tenants ...bucket.Waiting) *asker {
	return &asker{line: bucket.Line{Replica: name, Tenants: tenants}, cost: 1}
}

func waiting(tenant string, keys int) bucket.Waiting {
	return bucket.Waiting{Tenant: tenant, Keys: keys}
}

func waitingAs(p bucket.Priority, tenant string, keys int) bucket.Waiting {
	return bucket.Waiting{Tenant: tenant, Priority: p, Keys: keys}
}

// take makes a replica ask for one slot now, for the next of its keys.
func (b *table) take(r *asker) bucket.Answer {
	r.next++
	ask := bucket.Ask{
		Key: fmt.Sprintf("%s.%d", r.line.Replica, r.next%16), Line: &r.line, Service: bucket.Micros(r.cost * 100_000), Horizon: 5 * time.Millisecond,
		Costs: make([]int64, len(b.rules.Shared)),
	}
	if len(r.line.Tenants) > 0 {
		ask.Tenant, ask.Priority = r.line.Tenants[0].Tenant, r.line.Tenants[0].Priority
	}
	for i := range ask.Costs {
		ask.Costs[i] = r.cost
	}
	a := b.ask(ask)
	if len(a.Grants) > 0 {
		r.got, b.last = append(r.got, a.Grants[0].At), a.Grants[0].Serial
		r.at = b.clock.now + 1
	} else {
		r.at = a.Wait.Until
	}
	return a
}

// play runs replicas for a time d. Each replica asks when it was told to.
func (b *table) play(d time.Duration, replicas ...*asker) {
	for end := b.clock.now.Add(d); ; {
		var first *asker
		for _, r := range replicas {
			if r.at = max(r.at, b.clock.now); !r.dead && (first == nil || r.at < first.at) {
				first = r
			}
		}
		if first == nil || first.at > end {
			b.clock.now = end
			return
		}
		b.clock.now = first.at
		b.take(first)
	}
}

func (b *table) expectCalls(r *asker, least, most int) {
	b.Helper()
	if n := len(r.got); n < least || n > most {
		b.Errorf("%s was granted %d slots, want %d to %d", r.line.Replica, n, least, most)
	}
}

func tenth() bucket.Limit { return sharedRate("account", 10, time.Second, 1) }

func alternate(b *table) {
	b.lay(only(tenth()))
	one, other := replicaOf("one", waiting("", 1)), replicaOf("other", waiting("", 1))
	b.play(10*time.Second, one, other)
	b.expectCalls(one, 49, 51)
	b.expectCalls(other, 49, 51)
	for i := 2; i < min(len(one.got), len(other.got)); i++ {
		if gap := one.got[i-1].Until(one.got[i]); gap > 300*time.Millisecond {
			b.Fatalf("one had no slot for %s", gap)
		}
	}
}

func byKeys(b *table) {
	b.lay(only(tenth()))
	many, few := replicaOf("many", waiting("", 9)), replicaOf("few", waiting("", 1))
	b.play(20*time.Second, many, few)
	b.expectCalls(many, 178, 182)
	b.expectCalls(few, 18, 22)
}

func byTenants(b *table) {
	b.lay(only(tenth()))
	// t has one key of four at the first replica; u is only there.
	first, second := replicaOf("first", waiting("t", 1), waiting("u", 5)), replicaOf("second", waiting("t", 3))
	b.play(40*time.Second, first, second)
	b.expectCalls(first, 246, 254) // u's half, and a quarter of t's
	b.expectCalls(second, 146, 154)
	if a := b.take(first); a.Elsewhere != 3 {
		b.Errorf("%d keys of t wait elsewhere, want 3", a.Elsewhere)
	}
	if a := b.take(second); a.Elsewhere != 1 {
		b.Errorf("%d keys of t wait elsewhere, want 1", a.Elsewhere)
	}
	second.dead = true
	b.play(2*time.Second, first)
	if a := b.take(first); a.Elsewhere != 0 {
		b.Errorf("%d keys of t wait at a replica that is dead", a.Elsewhere)
	}
}

// byPriorities has high jobs at one replica only, and low ones at both. With the default weights 16 of 17 calls are of
// high jobs. The rest is divided by the number of keys with low jobs.
func byPriorities(b *table) {
	b.lay(only(tenth()))
	urgent := replicaOf("urgent", waitingAs(bucket.High, "", 1), waitingAs(bucket.Low, "", 1))
	urgent.line.Keys = 1 // one key has both
	bulk := replicaOf("bulk", waitingAs(bucket.Low, "", 3))
	b.play(85*time.Second, urgent, bulk)
	b.expectCalls(urgent, 805, 818) // 16/17, and a quarter of 1/17
	b.expectCalls(bulk, 34, 43)
	if a := b.take(urgent); a.Whole != 1000 {
		b.Errorf("all have %d thousandths of the high jobs that the only replica with any has", a.Whole)
	}
	if a := b.take(bulk); a.Whole != 1333 || a.Elsewhere != 1 {
		b.Errorf("all have %d thousandths of the low jobs that the replica with three of four keys has, and %d keys are elsewhere", a.Whole, a.Elsewhere)
	}
}

// byPrioritiesOfTenants has normal jobs of one tenant at one replica, and low jobs of three tenants at another.
func byPrioritiesOfTenants(b *table) {
	b.lay(only(tenth()))
	one := replicaOf("one", waitingAs(bucket.Normal, "a", 1))
	other := replicaOf("other", waitingAs(bucket.Low, "a", 1), waitingAs(bucket.Low, "b", 1), waitingAs(bucket.Low, "c", 1))
	one.line.Weights, other.line.Weights = bucket.Weights{Normal: 3, Low: 2}, bucket.Weights{Normal: 3, Low: 2}
	b.play(50*time.Second, one, other)
	b.expectCalls(one, 297, 304)
	b.expectCalls(other, 197, 204)
}

func diesInTurn(b *table) {
	b.lay(only(sharedRate("account", 1, 10*time.Second, 1)))
	one, other := replicaOf("one", waiting("", 1)), replicaOf("other", waiting("", 1))
	b.play(45*time.Second, one, other)
	other.dead = true
	was := len(one.got)
	b.play(60*time.Second, one)
	if n := len(one.got) - was; n < 5 {
		b.Fatalf("after the other died one was granted %d slots in a minute", n)
	}
	for i := was; i < len(one.got); i++ {
		if gap := one.got[i-1].Until(one.got[i]); i > was && gap > 11*time.Second {
			b.Errorf("after the other died one had no slot for %s", gap)
		}
	}
}

func freeForAll(b *table) {
	q := bucket.Limit{Name: "daily", Quota: &bucket.Quota{Count: 20, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}}
	b.lay(only(q))
	one, other := replicaOf("one", waiting("", 4)), replicaOf("other", waiting("", 4))
	b.play(time.Second, one, other) // they use up the day
	if n := len(one.got) + len(other.got); n != 20 {
		b.Fatalf("%d calls were granted of a quota of 20", n)
	}
	b.clock.now = Start.Add(17 * time.Hour) // the next day
	for range 4 {
		if a := b.take(one); len(a.Grants) == 0 {
			b.Fatalf("with a whole quota left a replica must wait: %+v", a.Wait)
		}
	}
}

func dearFirst(b *table) {
	tokens := sharedRate("tokens", 20, time.Second, 20)
	tokens.Rate.Counts = bucket.ByTokens
	b.lay(only(tokens))
	cheap, dear := replicaOf("cheap", waiting("", 8)), replicaOf("dear", waiting("", 1))
	dear.cost = 20
	b.play(60*time.Second, cheap, dear)
	if units := 20 * len(dear.got); len(dear.got) < 5 || len(cheap.got) < 8*units*9/10 || len(cheap.got)+units < 1100 {
		b.Errorf("%d calls of the whole burst were granted beside %d of one unit", len(dear.got), len(cheap.got))
	}
}

// dearIsNamed has a replica wait for units that another replica's dear call needs. The wait must name the limit of
// these units. The replica must not wait for a permit, and must not wait at all if its call takes none of these units.
func dearIsNamed(b *table) {
	b.lay(only(bucket.Limit{Name: "calls", InFlight: 100}, sharedRate("tokens", 100, time.Second, 50)))
	dear, cheap := replicaOf("dear", waiting("", 1)), replicaOf("cheap", waiting("", 1))
	dear.cost = 50
	for range 50 {
		b.take(cheap)
	}
	b.take(dear)
	b.clock.now += 200_000
	b.take(cheap) // the last before the dear call's turn
	if a := b.take(cheap); len(a.Grants) > 0 || a.Wait.Limit != "tokens" {
		b.Errorf("%+v", a)
	}
	cheap.cost = 0
	if a := b.take(cheap); len(a.Grants) != 1 {
		b.Errorf("a call without tokens waits: %+v", a)
	}
}

// dearIsGone has a replica ask for a dear call that must wait ten minutes, while no other replica takes turns. The
// replica then dies.
func dearIsGone(b *table) {
	b.lay(only(sharedRate("tokens", 6599, time.Minute, 6000)))
	dear, cheap := replicaOf("dear", waiting("", 1)), replicaOf("cheap", waiting("", 1))
	dear.cost = 6000
	b.take(dear)
	if a := b.take(dear); a.Wait.Until < b.clock.now.Add(time.Minute) {
		b.Fatalf("%+v", a)
	}
	b.play(20*time.Second, cheap)
	b.expectCalls(cheap, 185, 201)
}

// waitForTheDay has a replica whose calls cost more than is left today. Until the next day its keys do not count among
// the waiting keys of their tenant; then they do.
func waitForTheDay(b *table) {
	b.lay(only(quota("daily", bucket.Quota{Count: 20, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC})))
	dear, cheap := replicaOf("dear", waiting("x", 1)), replicaOf("cheap", waiting("x", 1))
	dear.cost = 15
	b.take(dear)
	midnight := b.take(dear).Wait.Until
	for _, c := range []struct {
		at   bucket.Micros
		keys int
	}{{b.clock.now + 10_000_000, 0}, {midnight, 1}} {
		b.clock.now = c.at
		if a := b.take(cheap); len(a.Grants) != 1 || a.Elsewhere != c.keys {
			b.Errorf("%d s before midnight: %+v, want %d keys elsewhere", (midnight-c.at)/1_000_000, a, c.keys)
		}
	}
}

func permitsGoRound(b *table) {
	b.lay(only(bucket.Limit{Name: "concurrent", InFlight: 1}))
	one, other := replicaOf("one", waiting("", 1)), replicaOf("other", waiting("", 1))
	for range 40 {
		b.play(20*time.Millisecond, one, other) // one of them is granted the permit
		caller := one
		if len(other.got) > 0 && (len(one.got) == 0 || other.got[len(other.got)-1] > one.got[len(one.got)-1]) {
			caller = other
		}
		b.settle(bucket.Use{Key: "k", Grant: bucket.Grant{Serial: b.last}})
		caller.at = b.clock.now // it knows at once that the permit is back
	}
	b.expectCalls(one, 19, 21)
	b.expectCalls(other, 19, 21)
}

func outOfTurn(b *table) {
	b.lay(only(tenth()))
	one, other := replicaOf("one", waiting("", 1)), replicaOf("other", waiting("", 1))
	b.play(time.Second, one, other)
	b.clock.now += 200_000 // past the next slot, and before the replicas are late
	one.at, other.at = b.clock.now, b.clock.now
	got, err := b.store.Reserve(context.Background(), []bucket.Ask{b.whole(bucket.Ask{Key: "inquiry"})})
	if err != nil || len(got[0].Grants) != 1 {
		b.Errorf("%+v, %v", got, err)
	}
}

func manyReplicas(b *table) {
	b.lay(only(tenth()))
	one := replicaOf("one", waiting("", 1))
	for i := range 200 {
		b.take(replicaOf(fmt.Sprint("gone", i), waiting(fmt.Sprint("tenant", i), 1)))
		b.clock.now += 1000
	}
	b.play(3*time.Second, one)
	b.expectCalls(one, 18, 31)
}
