package bucket

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reckoning simulates an api's limits over many lives of a process, and the ledger that outlives these. A call is
// granted, made and recorded. A process that dies leaves calls without a record. The next process records these calls
// before it corrects its limits.
type reckoning struct {
	t       fataler
	rng     *rand.Rand
	rules   Rules
	now     Micros
	m       *Memory
	all     []Arrival // calls that were made
	ledger  []recorded
	running []Grant
	stored  Snapshot
	written Snapshot // being stored
	note    accountNote
	begun   int      // number of records when this life began
	judged  bool     // this life has recorded the calls that the former life left
	lost    []Grant  // grants of calls that have no record yet
	former  *Account // nil after Correct
	forget  bool     // plants a bug: calls under way at a death are left out
}

type recorded struct {
	at     Micros
	former bool // written by a recovery
}

// accountNote is what the process stores of an account.
type accountNote struct {
	read    int
	account *Account
}

func newReckoning(t fataler, rules Rules, seed uint64) *reckoning {
	r := &reckoning{t: t, rng: rand.New(rand.NewPCG(seed, 3)), rules: rules, now: t0}
	r.note.account = NewAccount(rules)
	r.live()
	return r
}

// live begins a process, the first one or a later one.
func (r *reckoning) live() {
	m, err := NewMemory(r.rules, func() Micros { return r.now })
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	m.Restore(thereAndBack(r.t, r.stored))
	r.m, r.written, r.begun, r.judged = m, Snapshot{}, len(r.ledger), false
	for _, g := range r.running {
		if g.At <= r.now {
			r.lost = append(r.lost, g)
		}
	}
	r.running = nil
	r.former = r.copyOf(r.note.account)
	for _, c := range r.ledger[r.note.read:] {
		r.count(r.former, c.at)
	}
}

func (r *reckoning) copyOf(a *Account) (back *Account) {
	data, err := json.Marshal(a)
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return back
}

func (r *reckoning) count(a *Account, at Micros) {
	for i := range r.rules.Shared {
		a.Add(r.rules, r.rules.Shared[i].Name, at, 1)
	}
}

// judge records the calls that a former process left under way, and replaces the bounds by what was used.
func (r *reckoning) judge() {
	if r.former == nil {
		return
	}
	for _, g := range r.lost {
		if !r.forget {
			r.ledger = append(r.ledger, recorded{g.At, true})
		}
	}
	r.lost = nil
	for _, c := range r.ledger[r.begun:] {
		if c.former {
			r.count(r.former, c.at)
		}
	}
	r.advance()
	r.former.Forget(r.rules, r.now)
	r.m.Correct(r.former)
	r.former = nil
}

// advance updates the stored account to the ledger's end.
func (r *reckoning) advance() {
	a := r.copyOf(r.note.account)
	for _, c := range r.ledger[r.note.read:] {
		r.count(a, c.at)
	}
	a.Forget(r.rules, r.now)
	r.note = accountNote{len(r.ledger), a}
}

func (r *reckoning) ask() {
	got, err := r.m.Reserve(context.Background(), []Ask{{Key: "k", Limits: fast, Want: 1, Horizon: 10 * time.Millisecond}})
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	r.running = append(r.running, got[0].Grants...)
}

// end ends one running grant: its call is made in its slot, settled and recorded, or its slot is given back before.
func (r *reckoning) end() {
	if len(r.running) == 0 {
		return
	}
	g := r.running[0]
	r.running = r.running[1:]
	if g.At > r.now {
		_ = r.m.Settle(context.Background(), []Use{{Key: "k", Grant: g, Returned: true}})
		return
	}
	r.all = append(r.all, Arrival{At: int64(g.At) * 1000, End: int64(r.now+1) * 1000})
	_ = r.m.Settle(context.Background(), []Use{{Key: "k", Grant: g}})
	r.ledger = append(r.ledger, recorded{at: g.At})
}

func (r *reckoning) die() {
	for _, g := range r.running {
		if g.At <= r.now {
			r.all = append(r.all, Arrival{At: int64(g.At) * 1000, End: int64(r.now+1) * 1000})
		}
	}
	r.live()
}

func (r *reckoning) checkpoint(ahead time.Duration) {
	s := r.m.Checkpoint(ahead)
	r.stored = s
	r.m.Saved(s)
}

// accountLimits are limits of each kind that has periods.
var accountLimits = []Limit{
	{Name: "sliding", Quota: &Quota{Count: 300, Window: Sliding, Per: 20 * time.Second}},
	{Name: "large", Quota: &Quota{Count: 1500, Window: Sliding, Per: 90 * time.Second}},
	{Name: "fixed", Quota: &Quota{Count: 200, Window: Fixed, Per: 10 * time.Second}},
	{Name: "spend", Budget: &Budget{Quota: Quota{Count: 700, Window: Calendar, Unit: Hour, Zone: time.UTC}, OnExhausted: Hold}},
}

// run plays about a minute. Processes die at any moment, also before they have corrected anything.
func (r *reckoning) run(deaths int) (died int) {
	for range 8000 {
		r.now += Micros(r.rng.Int64N(16_000))
		switch p := r.rng.IntN(1000); {
		case p < deaths:
			r.die()
			died++
		case p < 25:
			r.written = r.m.Checkpoint(300 * time.Millisecond)
		case p < 65 && r.written.Until > 0:
			r.stored = r.written
			if r.rng.IntN(10) > 0 {
				r.m.Saved(r.stored)
			}
			r.written = Snapshot{}
		case p < 75:
			r.judge()
		case p < 80 && r.former == nil:
			r.advance()
		case p < 500:
			r.end()
		default:
			r.ask()
		}
	}
	return died
}

func quotasOf(t *rapid.T) Rules {
	rules := Rules{Key: fast, Lease: 300 * time.Millisecond}
	for _, l := range accountLimits {
		if rapid.Bool().Draw(t, l.Name) {
			rules.Shared = append(rules.Shared, l)
		}
	}
	return rules
}

// truth returns the units of the calls made within a limit's present period or window.
func (r *reckoning) truth(l *Limit) (used int64) {
	life, _ := r.rules.SlidingBounds(*l.quota())
	from, to := r.now-life+1, maxMicros
	if l.quota().Window != Sliding {
		from, to = l.quota().Period(r.now)
	}
	for _, a := range r.all {
		if at := Micros(a.At / 1000); at >= from && at < to {
			used++
		}
	}
	return used
}

// TestDeathsAreReckonedUp checks processes that die at any moment, and whose claims the ledger corrects. All lives
// together keep every limit, and in the end exactly the calls that were made count.
func TestDeathsAreReckonedUp(t *testing.T) {
	died, calls, over := 0, 0, int64(0)
	rapid.Check(t, func(t *rapid.T) {
		r := newReckoning(t, quotasOf(t), rapid.Uint64().Draw(t, "seed"))
		died += r.run(rapid.SampledFrom([]int{0, 3, 15}).Draw(t, "deaths in a thousand steps"))
		for _, l := range r.rules.Shared {
			if v := Check(r.all, Expectation{Limit: l}); v.Outcome != Pass {
				t.Fatalf("%s: %v", l.Name, v)
			}
		}
		calls += len(r.all)
		for len(r.running) > 0 {
			r.now += 16_000
			r.end()
		}
		r.checkpoint(300 * time.Millisecond)
		r.die()
		r.judge()
		a := r.m.Account()
		a.Forget(r.rules, r.now)
		for i := range r.rules.Shared {
			l := &r.rules.Shared[i]
			_, grain := r.rules.SlidingBounds(*l.quota())
			counts, want := a.Of(l.Name).UsedAt(r.now), r.truth(l)
			switch {
			case counts < want, grain == 0 && counts != want:
				t.Fatalf("%s counts %d, of which %d were called", l.Name, counts, want)
			default:
				over = max(over, counts-want)
			}
		}
	})
	t.Logf("%d calls, %d deaths; at most %d calls counted that count no more, of a quota whose times are rounded", calls, died, over)
}

// TestForgottenCallsAreCaught checks that TestDeathsAreReckonedUp notices a correction that leaves out the calls under
// way at a death.
func TestForgottenCallsAreCaught(t *testing.T) {
	for seed := range uint64(50) {
		r := newReckoning(t, Rules{Key: fast, Shared: accountLimits[2:3]}, seed)
		r.forget = true
		r.run(3)
		if v := Check(r.all, Expectation{Limit: r.rules.Shared[0]}); v.Outcome != Pass {
			return
		}
	}
	t.Error("no seed of 50 shows it")
}

// TestClaimsDoNotPileUp checks a process that is killed again and again without making a call. In the end nothing
// counts as used. While no life is long enough to find that out, no job is buried.
func TestClaimsDoNotPileUp(t *testing.T) {
	r := newReckoning(t, Rules{Key: fast, Shared: accountLimits}, 1)
	for range 100 {
		r.checkpoint(300 * time.Millisecond)
		r.now += 1000
		r.live()
	}
	r.checkpoint(300 * time.Millisecond)
	if bounds := r.m.Bounds(); bounds["spend"] < 700 {
		t.Fatalf("a hundred claims bound what was used to %v: this tests nothing", bounds)
	}
	got, err := r.m.Reserve(t.Context(), []Ask{{Key: "k", Limits: fast, Want: 1, Horizon: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	if w := got[0].Wait; len(got[0].Grants) > 0 || w.Exhausted != "" || w.Limit != OwnCheckpoint || w.Until > r.now+boundPoll {
		t.Errorf("a budget of which only a bound is used up answers %+v", got[0])
	}
	for _, l := range r.m.Levels() {
		if !l.Bound {
			t.Errorf("%s does not say that %d is a bound", l.Limit.Name, l.Used)
		}
	}
	r.judge()
	r.checkpoint(300 * time.Millisecond)
	for _, l := range r.m.Levels() {
		if l.Used != 0 || l.Bound {
			t.Errorf("%s counts %d (bound: %v), and nothing was called", l.Limit.Name, l.Used, l.Bound)
		}
	}
	if r.ask(); len(r.running) != 1 {
		t.Error("nothing is granted")
	}
}

// TestOverageOfTheLedgerCounts checks that an overage that was reported after the last snapshot counts, by the ledger.
func TestOverageOfTheLedgerCounts(t *testing.T) {
	rules := Rules{Key: fast, Shared: accountLimits}
	r := newReckoning(t, rules, 1)
	r.checkpoint(300 * time.Millisecond)
	for i := range rules.Shared {
		r.former.Add(rules, rules.Shared[i].Name, r.now, 90)
	}
	r.live()
	f := r.former
	for i := range rules.Shared {
		f.Add(rules, rules.Shared[i].Name, r.now, 90)
	}
	r.m.Correct(f)
	for _, l := range r.m.Levels() {
		if l.Used != 90 {
			t.Errorf("%s counts %d, want 90", l.Limit.Name, l.Used)
		}
	}
}

// TestAccountOfAPeriodThatIsOver checks that the use of a former period counts in no later period, whichever period the
// meter counts.
func TestAccountOfAPeriodThatIsOver(t *testing.T) {
	rules := Rules{Key: fast, Shared: accountLimits[2:3]}
	for name, calls := range map[string]int64{"nothing since": 0, "a call since": 1} {
		r := newReckoning(t, rules, 1)
		r.checkpoint(300 * time.Millisecond)
		r.ask()
		r.end()
		r.checkpoint(300 * time.Millisecond)
		r.live()
		r.checkpoint(300 * time.Millisecond)
		r.now += Micros(10 * time.Second / time.Microsecond)
		for range calls {
			r.checkpoint(300 * time.Millisecond)
			r.ask()
		}
		r.judge()
		if l := r.m.Levels()[0]; l.Used != calls || l.Bound {
			t.Errorf("%s: %d used in the next period, want %d", name, l.Used, calls)
		}
	}
}
