package whatif

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest"

	"pgregory.net/rapid"
)

func quiet(int) {}

// traced returns a trace of arrivals at times in microseconds. Each has one of keys keys.
func traced(at []int64, keys int) *Trace {
	t := &Trace{}
	for k := range keys {
		t.keys = append(t.keys, fmt.Sprint("k", k))
	}
	slices.Sort(at)
	for i, us := range at {
		t.arrivals = append(t.arrivals, arrival{at: sinceEpoch*1_000_000 + bucket.Micros(us), key: uint32(i % keys), cost: 1, took: unknown})
	}
	return t
}

func drawn(t *rapid.T) (at []int64, c Candidate) {
	at = rapid.SliceOfN(rapid.Int64Range(0, 5_000_000), 1, 200).Draw(t, "arrivals")
	rate := bucket.Rate{Count: rapid.Int64Range(1, 200).Draw(t, "count"), Per: time.Second, Burst: 1}
	if rapid.Bool().Draw(t, "token bucket") {
		rate.Counts, rate.Burst = bucket.ByTokens, rapid.Int64Range(1, 50).Draw(t, "bucket")
	} else {
		rate.Burst = rapid.Int64Range(1, rate.Count).Draw(t, "burst")
	}
	return at, Candidate{Rules: bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{
		Rate: rate, Capacity: rapid.Int64Range(1, 60).Draw(t, "capacity"), InFlight: 4,
	}}}
}

// byFormula computes one key's bucket by arithmetic: a queue whose server is free one interval after it served, and may
// be ahead by its burst. With a burst of 1 this is the queue G/D/1, by Lindley's recursion. A job that leaves when
// another arrives makes room for it.
func byFormula(at []int64, c *Candidate) (waits []int64, overflowed, deepest int) {
	interval, burst := c.Rules.Interval(c.Rules.Key.Rate), c.Rules.Burst(c.Rules.Key.Rate)
	up := func(n int64) int64 { return (n + interval.Q - 1) / interval.Q } // from fractions of a microsecond
	var free int64                                                         // when the bucket is empty again, in these fractions
	var slots []int64
	for _, now := range at {
		for len(slots) > 0 && slots[0] <= now {
			slots = slots[1:]
		}
		if int64(len(slots)) >= c.Rules.Key.Capacity {
			overflowed++
			continue
		}
		slot := max(now, up(max(now*interval.Q, free)+(1-burst)*interval.P))
		if slot > up(free) {
			free = slot * interval.Q
		}
		free += interval.P
		slots = append(slots, slot)
		deepest = max(deepest, len(slots))
		waits = append(waits, slot-now)
	}
	slices.Sort(waits)
	return waits, overflowed, deepest
}

// TestPlanOfOneKey checks that for one key a plan agrees with the known formulas, to the microsecond.
func TestPlanOfOneKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, c := drawn(t)
		trace := traced(at, 1)
		got, err := Run(context.Background(), trace, &c, quiet)
		if err != nil {
			t.Fatal(err)
		}
		waits, overflowed, _ := byFormula(at, &c)
		want := Waits{}
		for part, at := range map[int]*float64{50: &want.P50, 95: &want.P95, 99: &want.P99, 100: &want.Max} {
			*at = float64(waits[(len(waits)*part+99)/100-1]) / 1000
		}
		if got.Overflowed != overflowed || got.Called != len(waits) || got.Accepted != len(waits) || got.Jobs != len(at) || got.Wait != want {
			t.Fatalf("%+v\nwant %d overflowed, %d called, %+v; %+v", got, overflowed, len(waits), want, c.Rules.Key)
		}
	})
}

// TestPlanUnderASharedRate checks that the waits of all keys together are those of one queue, because the same number
// of calls in a row ends at the same time whichever key goes first. The exception is the time for which a slot that is
// asked for ahead stays idle.
func TestPlanUnderASharedRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, c := drawn(t)
		shared := c.Rules.Key.Rate
		shared.Burst, shared.Counts = 1, ""
		c.Rules.Shared = []bucket.Limit{{Name: "account", Rate: &shared}}
		c.Rules.Key = bucket.KeyLimits{Rate: bucket.Rate{Count: 1_000_000, Per: time.Second, Burst: 1000}, Capacity: 1000, InFlight: 1000}
		trace := traced(at, rapid.IntRange(1, 7).Draw(t, "keys"))
		r, err := Run(context.Background(), trace, &c, quiet)
		if err != nil {
			t.Fatal(err)
		}
		one := c
		one.Rules.Key.Rate, one.Rules.Shared = shared, nil
		waits, _, _ := byFormula(at, &one)
		most, slack := float64(waits[len(waits)-1])/1000, 5*float64(len(at))
		if r.Called != len(at) || r.Wait.P50 > most+slack || r.Wait.Max < most-slack {
			t.Fatalf("%+v, one queue waits %.3f ms at most", r, most)
		}
	})
}

// TestSuggest checks that a smaller capacity, or a slower rate, would not be enough.
func TestSuggest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, c := drawn(t)
		trace := traced(at, rapid.IntRange(1, 4).Draw(t, "keys"))
		bound := time.Duration(rapid.SampledFrom([]int64{0, 50, 400, 3000}).Draw(t, "bound ms")) * time.Millisecond
		s, err := Suggest(context.Background(), trace, c, bound, quiet)
		if err != nil && bound > 0 { // at any rate, jitter keeps calls 5 ms apart
			c.Rules.Key.Capacity, c.Rules.Key.Rate.Count = mostCapacity, int64(time.Second/time.Microsecond)
			if o, err := Run(context.Background(), trace, &c, quiet); err == nil && o.Wait.Max <= float64(bound.Milliseconds()) {
				t.Fatalf("no rate is said to do, and %+v does: %+v", c.Rules.Key.Rate, o)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if !s.Suggested || s.Overflowed > 0 || s.Called != len(at) || bound > 0 && s.Wait.Max > float64(bound.Milliseconds()) {
			t.Fatalf("suggested, and it does not do: %+v", s)
		}
		if bound == 0 && s.Capacity > 1 {
			c.Rules.Key.Capacity = s.Capacity - 1
			if o, err := Run(context.Background(), trace, &c, quiet); err != nil || o.Overflowed == 0 {
				t.Fatalf("a place less does as well: %+v %v", o, err)
			}
		}
		if bound > 0 {
			c.Rules.Key.Capacity = mostCapacity
			var count int64
			if _, err := fmt.Sscanf(s.Rate, "%d/s", &count); err != nil {
				t.Fatal(err)
			}
			if count > 1 {
				c.Rules.Key.Rate.Count = count - 1
				if c.Rules.Key.Rate.Counts == "" {
					c.Rules.Key.Rate.Burst = min(c.Rules.Key.Rate.Burst, count-1)
				}
				if o, err := Run(context.Background(), trace, &c, quiet); err != nil || o.Wait.Max <= float64(bound.Milliseconds()) {
					t.Fatalf("a slower rate than %s does as well: %+v %v", s.Rate, o, err)
				}
			}
		}
	})
}

// TestPlanOfAllLimits checks that costs, budgets, calls that take time, max_wait and overrides of keys count in a plan.
func TestPlanOfAllLimits(t *testing.T) {
	at := make([]int64, 40)
	for i := range at {
		at[i] = int64(i) * 1000
	}
	fast := bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: 4}
	tokens := bucket.Limit{Name: "tokens", Rate: &bucket.Rate{Count: 100, Per: time.Second, Burst: 5}, Cost: ingest.FromHeader("Weir-Cost")}
	money := bucket.Limit{Name: "spend", Budget: &bucket.Budget{
		Quota: bucket.Quota{Count: 10_000_000, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}, OnExhausted: bucket.DeadLetter,
	}}
	late := fast
	late.Rate.Count, late.MaxWait = 10, time.Second
	one := fast
	one.InFlight = 1
	capacity := int64(3)
	for name, c := range map[string]struct {
		rules bucket.Rules
		price int64
		took  time.Duration
		cost  int64
		holds func(o *Outcome) bool
	}{
		"budget":      {bucket.Rules{Key: fast, Shared: []bucket.Limit{money}}, 1_000_000, 0, 1, func(o *Outcome) bool { return o.Called == 10 && o.OverBudget == 30 && o.Accepted == 40 }},
		"too dear":    {bucket.Rules{Key: fast, Shared: []bucket.Limit{tokens}}, 0, 0, 6, func(o *Outcome) bool { return o.Refused == 40 && o.Called == 0 }},
		"weighted":    {bucket.Rules{Key: fast, Shared: []bucket.Limit{tokens}}, 0, 0, 5, func(o *Outcome) bool { return o.Called == 40 && o.Wait.Max > 1900 }},
		"slow calls":  {bucket.Rules{Key: one}, 0, 100 * time.Millisecond, 1, func(o *Outcome) bool { return o.Called == 40 && o.Wait.Max > 3800 && o.Wait.Max < 4000 }},
		"max_wait":    {bucket.Rules{Key: late}, 0, 0, 1, func(o *Outcome) bool { return o.Overflowed >= 28 && o.Overflowed < 31 && o.Wait.Max <= 1000 }},
		"single keys": {bucket.Rules{Key: late, Overrides: []bucket.Override{{Pattern: "k0", Capacity: &capacity}}}, 0, 0, 1, func(o *Outcome) bool { return o.Accepted == 4 && o.Deepest.Depth == 3 }},
	} {
		trace := traced(slices.Clone(at), 1)
		for i := range trace.arrivals {
			trace.arrivals[i].cost = c.cost
		}
		o, err := Run(t.Context(), trace, &Candidate{Rules: c.rules, Price: c.price, CallTime: c.took}, quiet)
		if err != nil || !c.holds(o) {
			t.Errorf("%s: %+v %v", name, o, err)
		}
	}
}

// TestPlanOfSettledCalls checks that what a call took replaces its cost in a limit that answers settle, and in no
// other.
func TestPlanOfSettledCalls(t *testing.T) {
	at := make([]int64, 40)
	for i := range at {
		at[i] = int64(i) * 1000
	}
	fast := bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: 4}
	read := ingest.FromHeader("Weir-Cost")
	settled := read.SettledBy(ingest.Source{Header: "X-Took"})
	for name, c := range map[string]struct {
		cost        ingest.Cost
		took        int64
		from, until float64 // of the longest wait, in milliseconds
	}{
		"as the cost":            {settled, unknown, 1800, 2400},
		"less":                   {settled, 1, 200, 500},
		"more":                   {settled, 10, 3800, 5000},
		"of a limit not settled": {read, 1, 1800, 2400},
	} {
		trace := traced(slices.Clone(at), 1)
		for i := range trace.arrivals {
			trace.arrivals[i].cost, trace.arrivals[i].took = 5, c.took
		}
		o, err := Run(t.Context(), trace, &Candidate{CallTime: time.Millisecond, Rules: bucket.Rules{
			Key:    fast,
			Shared: []bucket.Limit{{Name: "tokens", Rate: &bucket.Rate{Count: 100, Per: time.Second, Burst: 20}, Cost: c.cost}},
		}}, quiet)
		if err != nil || o.Called != 40 || o.Wait.Max < c.from || o.Wait.Max > c.until {
			t.Errorf("%s: %+v %v", name, o, err)
		}
	}
}

// TestReadTrace checks both forms of a trace, all kinds of times, and lines in any order.
func TestReadTrace(t *testing.T) {
	for name, text := range map[string]string{
		"seconds":    "time,key,cost\n0.25,b,7\n0,a,1\n",
		"took":       "time,key,took\n0.25,b,0\n0,a,\n",
		"json, took": "{\"time\":0.25,\"key\":\"b\",\"took\":0}\n{\"key\":\"a\",\"time\":0}\n",
		"no cost":    "\ufeffkey, time ,note\na,0,x\n\"b\",0.250000,\"y, z\"\n",
		"json":       "{\"time\":0.25,\"key\":\"b\",\"cost\":7}\n\n{\"key\":\"a\",\"time\":0,\"other\":[]}\n",
		"RFC 3339":   "time,key\n2001-09-09T01:46:40Z,a\n2001-09-09T03:46:40.25+02:00,b\n",
		"json times": "{\"time\":\"2001-09-09T01:46:40Z\",\"key\":\"a\"}\n{\"time\":\"1000000000.25\",\"key\":\"b\"}",
	} {
		got, err := ReadTrace(strings.NewReader(text), "t", MostJobs)
		if err != nil || got.Jobs() != 2 || got.Keys() != 2 || got.keys[got.arrivals[0].key] != "a" ||
			got.arrivals[0].at.Until(got.arrivals[1].at) != 250*time.Millisecond || got.arrivals[0].cost != 1 ||
			got.arrivals[0].took != unknown || strings.Contains(name, "took") != (got.arrivals[1].took == 0) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                                         "t: the trace is empty",
		"time,key\n":                               "t: the trace has no arrivals",
		"when,key\n1,a\n":                          "t:1: the first line must name the columns",
		"time,key\n0,a\nsoon,b\n0,\n":              "t:3: time \"soon\" is neither a number of seconds nor an RFC 3339 time\nt:4: key:",
		"time,key\n-1,a\nNaN,a\n1e12,a\n":          "t:2: time \"-1\" is not between",
		"time,key,cost\n0,a,0\n0,a,1.5\n":          "t:2: cost \"0\" is not a whole number from 1\nt:3: cost \"1.5\"",
		"time,key,took\n0,a,-1\n0,a,x\n":           "t:2: took \"-1\" is not a whole number from 0\nt:3: took \"x\"",
		"time,key\n0,a\n0,a,b\n0,\"a\n":            "t:3: wrong number of fields",
		"{\"time\":0}\n{\"key\":\"a\"}\nx":         "t:1: it has no time or no key\nt:2: it has no time or no key\nt:3: it is no JSON object",
		"time,key\n" + strings.Repeat("x,a\n", 30): "t: and 20 more bad lines",
	} {
		if _, err := ReadTrace(strings.NewReader(text), "t", MostJobs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestPlanEndsWithItsContext checks that an interrupted plan does not run on through a long trace.
func TestPlanEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := Candidate{Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, Capacity: 10, InFlight: 1}}}
	if _, err := Run(ctx, traced([]int64{1, 2, 3}, 1), &c, quiet); err == nil {
		t.Error("it ran to its end")
	}
}
