package config

import (
	"cmp"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
	"weir/ingest"
)

// Bounds of a bucket's fields. Users rely on them as part of the file format.
const (
	mostBurst     = 1_000_000
	mostCapacity  = 10_000_000
	mostInFlight  = 100_000
	mostOverrides = 10_000
	mostJitter    = 10 * time.Second

	// DefaultJitter is the default of jitter: how much later than planned a call may arrive at the api.
	DefaultJitter = 5 * time.Millisecond

	// leaseMargin is added to an api's timeout and jitter to get the lease of a permit. The lease begins with the slot.
	// Its call starts within the jitter, and ends at most one second after the timeout. So the permit is taken back
	// only when the call cannot be running any more. Until then nothing uses the permit of a dead replica.
	leaseMargin = 5 * time.Second
)

// rules returns the fields of an api's limits. price is what a call costs, and usage has the api's usage counters.
func rules(r *bucket.Rules, price *ingest.Cost, usage *[]Usage) []field.Field {
	lines := map[string]int{} // of the shared limits, by name
	return []field.Field{
		{
			Name:  "headroom",
			Is:    field.One(&r.Headroom, field.Percent(0, 99)),
			Or:    "0%",
			Means: "how far weir stays below every limit",
		},
		{
			Name: "jitter", Is: field.One(&r.Jitter, field.Duration(0, mostJitter)), Or: grammar.FormatDuration(DefaultJitter),
			Means: "how much later than planned a call may reach the API. weir widens its intervals by it, so that limits " +
				"hold at the API. Set it higher on a busy or slow machine",
		},
		{
			Name:  "bucket",
			Is:    field.Mapping(func() field.Section { return keyLimits(&r.Key, r) }),
			Needs: "write bucket: {rate: 10/s, capacity: 500}",
			Means: "every key's own leaky bucket",
		},
		{
			Name: "limits", Otherwise: "none",
			Is: field.Items(&r.Shared, mostShared,
				func(l *bucket.Limit) field.Section { return limit(l, r, price, usage, lines) }),
			Means: "limits that all keys share; a call must be within all of them",
		},
		{
			Name:      "admit",
			Is:        field.Items(&r.Admit, mostAdmit, admission),
			Otherwise: "none",
			Means:     "limits on how many jobs of each key weir accepts",
		},
		{
			Name: "priorities", Is: field.Mapping(func() field.Section { return priorities(&r.Weights) }),
			Means: "how calls are divided among the priorities that have jobs waiting, within a key and at shared limits",
		},
		{
			Name: "keys", Otherwise: "none",
			Is: field.Named(&r.Overrides, mostOverrides, "PATTERN",
				func(o *bucket.Override) field.Section { return override(o, r) },
				func(o *bucket.Override) *string { return &o.Pattern }),
			Means: "other buckets for some keys",
		},
	}
}

// priorities returns the fields of the weights: one for each value of Weir-Priority.
func priorities(w *bucket.Weights) field.Section {
	weight := field.Whole[int64](1, bucket.MostWeight)
	return field.Section{Fields: []field.Field{
		{Name: "high", Is: field.One(&w.High, weight), Or: "16", Means: "the weight of jobs with `Weir-Priority: high`"},
		{
			Name:  "normal",
			Is:    field.One(&w.Normal, weight),
			Or:    "4",
			Means: "the weight of jobs with `Weir-Priority: normal`, and of those without",
		},
		{
			Name:  "low",
			Is:    field.One(&w.Low, weight),
			Or:    "1",
			Means: "the weight of jobs with `Weir-Priority: low`, and of redriven ones",
		},
	}}
}

// pace returns the fields of a rate of calls.
func pace(r *bucket.Rate) []field.Field {
	counts := field.Word(bucket.ByWindow, bucket.ByTokens)
	counts.Show = func(c bucket.Counting) string { return string(cmp.Or(c, bucket.ByWindow)) }
	return []field.Field{
		{Name: "rate", Is: field.One(r, field.Rate().But("a rate", func(text string) (bucket.Rate, error) {
			got, err := grammar.ParseRate(text)
			got.Burst, got.Counts = r.Burst, r.Counts
			return got, err
		})), Needs: grammar.RateFix, Means: "how fast the bucket drains into the API"},
		{
			Name: "burst", Is: field.One(&r.Burst, field.Whole[int64](1, mostBurst)), Or: "1",
			Means: "how many calls may start together after idling; `counts` says whether they lower the steady rate",
		},
		{
			Name: "counts", Is: field.One(&r.Counts, counts), Otherwise: "`window`",
			Means: "how the API counts. `window`: never more than the rate's count in any period, bursts included. " +
				"`token_bucket`: never more than `burst` + rate × time ([limits](limits.md))",
		},
	}
}

// keyLimits returns the fields of the bucket that every key has. If the rate was refused, its Count is 0. of has the
// headroom and the jitter.
func keyLimits(k *bucket.KeyLimits, of *bucket.Rules) field.Section {
	wait := field.Duration(time.Millisecond, grammar.LongestPeriod)
	return field.Section{
		Fields: append(pace(&k.Rate), []field.Field{
			{
				Name:  "capacity",
				Is:    field.One(&k.Capacity, field.Whole[int64](1, mostCapacity)),
				Needs: "write how many jobs of one key may wait, as in 500",
				Means: "how many unfinished jobs a key may have, including running calls; one more overflows",
			},
			{
				Name: "max_wait", Is: field.One(&k.MaxWait, field.OrEmpty(wait.But(wait.Words, maxWait))), Otherwise: "no bound",
				Means: "a job that would wait longer overflows; with `Weir-Not-Before` the wait begins at that time",
			},
			{
				Name: "in_flight", Is: field.One(&k.InFlight, field.Whole[int64](1, mostInFlight)), Or: "4",
				Means: "how many calls of the key may run at once; 1 means strictly one after another",
			},
		}...),
		Check: func(f field.Fields) {
			checkPace(f, &k.Rate, *of)
			noteOfDay(f, k.Rate, allowanceFix(k.Rate))
		},
	}
}

// maxWait reads how long a job may wait. It refuses 0, which could mean "not at all" or "no bound".
func maxWait(text string) (time.Duration, error) {
	if d, err := grammar.ParseDuration(text); err == nil && d == 0 {
		return 0,
			problem.Refuse("remove it for no bound, or write at least 1ms", "%s would let no job wait", problem.Quote(text))
	}
	return grammar.DurationIn(time.Millisecond, grammar.LongestPeriod)(text)
}

// checkPace checks a rate together with its burst and how the api counts it. pace has the headroom and the jitter,
// which reduce a rate.
func checkPace(f field.Fields, r *bucket.Rate, pace bucket.Rules) {
	if !f.Fine("rate", "burst", "counts") || r.Count == 0 {
		return
	}
	before := len(f.Doc.Problems)
	if r.Counts = counted(f, *r); len(f.Doc.Problems) > before {
		return
	}
	if !drains(pace.Interval(*r), r.Burst) {
		f.Place("burst").Fail("a burst of "+strconv.FormatInt(r.Burst, 10)+" at "+grammar.FormatRate(*r)+
			" takes over 100 years to drain", "lower the burst or raise the rate")
		return
	}
	warnOfPace(f, *r, pace)
}

// counted returns how the api counts a rate. It reports a problem if a burst exceeds the count of a window.
func counted(f field.Fields, r bucket.Rate) bucket.Counting {
	switch {
	case r.Counts == bucket.ByTokens:
		return bucket.ByTokens
	case r.Burst <= r.Count:
		return "" // by the window, stated or not: two files that mean the same must be equal
	}
	place := f.Place("burst")
	if !f.Has("burst") && f.Has("rate") {
		place = f.Place("rate")
	}
	place.Fail("a burst of "+strconv.FormatInt(r.Burst, 10)+" is more than "+grammar.FormatRate(r)+
		" may see in any period of "+grammar.FormatDuration(r.Per),
		"write counts: token_bucket if the api lets through its burst + rate × time, or a burst of at most "+
			strconv.FormatInt(r.Count, 10))
	return r.Counts
}

// warnOfPace warns if jitter and burst leave less than half of the rate.
func warnOfPace(f field.Fields, r bucket.Rate, pace bucket.Rules) {
	pace.Headroom = 0 // its effect is intended
	steady, hoped := pace.Interval(r).Duration(), r.Per/time.Duration(r.Count)
	switch {
	case steady <= 2*hoped:
	case r.Counts == bucket.ByTokens:
		f.Place("burst").Warn("jitter leaves less than half of "+grammar.FormatRate(r)+" of a token bucket of "+
			strconv.FormatInt(r.Burst, 10),
			"write the burst that the api publishes, or lower jitter")
	case r.Burst > 1:
		f.Place("burst").Warn("burst and jitter leave less than half of "+grammar.FormatRate(r)+
			" in the long run, for no period to see more than it",
			"write counts: token_bucket if the api lets through its burst + rate × time; else lower burst or jitter, or write "+
				"the rate for a longer period")
	default: // the burst is 1 and cannot be lowered
		f.Place("rate").Warn("jitter leaves less than half of "+grammar.FormatRate(r)+
			" in the long run, for no period to see more than it",
			"lower the api's jitter, or write the rate for a longer period")
	}
}

// override returns the fields of o. For the keys that o.Pattern matches, they replace the fields of every key's bucket,
// of.Key.
func override(o *bucket.Override, of *bucket.Rules) field.Section {
	k := of.Key
	s := keyLimits(&k, of)
	for i := range s.Fields {
		fd := &s.Fields[i]
		fd.Needs, fd.Or, fd.Otherwise, fd.Means = "", "", "that of `bucket`", "as in `bucket`"
	}
	s.Check = func(f field.Fields) {
		if o.Pattern == "" || len(o.Pattern) > longestName {
			f.Fail("is no key", "write a key of 1 to 128 bytes, or a pattern with *")
		} else if len(f.Node.Content) == 0 {
			f.Fail("changes nothing", "write rate, burst, counts, capacity, max_wait or in_flight")
		}
		if f.Has("rate") || f.Has("burst") || f.Has("counts") {
			checkPace(f, &k.Rate, *of)
			noteOfDay(f, k.Rate, allowanceFix(k.Rate))
			o.Rate = &k.Rate
		} else {
			f.Leave("rate", "burst", "counts")
		}
		set(f, "capacity", &o.Capacity, &k.Capacity)
		set(f, "max_wait", &o.MaxWait, &k.MaxWait)
		set(f, "in_flight", &o.InFlight, &k.InFlight)
	}
	return s
}

// set points *at to value if the file has the field. Otherwise it keeps the field out of differences.
func set[T any](f field.Fields, name string, at **T, value *T) {
	if f.Has(name) {
		*at = value
	} else {
		f.Leave(name)
	}
}

// moreExact orders overrides by precedence: patterns without * first, then longer ones first, then by the alphabet. So
// the order of a YAML mapping does not matter.
func moreExact(a, b bucket.Override) int {
	wildA, wildB := strings.Contains(a.Pattern, "*"), strings.Contains(b.Pattern, "*")
	if wildA != wildB {
		if wildA {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(len(b.Pattern), len(a.Pattern)), strings.Compare(a.Pattern, b.Pattern))
}

// leastJitter is the smallest jitter that weir uses, even if the operator allows less. Timers of operating systems are
// not finer.
const leastJitter = time.Millisecond

// CallRules returns the rules for an api's calls: its own, with a jitter of at least leastJitter.
func (a *API) CallRules() bucket.Rules {
	rules := a.Rules
	rules.Jitter = max(rules.Jitter, leastJitter)
	return rules
}

// longestDrain bounds burst × interval. Beyond it the time of a reserved slot would not be a valid date.
const longestDrain = 100 * 365 * grammar.Day

// drains reports whether calls of a full burst end within longestDrain. t is the rate's interval.
func drains(t bucket.Interval, burst int64) bool {
	needs, needsLow := bits.Mul64(uint64(burst), uint64(t.P))
	has, hasLow := bits.Mul64(uint64(t.Q), uint64(longestDrain/time.Microsecond))
	return needs < has || needs == has && needsLow <= hasLow
}

const (
	mostAdmit = 16
	mostSoft  = 1000 // percent
)

// admission returns the fields of a limit that the intake checks when a job arrives. The default burst of a bucket is
// the rate's count: one period's jobs may arrive together. A window has no burst of its own, so its burst is its count.
func admission(a *bucket.Admission) field.Section {
	return field.Section{
		Fields: []field.Field{
			{
				Name:  "rate",
				Is:    field.One(&a.Rate, field.Rate()),
				Needs: grammar.RateFix,
				Means: "how many jobs of a key weir accepts",
			},
			{
				Name: "algorithm", Or: string(bucket.SlidingWindowCounter),
				Is: field.One(&a.Algorithm,
					field.Word(bucket.TokenBucket, bucket.LeakyBucket, bucket.FixedWindow, bucket.SlidingLog,
						bucket.SlidingWindowCounter)),
				Means: "how weir counts them ([limits](limits.md))",
			},
			{
				Name: "burst", Is: field.One(&a.Rate.Burst, field.Whole[int64](1, mostBurst)),
				Otherwise: "the count of `rate`", Absent: func() { a.Rate.Burst = a.Rate.Count },
				Means: "for `token_bucket` and `leaky_bucket`: how many jobs weir accepts together",
			},
			{
				Name: "soft", Is: field.One(&a.SoftPercent, field.Percent(0, mostSoft)), Or: "0%",
				Means: "how much more weir accepts and marks before it refuses a job",
			},
			{
				Name:  "elastic",
				Is:    field.One(&a.Elastic, field.Yes()),
				Or:    "false",
				Means: "`true`: a key may borrow what the others leave unused",
			},
		},
		Check: func(f field.Fields) {
			if a.Algorithm != bucket.TokenBucket && a.Algorithm != bucket.LeakyBucket {
				f.Ignored("to "+string(a.Algorithm), "burst")
			}
		},
	}
}
