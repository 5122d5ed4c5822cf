package outlook

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/ops/whatif"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

const pastYAML = `
apis:
  pay:
    url: https://api.example.com
    price: 0.50
    bucket: {rate: 1/s, capacity: 5}
    limits:
      - {name: spend, budget: 20.00/day}
      - {name: calls, rate: 100/min}
    keys: {vip: {capacity: 9}}
`

// noon is the middle of a day of UTC.
var noon = time.Date(2026, time.March, 10, 12, 0, 0, 0, time.UTC)

func pastOf(t *testing.T, since time.Time, keys int) *Past {
	t.Helper()
	c, err := config.Parse([]byte(pastYAML), config.Options{Name: "weir.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return newPast(&c.APIs[0], since, 10*time.Minute, &keys)
}

// callOf returns the record of a job's only call, which lasted a second and cost 0.50.
func callOf(job string, accepted time.Time) *ledger.Record {
	return &ledger.Record{
		API: "pay", Key: "k", Job: job, Call: 1, Attempt: 1, Accepted: accepted, Started: accepted.Add(time.Minute), Ended: accepted.Add(61 * time.Second),
		Sent: true, Status: 200, Outcome: ledger.Done, Final: true, Price: "0.50", Billed: deadletter.BilledYes,
		Limits: []string{"spend", "calls"}, Costs: []int64{500_000, 1},
	}
}

func letterOf(job string, reason deadletter.Reason, accepted time.Time) *deadletter.Kept {
	l := deadletter.Letter{API: "pay", Key: "k", JobID: job, Reason: reason, Accepted: accepted, At: accepted}
	return &deadletter.Kept{Letter: l, Stored: accepted}
}

// TestPastHasEachJobOnce checks that every job of the ledger and the letters is in the trace once, at the time when it
// came first, with all of its calls.
func TestPastHasEachJobOnce(t *testing.T) {
	retried := func(job string, accepted time.Time) []*ledger.Record {
		first, second := callOf(job, accepted), callOf(job, accepted)
		first.Outcome, first.Final = "retry", false
		second.Call, second.Attempt = 2, 2
		return []*ledger.Record{first, second}
	}
	submitted, polled := callOf("o", noon), callOf("o", noon)
	submitted.Outcome, submitted.Final = ledger.Submitted, false
	polled.Polled, polled.Costs = true, []int64{250_000, 0}
	taken := letterOf("j", deadletter.Exhausted, noon)
	taken.Origin = "WEIR_pay_0.1.1"
	takenLater := letterOf("j", deadletter.Exhausted, noon.Add(time.Hour))
	takenLater.Origin = "WEIR_pay_0.2.2"
	late := letterOf("j", deadletter.Expired, noon)
	late.Origin = taken.Origin
	again := letterOf("j", deadletter.Overflow, noon)
	again.Refusals = 10
	imported := letterOf("j", deadletter.Overflow, noon)
	imported.Imported = noon
	reused, inquiry, redriven := callOf("j", noon), callOf("j", noon), callOf("j", noon)
	reused.Outcome, reused.Call, inquiry.Inquiry, redriven.Redrives = ledger.Reused, 0, "processed", 1
	for name, c := range map[string]struct {
		letters []*deadletter.Kept
		records []*ledger.Record
		jobs    int
		calls   int
		spent   int64 // by all recorded calls
		seen    Seen
	}{
		"a call":                         {nil, []*ledger.Record{callOf("j", noon)}, 1, 1, 500_000, Seen{Calls: 1}},
		"two jobs":                       {nil, []*ledger.Record{callOf("j", noon), callOf("i", noon)}, 2, 2, 1_000_000, Seen{Calls: 2}},
		"a retry":                        {nil, retried("j", noon), 1, 2, 1_000_000, Seen{Calls: 2}},
		"an id that is used again":       {nil, append(retried("j", noon), callOf("j", noon.Add(time.Hour))), 2, 3, 1_500_000, Seen{Calls: 3}},
		"an operation":                   {nil, []*ledger.Record{submitted, polled}, 1, 1, 750_000, Seen{Calls: 1}},
		"refused":                        {[]*deadletter.Kept{letterOf("j", deadletter.Overflow, noon)}, nil, 1, 0, 0, Seen{Overflowed: 1}},
		"refused ten times":              {[]*deadletter.Kept{again}, nil, 1, 0, 0, Seen{Overflowed: 1, Refusals: 9}},
		"refused, and taken soon":        {[]*deadletter.Kept{letterOf("j", deadletter.Overflow, noon)}, []*ledger.Record{callOf("j", noon.Add(time.Minute))}, 1, 1, 500_000, Seen{Calls: 1, Overflowed: 1}},
		"refused, and another job later": {[]*deadletter.Kept{letterOf("j", deadletter.Overflow, noon)}, []*ledger.Record{callOf("j", noon.Add(time.Hour))}, 2, 1, 500_000, Seen{Calls: 1, Overflowed: 1}},
		"exhausted":                      {[]*deadletter.Kept{taken}, retried("j", noon), 1, 2, 1_000_000, Seen{Calls: 2}},
		"expired without a call":         {[]*deadletter.Kept{late}, nil, 1, 0, 0, Seen{}},
		"invalid":                        {[]*deadletter.Kept{letterOf("j", deadletter.Invalid, noon)}, nil, 0, 0, 0, Seen{}},
		"imported":                       {[]*deadletter.Kept{imported}, nil, 0, 0, 0, Seen{Imported: 1}},
		"reused":                         {nil, []*ledger.Record{reused}, 0, 0, 0, Seen{Reused: 1}},
		"an inquiry":                     {nil, []*ledger.Record{inquiry}, 0, 0, 0, Seen{}},
		"redriven":                       {nil, []*ledger.Record{redriven}, 1, 1, 500_000, Seen{Calls: 1, Redriven: 1}},
		"an id that ended badly twice":   {[]*deadletter.Kept{taken, takenLater}, append(retried("j", noon), retried("j", noon.Add(time.Hour))...), 2, 4, 2_000_000, Seen{Calls: 4}},
		"of an earlier time":             {[]*deadletter.Kept{letterOf("i", deadletter.Overflow, noon.Add(-2*time.Hour))}, retried("j", noon.Add(-2*time.Hour)), 0, 0, 0, Seen{}},
	} {
		p := pastOf(t, noon.Add(-time.Hour), 10)
		for _, l := range c.letters {
			p.letter(l)
		}
		for _, r := range c.records {
			p.record(r)
		}
		p.finish(noon.Add(24 * time.Hour))
		jobs, calls, spent := 0, 0, int64(0)
		for _, d := range p.trace.Days(10) {
			jobs, calls, spent = jobs+d.Jobs, calls+d.Calls, spent+d.Takes[0]
		}
		if jobs != c.jobs || calls != c.calls || spent != c.spent || p.Seen != c.seen {
			t.Errorf("%s: %d jobs, %d calls, %d spent, %+v; want %d, %d, %d, %+v", name, jobs, calls, spent, p.Seen, c.jobs, c.calls, c.spent, c.seen)
		}
		if jobs > 0 && p.trace.At(0) != bucket.MicrosOf(noon) {
			t.Errorf("%s: the first job came at %s", name, p.trace.At(0).Time())
		}
	}
}

// TestPastIsBounded checks that jobs of keys beyond the bound are counted, and take no room.
func TestPastIsBounded(t *testing.T) {
	p := pastOf(t, noon.Add(-time.Hour), 2)
	for i := range 3 {
		ended := letterOf(fmt.Sprint("j", i), deadletter.Exhausted, noon)
		ended.Key, ended.Origin = fmt.Sprint("k", i), "WEIR_pay_0.1.1"
		p.letter(ended)
	}
	for i := range 6 {
		c := callOf(fmt.Sprint("j", i), noon)
		c.Key, c.Final = fmt.Sprint("k", i%3), false
		p.record(c)
		c.Call, c.Final = 2, true
		p.record(c)
	}
	late := callOf("late", noon.Add(2*time.Hour))
	p.record(late)
	p.finish(noon.Add(time.Hour))
	if p.trace.Keys() != 2 || p.LeftOut != 3 {
		t.Errorf("%d keys, %d jobs left out; want 2 and 3", p.trace.Keys(), p.LeftOut)
	}
	r := Recorded{Pasts: []*Past{p}}
	if notes := strings.Join(r.Notes(), "\n"); !strings.Contains(notes, "3 jobs of pay have more keys than one plan takes") || !strings.Contains(notes, "no running weir answered") {
		t.Errorf("notes: %s", notes)
	}
}

// TestPastsShareABound checks that the keys of all apis that are planned together have one bound.
func TestPastsShareABound(t *testing.T) {
	left, a, b := 3, pastOf(t, noon.Add(-time.Hour), 0), pastOf(t, noon.Add(-time.Hour), 0)
	a.left, b.left = &left, &left
	for i := range 4 {
		c := callOf(fmt.Sprint("j", i), noon)
		c.Key = fmt.Sprint("k", i%2)
		a.record(c)
		b.record(c)
	}
	if keys := a.trace.Keys() + b.trace.Keys(); keys != 3 || a.LeftOut+b.LeftOut != 2 {
		t.Errorf("%d keys, %d jobs left out; want 3 and 2", keys, a.LeftOut+b.LeftOut)
	}
}

// grown returns jobs of one key at noon of five days: 4, 5, 6, 7 and 8, all at once.
func grown(t *testing.T) *Recorded {
	t.Helper()
	since := noon.Add(-12 * time.Hour)
	p := pastOf(t, since, 10)
	for day := range 5 {
		for i := range 4 + day {
			p.record(callOf(fmt.Sprint(day, ".", i), noon.Add(time.Duration(day)*24*time.Hour+time.Duration(i)*time.Microsecond)))
		}
	}
	r := &Recorded{Pasts: []*Past{p}, Since: since, Until: since.Add(5 * 24 * time.Hour), Now: since.Add(5 * 24 * time.Hour)}
	p.finish(r.Until)
	return r
}

// TestOutlook checks what is said of recorded jobs: the key that overflows, what it needs, and when limits are used up.
func TestOutlook(t *testing.T) {
	r := grown(t)
	o, err := Of(t.Context(), r, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	a := o.APIs[0]
	if a.Present.Jobs != 30 || a.Present.Overflowed != 1+2+3 || len(a.Overflowing) != 1 {
		t.Errorf("under the present limits: %+v %+v", a.Present, a.Overflowing)
	}
	want := Needs{OfKey: whatif.OfKey{Key: "k", Jobs: 30, Overflowed: 6, Deepest: 5}, Capacity: 5, Needs: 8}
	if len(a.Overflowing) == 1 && a.Overflowing[0] != want {
		t.Errorf("the key is said to be %+v, want %+v", a.Overflowing[0], want)
	}
	if a.Suggested == nil || a.Suggested.Capacity != 8 || a.Suggested.Overflowed != 0 {
		t.Errorf("suggested: %+v", a.Suggested)
	}
	if g := o.Growth; g == nil || g.Days != 5 || math.Abs(g.More-1) > 1e-9 || math.Abs(g.Last-8) > 1e-9 {
		t.Errorf("growth: %+v", g)
	}
	if b := o.Breaks; b == nil || b.Load != 1 || b.Key != "k" || b.API != "pay" || *b.InDays != 0 {
		t.Errorf("breaks: %+v", b)
	}
	spend := o.Limits[0]
	if spend.Limit != "spend" || spend.Used != "4.00" || spend.Allowed != "20.00" || spend.Percent != 20 || spend.InDays == nil || *spend.InDays != 31 || spend.Day != "2026-03-14" {
		t.Errorf("the budget: %+v", spend)
	}
}

// TestOverflowsNext checks that a growth is followed, so that a key is named before it overflows.
func TestOverflowsNext(t *testing.T) {
	r := grown(t)
	ten := int64(10)
	r.Pasts[0].API.Rules.Overrides = []bucket.Override{{Pattern: "k", Capacity: &ten}} // tomorrow come 10 jobs
	for ahead, want := range map[time.Duration]int{24 * time.Hour: 0, 7 * 24 * time.Hour: 1} {
		next, err := r.next(t.Context(), ahead)
		if err != nil || len(next) != 1 || len(next[0].Overflowing) != want {
			t.Errorf("within %s: %+v %v, want %d keys", ahead, next, err, want)
		}
	}
}

// TestNoCapacityHelpsAgainstMaxWait checks that no capacity is said to be enough for jobs that would wait too long.
func TestNoCapacityHelpsAgainstMaxWait(t *testing.T) {
	for name, c := range map[string]struct {
		capacity int64
		needs    int
	}{"max_wait alone": {100, 0}, "both": {5, 8}} {
		r := grown(t)
		key := &r.Pasts[0].API.Rules.Key
		key.Capacity, key.MaxWait = c.capacity, 5*time.Second
		o, err := Of(t.Context(), r, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		a := o.APIs[0]
		if a.Present.Overflowed == 0 || len(a.Overflowing) != 1 || a.Overflowing[0].Needs != c.needs || (a.Suggested != nil) != (c.needs > 0) || !a.WithoutMaxWait {
			t.Errorf("%s: %+v, suggested %+v", name, a, a.Suggested)
		}
	}
}

// TestRateIsEnoughOnAllDays checks that a rate that is enough on the days it was sought on is raised until it is enough
// on all days.
func TestRateIsEnoughOnAllDays(t *testing.T) {
	since := noon.Add(-12 * time.Hour)
	p := pastOf(t, since, 10)
	for i := range 20 { // on the first day they come in a burst, and on the second day slowly
		p.record(callOf(fmt.Sprint("a", i), noon.Add(time.Duration(i)*300*time.Millisecond)))
	}
	for i := range 40 {
		p.record(callOf(fmt.Sprint("b", i), noon.Add(24*time.Hour+time.Duration(i)*time.Minute)))
	}
	r := &Recorded{Pasts: []*Past{p}, Since: since, Until: since.Add(48 * time.Hour), Now: since.Add(48 * time.Hour)}
	p.finish(r.Until)
	p.API.Rules.Shared = nil
	parts := r.parts()
	present, err := whatif.RunAll(t.Context(), parts, 1, func(int) {})
	if err != nil || present[0].Overflowed == 0 {
		t.Fatalf("the burst overflows nothing: %+v %v", present, err)
	}
	sought := slices.Clone(parts)
	sought[0].Trace = parts[0].Trace.On(map[bucket.Micros]bool{r.days()[1].Begin: true})
	o := &Outlook{APIs: []*API{{Present: present[0]}}, SoughtOn: []string{"2026-03-11"}}
	if err := o.addRates(t.Context(), parts, sought, func(int) {}); err != nil {
		t.Fatal(err)
	}
	rate, err := grammar.ParseRate(o.APIs[0].Rate)
	if err != nil {
		t.Fatalf("the rate %q: %v", o.APIs[0].Rate, err)
	}
	parts[0].Candidate.Rules.Key.Rate.Count, parts[0].Candidate.Rules.Key.Rate.Per = rate.Count, rate.Per
	if all, err := whatif.RunAll(t.Context(), parts, 1, func(int) {}); err != nil || all[0].Overflowed > 0 {
		t.Errorf("at the rate %s, which is said to be enough: %+v %v", o.APIs[0].Rate, all, err)
	}
}

// TestGrowthCountsFromNow checks that days without jobs are days of the growth, that days ahead count from now on, and
// that a day of which jobs may be missing is no whole day.
func TestGrowthCountsFromNow(t *testing.T) {
	const day = 24 * time.Hour
	r := grown(t)
	r.Until, r.Now = r.Until.Add(2*day), r.Now.Add(2*day)
	if days := r.days(); len(days) != 7 || days[6].Jobs != 0 {
		t.Errorf("the days with two at the end without jobs: %+v", days)
	}
	if g := r.growth(r.days()); g == nil || g.Days != 7 || !g.Unclear && g.More > 0 {
		t.Errorf("with two days without jobs at the end: %+v", g)
	}
	r = grown(t)
	if g := r.growth(r.days()); *g.until(2) != 7 || g.in(1) != 1.25 {
		t.Errorf("on the day behind the last one twice as many come in %d days, and tomorrow %g times as many", *g.until(2), g.in(1))
	}
	r.ReadUntil = r.Until
	if g := r.growth(r.days()); g.Days != 4 || math.Abs(g.Last-7) > 1e-9 || *g.until(2) != 5 {
		t.Errorf("without the last day: %+v, twice as many in %d days", g, *g.until(2))
	}
	r.Now = r.Now.Add(10 * day)
	if g := r.growth(r.days()); *g.until(2) != 0 {
		t.Errorf("ten days later twice as many come in %d days", *g.until(2))
	}
}

// TestGrowthIsNotTheAgeOfLetters checks that days of which the letters are gone are no whole days.
func TestGrowthIsNotTheAgeOfLetters(t *testing.T) {
	r := grown(t)
	r.LettersBegin = r.Since.Add(36 * time.Hour)
	if g := r.growth(r.days()); g == nil || g.Days != 3 {
		t.Errorf("with letters of the last three whole days: %+v", g)
	}
	if notes := strings.Join(r.Notes(), "\n"); !strings.Contains(notes, "letters are kept since 2026-03-11") {
		t.Errorf("notes: %s", notes)
	}
}

// TestLoadsAreSoughtOnTheBusiestDays checks that many jobs do not make many long runs.
func TestLoadsAreSoughtOnTheBusiestDays(t *testing.T) {
	r := grown(t)
	days, o := r.days(), Outlook{}
	if parts := o.busiest(r.parts(), days); parts[0].Trace.Jobs() != 30 || o.SoughtOn != nil {
		t.Errorf("of few jobs %d are tried, on %v", parts[0].Trace.Jobs(), o.SoughtOn)
	}
	for i := range days {
		days[i].Jobs *= mostSought / 16
	}
	parts := o.busiest(r.parts(), days)
	if want := []string{"2026-03-13", "2026-03-14"}; parts[0].Trace.Jobs() != 7+8 || !slices.Equal(o.SoughtOn, want) || len(o.Notes) != 1 {
		t.Errorf("of many jobs %d are tried, on %v, want those of %v: %v", parts[0].Trace.Jobs(), o.SoughtOn, want, o.Notes)
	}
	days[4].Jobs = 10 * mostSought
	if parts := o.busiest(r.parts(), days); parts[0].Trace.Jobs() != 8 {
		t.Errorf("beside a day with too many jobs %d are tried", parts[0].Trace.Jobs())
	}
}

// TestUseCountsCallsThatTheAPISaw checks that the use of a limit has no call that was not sent, and a call of a pack once.
func TestUseCountsCallsThatTheAPISaw(t *testing.T) {
	since := noon.Add(-12 * time.Hour)
	p := pastOf(t, since, 10)
	unsent, sent := callOf("a", noon), callOf("a", noon)
	unsent.Sent, unsent.Billed, unsent.Outcome, unsent.Final = false, deadletter.NotBilled, "retry", false
	sent.Call, sent.Attempt = 2, 2
	p.record(unsent)
	p.record(sent)
	for place := range 3 {
		packed := callOf(fmt.Sprint("p", place), noon)
		packed.Pack = &queue.Pack{ID: "x", Of: 3, Place: place}
		p.record(packed)
	}
	until := since.Add(24 * time.Hour)
	p.finish(until)
	r := &Recorded{Pasts: []*Past{p}, Since: since, Until: until, Now: until}
	uses := r.limitUses(nil)
	if len(uses) != 2 || uses[1].Limit != "calls" || uses[1].Used != "2" {
		t.Errorf("the limits are used by %+v, want calls by the sent call and by that of the pack", uses)
	}
	if p.Calls != 5 || p.Packed != 3 {
		t.Errorf("recorded are %+v, want 5 calls, 3 of them packed", p.Seen)
	}
}
