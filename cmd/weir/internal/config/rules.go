package config

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
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
func rules(r *bucket.Rules, price *ingest.Cost, usage *[]Usage) []field {
	lines := map[string]int{} // of the shared limits, by name
	return []field{
		{name: "headroom", is: one(&r.Headroom, percent(0, 99)), or: "0%", means: "how far weir stays below every limit"},
		{
			name: "jitter", is: one(&r.Jitter, duration(0, mostJitter)), or: FormatDuration(DefaultJitter),
			means: "how much later than planned a call may reach the API. weir widens its intervals by it, so that limits hold at " +
				"the API. Set it higher on a busy or slow machine",
		},
		{
			name: "bucket", is: mapping(func() section { return keyLimits(&r.Key, r) }), needs: "write bucket: {rate: 10/s, capacity: 500}",
			means: "every key's own leaky bucket",
		},
		{
			name: "limits", otherwise: "none",
			is:    items(&r.Shared, mostShared, func(l *bucket.Limit) section { return limit(l, r, price, usage, lines) }),
			means: "limits that all keys share; a call must be within all of them",
		},
		{name: "admit", is: items(&r.Admit, mostAdmit, admission), otherwise: "none", means: "limits on how many jobs of each key weir accepts"},
		{
			name: "priorities", is: mapping(func() section { return priorities(&r.Weights) }),
			means: "how calls are divided among the priorities that have jobs waiting, within a key and at shared limits",
		},
		{
			name: "keys", otherwise: "none",
			is: named(&r.Overrides, mostOverrides, "PATTERN", func(o *bucket.Override) section { return override(o, r) },
				func(o *bucket.Override) *string { return &o.Pattern }),
			means: "other buckets for some keys",
		},
	}
}

// priorities returns the fields of the weights: one for each value of Weir-Priority.
func priorities(w *bucket.Weights) section {
	weight := whole[int64](1, bucket.MostWeight)
	return section{fields: []field{
		{name: "high", is: one(&w.High, weight), or: "16", means: "the weight of jobs with `Weir-Priority: high`"},
		{name: "normal", is: one(&w.Normal, weight), or: "4", means: "the weight of jobs with `Weir-Priority: normal`, and of those without"},
		{name: "low", is: one(&w.Low, weight), or: "1", means: "the weight of jobs with `Weir-Priority: low`, and of redriven ones"},
	}}
}

// pace returns the fields of a rate of calls.
func pace(r *bucket.Rate) []field {
	counts := word(bucket.ByWindow, bucket.ByTokens)
	counts.show = func(c bucket.Counting) string { return string(cmp.Or(c, bucket.ByWindow)) }
	return []field{
		{name: "rate", is: one(r, rate().but("a rate", func(text string) (bucket.Rate, error) {
			got, err := ParseRate(text)
			got.Burst, got.Counts = r.Burst, r.Counts
			return got, err
		})), needs: rateFix, means: "how fast the bucket drains into the API"},
		{
			name: "burst", is: one(&r.Burst, whole[int64](1, mostBurst)), or: "1",
			means: "how many calls may start together after idling; `counts` says whether they lower the steady rate",
		},
		{
			name: "counts", is: one(&r.Counts, counts), otherwise: "`window`",
			means: "how the API counts. `window`: never more than the rate's count in any period, bursts included. `token_bucket`: " +
				"never more than `burst` + rate × time ([limits](limits.md))",
		},
	}
}

// keyLimits returns the fields of the bucket that every key has. If the rate was refused, its Count is 0. of has the
// headroom and the jitter.
func keyLimits(k *bucket.KeyLimits, of *bucket.Rules) section {
	wait := duration(time.Millisecond, longestPeriod)
	return section{
		fields: append(pace(&k.Rate), []field{
			{
				name: "capacity", is: one(&k.Capacity, whole[int64](1, mostCapacity)), needs: "write how many jobs of one key may wait, as in 500",
				means: "how many unfinished jobs a key may have, including running calls; one more overflows",
			},
			{
				name: "max_wait", is: one(&k.MaxWait, orEmpty(wait.but(wait.words, maxWait))), otherwise: "no bound",
				means: "a job that would wait longer overflows; with `Weir-Not-Before` the wait begins at that time",
			},
			{
				name: "in_flight", is: one(&k.InFlight, whole[int64](1, mostInFlight)), or: "4",
				means: "how many calls of the key may run at once; 1 means strictly one after another",
			},
		}...),
		check: func(f fields) {
			checkPace(f, &k.Rate, *of)
			noteOfDay(f, k.Rate, allowanceFix(k.Rate))
		},
	}
}

// maxWait reads how long a job may wait. It refuses 0, which could mean "not at all" or "no bound".
func maxWait(text string) (time.Duration, error) {
	if d, err := ParseDuration(text); err == nil && d == 0 {
		return 0, refuse("remove it for no bound, or write at least 1ms", "%s would let no job wait", quote(text))
	}
	return durationIn(time.Millisecond, longestPeriod)(text)
}

// checkPace checks a rate together with its burst and how the api counts it. pace has the headroom and the jitter,
// which reduce a rate.
func checkPace(f fields, r *bucket.Rate, pace bucket.Rules) {
	if !f.fine("rate", "burst", "counts") || r.Count == 0 {
		return
	}
	before := len(f.doc.problems)
	if r.Counts = counted(f, *r); len(f.doc.problems) > before {
		return
	}
	if !drains(pace.Interval(*r), r.Burst) {
		f.place("burst").fail("a burst of "+strconv.FormatInt(r.Burst, 10)+" at "+FormatRate(*r)+
			" takes over 100 years to drain", "lower the burst or raise the rate")
		return
	}
	warnOfPace(f, *r, pace)
}

// counted returns how the api counts a rate. It reports a problem if a burst exceeds the count of a window.
func counted(f fields, r bucket.Rate) bucket.Counting {
	switch {
	case r.Counts == bucket.ByTokens:
		return bucket.ByTokens
	case r.Burst <= r.Count:
		return "" // by the window, stated or not: two files that mean the same must be equal
	}
	place := f.place("burst")
	if !f.has("burst") && f.has("rate") {
		place = f.place("rate")
	}
	place.fail("a burst of "+strconv.FormatInt(r.Burst, 10)+" is more than "+FormatRate(r)+" may see in any period of "+FormatDuration(r.Per),
		"write counts: token_bucket if the api lets through its burst + rate × time, or a burst of at most "+strconv.FormatInt(r.Count, 10))
	return r.Counts
}

// warnOfPace warns if jitter and burst leave less than half of the rate.
func warnOfPace(f fields, r bucket.Rate, pace bucket.Rules) {
	pace.Headroom = 0 // its effect is intended
	steady, hoped := pace.Interval(r).Duration(), r.Per/time.Duration(r.Count)
	switch {
	case steady <= 2*hoped:
	case r.Counts == bucket.ByTokens:
		f.place("burst").warn("jitter leaves less than half of "+FormatRate(r)+" of a token bucket of "+strconv.FormatInt(r.Burst, 10),
			"write the burst that the api publishes, or lower jitter")
	case r.Burst > 1:
		f.place("burst").warn("burst and jitter leave less than half of "+FormatRate(r)+
			" in the long run, for no period to see more than it",
			"write counts: token_bucket if the api lets through its burst + rate × time; else lower burst or jitter, or write the rate for a longer period")
	default: // the burst is 1 and cannot be lowered
		f.place("rate").warn("jitter leaves less than half of "+FormatRate(r)+
			" in the long run, for no period to see more than it", "lower the api's jitter, or write the rate for a longer period")
	}
}

// override returns the fields of o. For the keys that o.Pattern matches, they replace the fields of every key's bucket,
// of.Key.
func override(o *bucket.Override, of *bucket.Rules) section {
	k := of.Key
	s := keyLimits(&k, of)
	for i := range s.fields {
		fd := &s.fields[i]
		fd.needs, fd.or, fd.otherwise, fd.means = "", "", "that of `bucket`", "as in `bucket`"
	}
	s.check = func(f fields) {
		if o.Pattern == "" || len(o.Pattern) > longestName {
			f.fail("is no key", "write a key of 1 to 128 bytes, or a pattern with *")
		} else if len(f.node.Content) == 0 {
			f.fail("changes nothing", "write rate, burst, counts, capacity, max_wait or in_flight")
		}
		if f.has("rate") || f.has("burst") || f.has("counts") {
			checkPace(f, &k.Rate, *of)
			noteOfDay(f, k.Rate, allowanceFix(k.Rate))
			o.Rate = &k.Rate
		} else {
			f.leave("rate", "burst", "counts")
		}
		set(f, "capacity", &o.Capacity, &k.Capacity)
		set(f, "max_wait", &o.MaxWait, &k.MaxWait)
		set(f, "in_flight", &o.InFlight, &k.InFlight)
	}
	return s
}

// set points *at to value if the file has the field. Otherwise it keeps the field out of differences.
func set[T any](f fields, name string, at **T, value *T) {
	if f.has(name) {
		*at = value
	} else {
		f.leave(name)
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
