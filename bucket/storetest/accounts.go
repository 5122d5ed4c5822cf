package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/bucket"
)

// OpenAccount returns an empty store for each of the rules. All stores read clock. The apis of the rules have one
// account.
type OpenAccount func(t testing.TB, rules []bucket.Rules, clock *Clock) []Store

// Accounts runs the tests of stores whose apis have one account. scenes is the number of random schedules.
func Accounts(t *testing.T, open OpenAccount, scenes int) {
	for _, c := range []struct {
		name string
		run  func(*members)
	}{
		{"two apis alternate at a rate", apisAlternate},
		{"apis get turns by their weights", apisByWeight},
		{"an api gets no more turns by having more keys, tenants or replicas", apisNotByKeys},
		{"an api that waits for a limit of its own keeps no slot from the others", ownLimitHoldsNone},
		{"replicas of an api take turns at its own limit beside a busy api", ownTurnsBesideBusy},
		{"an api that went away keeps no slot from the others", apiGone},
		{"a quota is counted over all apis", quotaOverAll},
		{"a budget is counted over all apis, and spent money buries jobs", budgetOverAll},
		{"permits are counted over all apis, and come back", permitsOverAll},
		{"what an account refuses takes nothing of an api's own limits", refusedTakesNothing},
		{"a call is settled in the account", settledInAccount},
		{"a shadow limit of an account holds none", shadowOfAccount},
		{"the account has its own headroom", headroomOfAccount},
		{"operations of two apis hold a slot each", operationsOfTwo},
		{"a lowered limit binds all apis at once", loweredBindsAll},
		{"an api that leaves its account settles there", leavesAccount},
		{"keys of one name in two apis are two", sameKeys},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(&members{T: t, open: open}) })
	}
	for seed := range uint64(scenes) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			playMembers(t, open, seed)
		})
	}
}

// AgreeOnAccounts plays the same random schedules with two kinds of stores. It checks that both give the apis of an
// account the same grants.
func AgreeOnAccounts(t *testing.T, one, other OpenAccount, scenes int) {
	for seed := range uint64(scenes) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			a, b := playMembers(t, one, seed), playMembers(t, other, seed)
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("answer %d: %s in one store, %s in the other", i, a[i], b[i])
				}
			}
			if len(a) != len(b) {
				t.Fatalf("%d answers in one store, %d in the other", len(a), len(b))
			}
		})
	}
}

// members are the stores of the apis of one account in a test.
type members struct {
	*testing.T
	open   OpenAccount
	clock  Clock
	rules  []bucket.Rules
	stores []Store
	apis   []*asker
}

// inAccount returns the rules of apis that share limits. own has the limits of each api alone.
func inAccount(shared []bucket.Limit, own ...[]bucket.Limit) []bucket.Rules {
	var names []string
	for i := range own {
		names = append(names, fmt.Sprint("api", i))
	}
	rules := make([]bucket.Rules, len(own))
	for i := range rules {
		rules[i] = only(slices.Clone(own[i])...)
		rules[i].In = &bucket.Membership{Account: "acme", API: names[i], APIs: names, Weight: 1}
		for _, l := range shared {
			l.Name, l.Account = "acme/"+l.Name, "acme"
			rules[i].Shared = append(rules[i].Shared, l)
		}
	}
	return rules
}

// lay opens the stores at Start. Each api has one replica, at which one key waits.
func (b *members) lay(rules []bucket.Rules) {
	b.Helper()
	b.clock.now, b.rules = Start, rules
	b.stores = b.open(b, rules, &b.clock)
	b.apis = nil
	for i := range rules {
		b.apis = append(b.apis, replicaOf(rules[i].In.API, waiting("", 1)))
	}
}

// ask makes an api ask for one slot. The ask has the line of replica r, unless r is nil.
func (b *members) ask(api int, cost int64, r *asker) bucket.Answer {
	b.Helper()
	a := bucket.Ask{
		Key: "k", Limits: b.rules[api].Key, Want: 1, Costs: slices.Repeat([]int64{cost}, len(b.rules[api].Shared)), Horizon: 4 * time.Millisecond,
		Service: bucket.Micros(cost * 100_000),
	}
	if r != nil {
		r.line.API, r.line.Weight = b.rules[api].In.API, b.rules[api].In.Weight
		a.Line = &r.line
	}
	got, err := b.stores[api].Reserve(context.Background(), []bucket.Ask{a})
	if err != nil {
		b.Fatal(err)
	}
	return got[0]
}

// play runs the replicas for a time d. Each replica asks when the store told it to. play returns the apis in the order
// of their slots.
func (b *members) play(d time.Duration) (order []int) {
	for end := b.clock.now.Add(d); ; {
		first := -1
		for i, r := range b.apis {
			if r.at = max(r.at, b.clock.now); !r.dead && (first < 0 || r.at < b.apis[first].at) {
				first = i
			}
		}
		if first < 0 || b.apis[first].at > end {
			b.clock.now = end
			return order
		}
		r := b.apis[first]
		b.clock.now = r.at
		if a := b.ask(first%len(b.rules), r.cost, r); len(a.Grants) > 0 {
			r.got, r.at = append(r.got, a.Grants[0].At), b.clock.now+1
			order = append(order, first)
		} else {
			r.at = a.Wait.Until
		}
	}
}

// left returns the grants that an api gets now, at most most of them.
func (b *members) left(api, most int) (grants []bucket.Grant) {
	for range most {
		a := b.ask(api, 1, nil)
		if len(a.Grants) == 0 {
			return grants
		}
		grants = append(grants, a.Grants...)
	}
	return grants
}

func (b *members) settle(api int, u bucket.Use) {
	b.Helper()
	u.Key = "k"
	if err := b.stores[api].Settle(context.Background(), []bucket.Use{u}); err != nil {
		b.Fatal(err)
	}
}

// apart returns the largest lead of one api over the other in any span, in slots. A slot of other counts for weight
// slots.
func apart(order []int, one, other int, weight int) int {
	low, high, lead := 0, 0, 0
	for _, api := range order {
		switch api {
		case one:
			lead++
		case other:
			lead -= weight
		}
		low, high = min(low, lead), max(high, lead)
	}
	return high - low
}

func apisAlternate(b *members) {
	b.lay(inAccount([]bucket.Limit{tenth()}, nil, nil))
	order := b.play(20 * time.Second)
	if n := apart(order[2:], 0, 1, 1); n > 1 || len(order) < 190 {
		b.Errorf("of %d slots one api had %d more in some span: %v", len(order), n, order)
	}
}

func apisByWeight(b *members) {
	rules := inAccount([]bucket.Limit{tenth()}, nil, nil)
	rules[0].In.Weight = 3
	b.lay(rules)
	order := b.play(40 * time.Second)
	if n := apart(order[4:], 0, 1, 3); n > 6 || len(order) < 380 || len(b.apis[1].got) < len(order)/4-2 {
		b.Errorf("of %d slots the light api had %d; they were %d apart", len(order), len(b.apis[1].got), n)
	}
}

func apisNotByKeys(b *members) {
	rules := inAccount([]bucket.Limit{tenth()}, nil, nil)
	b.lay(rules)
	b.apis[0].line.Tenants = []bucket.Waiting{waiting("a", 9), waiting("b", 3)}
	twin := replicaOf("twin", waiting("a", 5))
	b.apis = append(b.apis, twin) // of api0, by its place
	b.play(60 * time.Second)
	first, second := len(b.apis[0].got)+len(twin.got), len(b.apis[1].got)
	if first < second-6 || second < first-6 || first+second < 570 {
		b.Errorf("the api with two replicas and 17 keys had %d slots, the other %d", first, second)
	}
	if n := len(twin.got); n < first/6 || n > first/5 {
		b.Errorf("of its api's %d slots the second replica had %d", first, n)
	}
}

// ownLimitHoldsNone has an api with a slow limit of its own beside an api without such a limit.
func ownLimitHoldsNone(b *members) {
	b.lay(inAccount([]bucket.Limit{tenth()}, []bucket.Limit{sharedRate("slow", 1, 2*time.Second, 1)}, nil))
	b.play(40 * time.Second)
	if slow, fast := len(b.apis[0].got), len(b.apis[1].got); slow < 19 || fast < 370 {
		b.Errorf("the api with its own limit had %d slots, the other %d", slow, fast)
	}
}

// ownTurnsBesideBusy has two replicas of an api with a slow limit of its own. One has three keys, the other one key.
// Another api takes nearly all turns of the account.
func ownTurnsBesideBusy(b *members) {
	b.lay(inAccount([]bucket.Limit{tenth()}, []bucket.Limit{sharedRate("slow", 1, time.Second, 1)}, nil))
	b.apis[0].line.Tenants = []bucket.Waiting{waiting("a", 3)}
	twin := replicaOf("twin", waiting("a", 1))
	b.apis = append(b.apis, twin) // of api0, by its place
	b.play(80 * time.Second)
	if three, one := len(b.apis[0].got), len(twin.got); three < 55 || one < 17 || one > 21 {
		b.Errorf("the replica with three keys had %d slots of 80, the one with one key %d", three, one)
	}
	if n := len(b.apis[1].got); n < 700 {
		b.Errorf("the other api had %d slots", n)
	}
}

func apiGone(b *members) {
	b.lay(inAccount([]bucket.Limit{tenth()}, nil, nil))
	b.play(3 * time.Second)
	b.apis[0].dead = true
	was := len(b.apis[1].got)
	b.play(10 * time.Second)
	if n := len(b.apis[1].got) - was; n < 90 {
		b.Errorf("after the other api ended one had %d slots in 10 s", n)
	}
}

func quotaOverAll(b *members) {
	daily := quota("daily", bucket.Quota{Count: 10, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC})
	b.lay(inAccount([]bucket.Limit{daily}, nil, nil, nil))
	n := len(b.left(0, 4)) + len(b.left(1, 4)) + len(b.left(2, 4))
	if n != 10 {
		b.Errorf("%d calls were granted of a quota of 10", n)
	}
	if w := b.ask(0, 1, nil).Wait; w.Limit != "acme/daily" || w.Until < Start.Add(time.Hour) {
		b.Errorf("%+v", w)
	}
}

func budgetOverAll(b *members) {
	spend := bucket.Limit{Name: "spend", Budget: &bucket.Budget{
		Quota: bucket.Quota{Count: 10, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}, OnExhausted: bucket.DeadLetter,
	}}
	b.lay(inAccount([]bucket.Limit{spend}, nil, nil))
	if n := len(b.left(0, 6)) + len(b.left(1, 6)); n != 10 {
		b.Errorf("%d calls were granted of a budget of 10", n)
	}
	for api := range 2 {
		if w := b.ask(api, 1, nil).Wait; w.Exhausted != bucket.DeadLetter {
			b.Errorf("api %d: %+v", api, w)
		}
	}
}

func permitsOverAll(b *members) {
	b.lay(inAccount([]bucket.Limit{{Name: "concurrent", InFlight: 3}}, nil, []bucket.Limit{{Name: "own", InFlight: 2}}))
	first := b.left(0, 9)
	if len(first) != 3 || len(b.left(1, 9)) != 0 {
		b.Fatalf("%d calls run", len(first))
	}
	for _, g := range first {
		b.settle(0, bucket.Use{Grant: g})
	}
	second := b.left(1, 9)
	if len(second) != 2 || len(b.left(0, 9)) != 1 {
		b.Fatalf("%d calls of the second api run", len(second))
	}
	b.settle(1, bucket.Use{Grant: second[0]})
	b.settle(1, bucket.Use{Grant: second[0]}) // twice
	if n := len(b.left(0, 9)); n != 1 {
		b.Errorf("one permit came back, and %d were granted", n)
	}
}

func refusedTakesNothing(b *members) {
	own := quota("own", bucket.Quota{Count: 5, Window: bucket.Sliding, Per: time.Hour})
	b.lay(inAccount([]bucket.Limit{sharedRate("rate", 1, time.Second, 1)}, []bucket.Limit{own}, nil))
	b.left(1, 1)
	for range 20 {
		if a := b.ask(0, 1, nil); len(a.Grants) > 0 || a.Wait.Limit != "acme/rate" {
			b.Fatalf("%+v", a)
		}
	}
	n := 0
	for range 20 {
		b.clock.now = b.clock.now.Add(2 * time.Second)
		n += len(b.left(0, 1))
	}
	if n != 5 {
		b.Errorf("of its own quota of 5 the api had %d", n)
	}
	b.clock.now = b.clock.now.Add(2 * time.Second)
	if len(b.left(1, 1)) != 1 { // nor the other way round
		b.Error("what the api's own quota refused took a slot of the account")
	}
}

func settledInAccount(b *members) {
	tokens := quota("tokens", bucket.Quota{Count: 100, Window: bucket.Sliding, Per: time.Hour})
	b.lay(inAccount([]bucket.Limit{tokens}, nil, nil))
	a := b.ask(0, 60, nil)
	if len(a.Grants) != 1 || len(b.ask(1, 60, nil).Grants) != 0 {
		b.Fatal("60 and 60 of 100")
	}
	b.settle(0, bucket.Use{Grant: a.Grants[0], Costs: []int64{60}, Actual: []int64{30}})
	a = b.ask(1, 60, nil)
	if len(a.Grants) != 1 {
		b.Fatal("30 were used, and 60 of 100 are refused")
	}
	b.settle(1, bucket.Use{Grant: a.Grants[0], Costs: []int64{60}, Actual: []int64{95}})
	if len(b.ask(0, 1, nil).Grants) != 0 {
		b.Fatal("125 of 100 are used, and one more was granted")
	}
}

func shadowOfAccount(b *members) {
	l := sharedRate("rate", 1, time.Minute, 1)
	l.Shadow = true
	b.lay(inAccount([]bucket.Limit{l}, nil, nil))
	if n := len(b.left(0, 3)) + len(b.left(1, 3)); n != 6 {
		b.Errorf("%d of 6 were granted", n)
	}
	if h := b.stores[0].ShadowHolds()["acme/rate"]; h != 5 {
		b.Errorf("it would have held %d calls, want 5", h)
	}
}

func headroomOfAccount(b *members) {
	daily := quota("daily", bucket.Quota{Count: 100, Window: bucket.Sliding, Per: time.Hour})
	rules := inAccount([]bucket.Limit{daily}, []bucket.Limit{quota("own", bucket.Quota{Count: 60, Window: bucket.Sliding, Per: time.Hour})}, nil)
	for i := range rules {
		rules[i].In.Headroom, rules[i].Headroom = 10, 50
	}
	b.lay(rules)
	if own, rest := len(b.left(0, 200)), len(b.left(1, 200)); own != 30 || own+rest != 90 {
		b.Errorf("%d of the api's own quota were granted, %d of the account's", own, own+rest)
	}
}

func operationsOfTwo(b *members) {
	b.lay(inAccount([]bucket.Limit{{Name: "concurrent", InFlight: 4}}, nil, nil))
	for api := range 2 {
		b.settle(api, bucket.Use{Grant: bucket.Grant{Serial: -7}, Hold: time.Hour})
	}
	b.settle(0, bucket.Use{Grant: bucket.Grant{Serial: -7}, Hold: time.Hour}) // again
	if n := len(b.left(0, 9)); n != 2 {
		b.Errorf("beside two operations %d calls were granted of 4", n)
	}
	b.settle(0, bucket.Use{Grant: bucket.Grant{Serial: -7}})
	if n := len(b.left(1, 9)); n != 1 {
		b.Errorf("one operation ended, and %d calls were granted", n)
	}
}

func loweredBindsAll(b *members) {
	b.lay(inAccount([]bucket.Limit{quota("hourly", bucket.Quota{Count: 10, Window: bucket.Sliding, Per: time.Hour})}, nil, nil))
	b.left(0, 5)
	lower := inAccount([]bucket.Limit{quota("hourly", bucket.Quota{Count: 7, Window: bucket.Sliding, Per: time.Hour})}, nil, nil)
	if err := b.stores[0].Apply(lower[0]); err != nil {
		b.Fatal(err)
	}
	if err := b.stores[1].Apply(lower[1]); err != nil {
		b.Fatal(err)
	}
	if n := len(b.left(1, 9)) + len(b.left(0, 9)); n != 2 {
		b.Errorf("of 7, of which 5 were used, %d more were granted", n)
	}
}

func leavesAccount(b *members) {
	b.lay(inAccount([]bucket.Limit{quota("tokens", bucket.Quota{Count: 100, Window: bucket.Sliding, Per: time.Hour})}, nil, nil))
	a := b.ask(0, 50, nil)
	alone := only()
	if err := b.stores[0].Apply(alone); err != nil {
		b.Skip("without its account an api has another store: ", err)
	}
	b.rules[0] = alone
	if n := len(b.left(0, 300)); n != 300 {
		b.Errorf("alone it was granted %d of 300", n)
	}
	b.settle(0, bucket.Use{Grant: a.Grants[0], Costs: []int64{50}, Actual: []int64{90}})
	if n := len(b.left(1, 99)); n != 10 {
		b.Errorf("90 of 100 were used, and %d were granted", n)
	}
}

func sameKeys(b *members) {
	rules := inAccount([]bucket.Limit{sharedRate("rate", 1000, time.Second, 100)}, nil, nil)
	for i := range rules {
		rules[i].Key = keyRate(1, time.Minute, 1)
	}
	b.lay(rules)
	if len(b.left(0, 2)) != 1 || len(b.left(1, 2)) != 1 {
		b.Error("the key k of one api has used up that of the other")
	}
}
