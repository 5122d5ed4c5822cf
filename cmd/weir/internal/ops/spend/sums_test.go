package spend

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

var begun = time.Date(2026, time.January, 2, 0, 0, 0, 0, time.UTC)

func configOf(t testing.TB, yaml string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(yaml), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tenants is a configuration with two apis of one account, budgets with every kind of window, and tenants.
const tenants = `
accounts:
  acme: {limits: [{name: calls, quota: 9/4h, window: sliding}, {name: all, budget: 90/day, tz: Asia/Tokyo}]}
apis:
  pay: {url: https://a, account: acme, price: 0.50, key: {from: subject, tenant_until: ":"}, bucket: {rate: 1/s, capacity: 1}, limits: [{name: pace, rate: 60/min}, {name: day, quota: 10/day}, {name: spend, budget: 5/day, tz: Asia/Kathmandu}, {name: slide, budget: 5/5h, window: sliding}]}
  sms: {url: https://a, account: acme, price: 0.50, bucket: {rate: 1/s, capacity: 1}, limits: [{name: spend, budget: 90/month}, {name: short, budget: 2/7m, window: fixed}, {name: units, quota: 9/3h, window: sliding}]}
`

// book returns a ledger in memory: random records of some days up to now, in the order in which they were stored.
func book(r *rand.Rand, n int) (records []*ledger.Record, now time.Time) {
	at := begun.Add(23*time.Hour + time.Duration(r.Int64N(int64(time.Hour))))
	limits := map[string][]string{"pay": {"pace", "day", "spend", "slide"}, "sms": {"spend", "short", "units"}, "gone": {"spend"}}
	for api := range limits {
		limits[api] = append(limits[api], "acme/calls", "acme/all")
	}
	for i := range n {
		if at = at.Add(time.Duration(r.ExpFloat64() * float64(4*dayLong) / float64(n))); r.IntN(50) == 0 {
			at = at.Truncate(time.Minute) // the beginning of a span, and often of a day
		}
		c := &ledger.Record{
			API: []string{"pay", "sms", "gone"}[r.IntN(3)], Key: []string{"a:1", "a:2", "b.x:1", "b.x", "c.9"}[r.IntN(5)], At: uint64(i + 1), //nolint:gosec // small
			Started: at, Planned: at, Ended: at.Add(time.Duration(r.Int64N(int64(time.Minute)))), Sent: true, Call: 1 + r.IntN(3),
			Price: ledger.Money(r.Int64N(3_000_000)), Outcome: []string{ledger.Done, "retry", ledger.PushedBack, "unknown"}[r.IntN(4)],
			Billed: []deadletter.Billed{deadletter.BilledYes, deadletter.NotBilled, deadletter.BilledUnknown}[r.IntN(3)],
		}
		c.Stored = c.Ended.Add(time.Millisecond)
		switch r.IntN(8) {
		case 0: // left behind by a former process
			c.Planned = time.Time{}
		case 3: // the same, and the next process began days later
			c.Planned, c.Started = time.Time{}, at.Add(-time.Duration(r.Int64N(int64(3*dayLong))))
		case 4: // an inquiry
			c.Inquiry, c.Outcome, c.Price = "processed", ledger.Asked, "0.00"
		case 1: // refused before it was sent
			c.Sent, c.Price, c.Billed = false, "0.00", deadletter.NotBilled
		case 2:
			c.Usage = map[string]int64{"tokens": r.Int64N(1000), "pages": 1}
		case 5: // the end of an operation
			c.Polled = true
		case 6: // a job that got the answer of an equal one
			c.Sent, c.Outcome, c.Price, c.Billed, c.Saved = false, ledger.Reused, "0.00", deadletter.NotBilled, []string{"", "0.50"}[r.IntN(2)]
		}
		if of := limits[c.API]; r.IntN(4) > 0 {
			c.Limits = of[r.IntN(len(of)):]
			for range c.Limits[:r.IntN(len(c.Limits)+1)] { // what was settled, of some or all
				c.Costs = append(c.Costs, r.Int64N(2_000_000))
				c.Reserved = append(c.Reserved, 1)
			}
		}
		records = append(records, c)
	}
	slices.SortStableFunc(records, func(a, b *ledger.Record) int { return a.Stored.Compare(b.Stored) })
	return records, records[n-1].Stored
}

// readAll adds up records one by one, as Of does.
func readAll(records []*ledger.Record, o Options, from, budgets time.Time, grain func(dayNumber) time.Duration) *Account {
	o.Since = from
	a := newAdder(o.orDefault())
	a.openBudgets()
	for _, b := range a.account.Budgets {
		b.From = latest(floor(b.From, grain), budgets)
	}
	for _, r := range records {
		a.add(r)
	}
	a.conclude()
	return a.account
}

// moneyOf returns the money in an account as text.
func moneyOf(a *Account) string {
	type line struct {
		Spent, InDoubt string
		Usage          map[string]int64
		Reused         int64
		Saved          string
		Groups         []*Group
		Budgets        []string
	}
	l := line{a.Spent, a.InDoubt, a.Usage, a.Reused, a.Saved, a.Groups, nil}
	for _, b := range a.Budgets {
		l.Budgets = append(l.Budgets, b.API+"/"+b.Limit+" "+b.Spent+" "+b.InDoubt)
	}
	text, _ := json.Marshal(l)
	return string(text)
}

// TestSumsAreTheLedgers checks that an account agrees with its records from the time on that it names: whatever was
// called, while the ledger is being read, when it is whole, and after old records were removed.
func TestSumsAreTheLedgers(t *testing.T) {
	t.Parallel()
	c := configOf(t, tenants)
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		records, now := book(r, 400)
		s := NewSums(1 << 30)
		split := r.IntN(len(records)) // earlier ones are read in the background, newest first
		s.Begin(records[max(split-1, 0)].Stored)
		older, newer := records[:split], records[split:]
		kept := records
		check := func(when string) {
			t.Helper()
			for _, o := range []Options{
				{},
				{By: ByDay},
				{By: ByKey},
				{By: ByTenant, Since: now.Add(-50 * time.Hour)},
				{By: ByKey, API: "pay", Since: now.Add(-time.Duration(r.Int64N(int64(5 * dayLong))))},
				{By: ByAPI, Since: now.Add(-time.Duration(r.Int64N(int64(5 * dayLong))))},
				{By: ByTenant, API: "sms", Since: begun},
			} {
				o.Now, o.Config = now, c
				got := s.Account(o)
				if asked := o.orDefault().Since; got.Since.After(asked) || asked.Sub(got.Since) > quarterLong {
					t.Fatalf("seed %d, %s: asked since %s, it counts since %s", seed, when, asked, got.Since)
				}
				want := readAll(kept, o, latest(got.Since, got.Begins), s.Since(now), s.grain)
				if moneyOf(got) != moneyOf(want) {
					t.Fatalf("seed %d, %s, %s %s since %s (complete %s):\n got %s\nwant %s", seed, when, o.By, o.API, got.Since, got.Begins, moneyOf(got), moneyOf(want))
				}
			}
		}
		for len(older)+len(newer) > 0 {
			if len(newer) > 0 && (len(older) == 0 || r.IntN(2) == 0) {
				s.Add(newer[0])
				newer = newer[1:]
			} else {
				last := older[len(older)-1]
				s.Add(last)
				s.Reached(last.Stored)
				older = older[:len(older)-1]
			}
			if r.IntN(100) == 0 && len(newer) == 0 {
				check("while it is read")
			}
		}
		s.Complete()
		check("when it is read")
		if a := s.Account(Options{Now: now, Since: begun}); !a.Begins.IsZero() || a.Reading {
			t.Fatalf("seed %d: whole sums say that they begin at %s", seed, a.Begins)
		}
		for len(kept) > 100 {
			kept = kept[1+r.IntN(100):]
			s.Trim(kept[0].Stored)
			check("when old records have gone")
		}
		if a := s.Account(Options{Now: now, Since: begun}); a.Begins.Sub(kept[0].Stored) > quarterLong+late || a.Reading {
			t.Fatalf("seed %d: the ledger begins at %s, the sums at %s", seed, kept[0].Stored, a.Begins)
		}
	}
}

// TestUseIsTheLedgers checks that the use of limits in the sums is what each record took, at its time.
func TestUseIsTheLedgers(t *testing.T) {
	t.Parallel()
	c := configOf(t, tenants)
	for seed := range uint64(60) {
		records, now := book(rand.New(rand.NewPCG(seed, 2)), 400)
		s := NewSums(1 << 30)
		for _, r := range records {
			s.Add(r)
		}
		s.Complete()
		for i := range c.APIs {
			api := &c.APIs[i]
			got, want := s.Use(api, now), newUse(api, now)
			for _, r := range records {
				want.addRecord(r)
			}
			want.conclude()
			requireUse(t, got, want)
		}
	}
}

// TestUnfinishedUse checks that while the ledger is being read, the use of limits is complete from the time on that it
// names.
func TestUnfinishedUse(t *testing.T) {
	t.Parallel()
	c := configOf(t, tenants)
	for seed := range uint64(20) {
		records, now := book(rand.New(rand.NewPCG(seed, 3)), 400)
		s := NewSums(1 << 30)
		s.Begin(now)
		for _, r := range slices.Backward(records[len(records)-60:]) {
			s.Add(r)
			s.Reached(r.Stored)
		}
		for i := range c.APIs {
			api := &c.APIs[i]
			got, want := s.Use(api, now), newUse(api, now)
			if !got.Reading || !got.Begins.After(records[len(records)-60].Stored) {
				t.Fatalf("seed %d: it counts since %s; reading: %t", seed, got.Begins, got.Reading)
			}
			for _, r := range records {
				if !limitstate.ChargedAt(r).Time().Before(got.Begins) {
					want.addRecord(r)
				}
			}
			want.conclude()
			want.Begins, want.Reading = got.Begins, true
			requireUse(t, got, want)
		}
	}
}

func requireUse(t *testing.T, got, want *Use) {
	t.Helper()
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		t.Fatalf("the use is\n%s, want\n%s", a, b)
	}
}

// TestLateChargesAreAwaited checks a call that a former process left behind, which counts at a later time than its
// record was stored. Sums that lack the record do not claim to have the minute in which the call counts.
func TestLateChargesAreAwaited(t *testing.T) {
	t.Parallel()
	noon := begun.Add(12 * time.Hour)
	left := &ledger.Record{API: "pay", Started: noon.Add(-3 * time.Second), Stored: noon.Add(-2 * time.Second), Outcome: "unknown"}
	counts := limitstate.ChargedAt(left).Time()
	s := NewSums(1 << 30)
	s.Begin(noon.Add(time.Hour))
	s.Reached(left.Stored.Add(time.Second))
	if since := s.Since(noon.Add(time.Hour)); !since.After(counts) {
		t.Errorf("everything is claimed since %s, and a call counts at %s", since, counts)
	}
}

// addRecord adds what one call took, at its exact time.
func (u *Use) addRecord(r *ledger.Record) {
	for _, l := range u.Limits {
		if units, in := r.Took(l.limit); in && (l.limit.Account != "" || r.API == u.API) {
			u.add(l.Limit, limitstate.ChargedAt(r).Time(), taken{units: units, priced: units})
		}
	}
}

// TestSumsAreBounded checks that sums take no more memory than allowed, give up the least important first, say so, and
// lose no money.
func TestSumsAreBounded(t *testing.T) {
	t.Parallel()
	c := configOf(t, tenants)
	days, keys := 5, 300
	var records []*ledger.Record
	for i := range days * 4000 {
		at := begun.Add(time.Duration(i) * dayLong / 4000)
		records = append(records, &ledger.Record{API: "pay", Key: fmt.Sprint("key-", i%keys), Started: at, Planned: at, Stored: at, Sent: true, Price: "0.01", Billed: deadletter.BilledYes, Limits: []string{"spend"}})
	}
	now := records[len(records)-1].Stored
	states := map[string]bool{}
	for _, most := range []int{1 << 30, 2 << 20, 1 << 20, 500 << 10, 100 << 10, 30 << 10} {
		s := NewSums(most)
		for _, r := range records {
			if s.Add(r); s.bytes > most {
				t.Fatalf("of %d bytes %d are taken", most, s.bytes)
			}
		}
		s.Complete()
		all, apart := s.Account(Options{Now: now, Since: begun, Config: c}), s.Account(Options{Now: now, Since: begun, By: ByKey, Config: c})
		from := latest(all.Since, all.Begins)
		if want := readAll(records, Options{Now: now, Config: c}, from, s.Since(now), s.grain); all.Spent != want.Spent || all.Budgets[0].Spent != want.Budgets[0].Spent {
			t.Errorf("with %d bytes %s was spent since %s, want %s; of the budget %s, want %s", most, all.Spent, from, want.Spent, all.Budgets[0].Spent, want.Budgets[0].Spent)
		}
		if apart.Spent != all.Spent {
			t.Errorf("with %d bytes all keys spent %s, and all apis %s", most, apart.Spent, all.Spent)
		}
		keyless := slices.ContainsFunc(apart.Groups, func(g *Group) bool { return g.Key == "" })
		if keyless != apart.KeysSince.After(apart.Since) {
			t.Errorf("with %d bytes calls without a key are listed: %t; keys since %s", most, keyless, apart.KeysSince)
		}
		states[fmt.Sprint(s.merged == noDay, keyless, s.forgotten == noDay)] = true
		if forgets := s.forgotten != noDay; forgets != !all.Begins.IsZero() || forgets && !all.Begins.Equal((s.forgotten+1).begin()) {
			t.Errorf("with %d bytes days up to %d are forgotten, and the sums begin at %s", most, s.forgotten, all.Begins)
		}
		for number, d := range s.days {
			if quarters := int(dayLong / quarterLong); number <= s.coarse && (len(d.calls) > quarters || len(d.limits) > quarters) {
				t.Errorf("with %d bytes a day has %d and %d sums of minutes", most, len(d.calls), len(d.limits))
			}
		}
		counted := s.bytes
		for len(s.days) > 0 {
			oldest, _ := s.oldest(noDay)
			s.forget(oldest)
		}
		if s.bytes != 0 {
			t.Errorf("of %d bytes %d are left when every day is forgotten", counted, s.bytes)
		}
	}
	if len(states) < 4 {
		t.Errorf("only these were seen: %v", slices.Sorted(maps.Keys(states)))
	}
}

// TestSumsCountTheirMemory checks that sums take no more memory than they count.
func TestSumsCountTheirMemory(t *testing.T) {
	s := NewSums(1 << 40)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	used := []map[string]int64{nil, {"tokens": 1}, {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "i": 9}}
	before := heap()
	for i := range 100_000 {
		at := begun.Add(time.Duration(i) * time.Second)
		s.Add(&ledger.Record{API: "pay", Key: fmt.Sprintf("customer-%06d", i%50_000), Started: at, Planned: at, Stored: at, Sent: true, Price: "0.01", Billed: deadletter.BilledYes, Limits: []string{"spend"}, Usage: used[i%3]})
	}
	if took := heap() - before; took > uint64(s.bytes) { //nolint:gosec // positive
		t.Errorf("%d bytes are counted, %d are taken", s.bytes, took)
	}
	runtime.KeepAlive(s)
}

// TestMissingIsTold checks that unreadable records are reported in the periods that they may belong to.
func TestMissingIsTold(t *testing.T) {
	t.Parallel()
	s := NewSums(1 << 30)
	s.Begin(begun)
	s.Missing(3, begun.Add(30*time.Hour))
	s.Complete()
	for since, want := range map[time.Time]int{begun: 3, begun.Add(31 * time.Hour): 3, begun.Add(48 * time.Hour): 0} {
		if a := s.Account(Options{Now: begun.Add(50 * time.Hour), Since: since}); a.Unreadable != want {
			t.Errorf("since %s %d records are missing, want %d", since, a.Unreadable, want)
		}
	}
}

// TestTrimmedSumsStayTrimmed checks that an older state of the ledger, from another question, brings nothing back.
func TestTrimmedSumsStayTrimmed(t *testing.T) {
	t.Parallel()
	s := NewSums(1 << 30)
	for i := range 3 {
		at := begun.AddDate(0, 0, i)
		s.Add(&ledger.Record{API: "pay", Started: at, Planned: at, Stored: at, Billed: deadletter.BilledYes, Price: "1.00"})
	}
	s.Complete()
	now := begun.AddDate(0, 0, 2)
	s.Trim(now.Add(-time.Hour))
	a := s.Account(Options{Now: now, Since: begun})
	s.Trim(begun.Add(time.Hour))
	if b := s.Account(Options{Now: now, Since: begun}); a.Spent != "1.00" || moneyOf(a) != moneyOf(b) || !a.Begins.Equal(b.Begins) {
		t.Errorf("%s since %s, and then %s since %s", moneyOf(a), a.Begins, moneyOf(b), b.Begins)
	}
}

// TestUnbegunSumsKnowNothing checks that an account says that it counts nothing yet before anything was read.
func TestUnbegunSumsKnowNothing(t *testing.T) {
	t.Parallel()
	a := NewSums(1 << 30).Account(Options{Now: begun.Add(time.Hour)})
	if !a.Reading || a.Begins.Before(begun.Add(time.Hour)) || !a.Unfinished() || a.Spent != "0.00" {
		t.Errorf("%+v", a)
	}
}

// TestLimitKeepsTheNewestDays checks that a limited list of days has the newest days, in their order, and that other
// lists have the dearest groups. The account says how many groups there are.
func TestLimitKeepsTheNewestDays(t *testing.T) {
	t.Parallel()
	s := NewSums(1 << 30)
	for ago := range 4 {
		at := begun.AddDate(0, 0, ago)
		s.Add(&ledger.Record{API: "pay", Key: fmt.Sprint("k", ago), Started: at, Stored: at, Billed: deadletter.BilledYes, Price: ledger.Money(int64(cmp.Or(ago, 9)) * 1e6)})
	}
	s.Complete()
	now := begun.AddDate(0, 0, 3)
	if a := s.Account(Options{Now: now, By: ByDay, Limit: 2}); a.Lines != 4 || len(a.Groups) != 2 || a.Groups[0].Day != "2026-01-04" || a.Groups[1].Day != "2026-01-05" {
		t.Errorf("%d days, of which are listed %v", a.Lines, moneyOf(a))
	}
	if a := s.Account(Options{Now: now, Since: begun, By: ByKey, Limit: 2}); a.Lines != 4 || len(a.Groups) != 2 || a.Groups[0].Key != "k0" || a.Groups[1].Key != "k3" || a.Spent != "15.00" {
		t.Errorf("%d keys, of which are listed %v", a.Lines, moneyOf(a))
	}
}
