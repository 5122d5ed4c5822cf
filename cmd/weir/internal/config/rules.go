package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
)

// Bounds of a bucket's fields; the contract of the file format.
const (
	mostBurst     = 1_000_000
	mostCapacity  = 10_000_000
	mostInFlight  = 100_000
	mostOverrides = 10_000
	mostJitter    = 10 * time.Second

	// DefaultJitter is how much later than planned a call may arrive unless the file says.
	DefaultJitter = 5 * time.Millisecond

	// leaseMargin is added to an api's timeout and jitter: a permit is taken back only when its call cannot still be
	// running. The lease begins with the slot; the call starts within the jitter and ends one second late at most.
	// Until then the permit of a dead replica is unused.
	leaseMargin = 5 * time.Second
)

// readRules reads every limit of an api.
func readRules(f fields, price Money, timeout time.Duration) bucket.Rules {
	r := bucket.Rules{
		Key:      bucket.KeyLimits{InFlight: 4, Rate: bucket.Rate{Burst: 1}},
		Headroom: read(f, "headroom", 0, percentIn(99)),
		Jitter:   read(f, "jitter", DefaultJitter, durationIn(0, mostJitter)),
	}
	r.Lease = timeout + r.Jitter + leaseMargin
	if v, ok := f.byName["bucket"]; ok {
		r.Key = readBucket(v, r)
	} else {
		f.require("bucket", "write bucket: {rate: 10/s, capacity: 500}")
	}
	if v, ok := f.byName["limits"]; ok {
		r.Shared = readShared(v, r, price)
	}
	if v, ok := f.byName["admit"]; ok {
		r.Admit = readAdmit(v)
	}
	if v, ok := f.byName["keys"]; ok {
		r.Overrides = readOverrides(v, r)
	}
	return r
}

// readBucket reads the bucket that every key has; the rate's Count is 0 if it was refused. rules have the defaults,
// headroom and jitter.
func readBucket(v value, rules bucket.Rules) bucket.KeyLimits {
	defaults := rules.Key
	f, ok := v.fields("rate", "burst", "counts", "capacity", "max_wait", "in_flight")
	if !ok {
		return defaults
	}
	f.require("rate", rateFix)
	f.require("capacity", "write how many jobs of one key may wait, as in 500")
	return bucket.KeyLimits{
		Rate:     readRate(f, defaults.Rate, rules),
		Capacity: read(f, "capacity", 0, wholeIn(1, mostCapacity)),
		MaxWait:  read(f, "max_wait", 0, maxWait),
		InFlight: read(f, "in_flight", defaults.InFlight, wholeIn(1, mostInFlight)),
	}
}

// maxWait reads how long a job may wait. It refuses 0, which could mean "not at all" as well as "no bound".
func maxWait(text string) (time.Duration, error) {
	if d, err := ParseDuration(text); err == nil && d == 0 {
		return 0, refuse("remove it for no bound, or write at least 1ms", "%s would let no job wait", quote(text))
	}
	return durationIn(time.Millisecond, longestPeriod)(text)
}

// readRate reads a rate, its burst and how the api counts it. Absent fields keep their defaults. pace has the headroom
// and the jitter, which reduce a rate.
func readRate(f fields, defaults bucket.Rate, pace bucket.Rules) bucket.Rate {
	before := len(f.doc.problems)
	r := read(f, "rate", defaults, ParseRate)
	r.Burst = read(f, "burst", defaults.Burst, wholeIn(1, mostBurst))
	r.Counts = read(f, "counts", defaults.Counts, oneOf(bucket.ByWindow, bucket.ByTokens))
	if len(f.doc.problems) > before || r.Count == 0 {
		return r
	}
	if r.Counts = counted(f, r); len(f.doc.problems) > before {
		return r
	}
	if !drains(pace.Interval(r), r.Burst) {
		f.place("burst").fail("a burst of "+strconv.FormatInt(r.Burst, 10)+" at "+FormatRate(r)+
			" takes over 100 years to drain", "lower the burst or raise the rate")
		return r
	}
	warnOfPace(f, r, pace)
	return r
}

// counted returns how the api counts a rate. No window has room for a burst above the count.
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

// warnOfPace warns of a burst, or a missing one, that leaves little of the rate.
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
	default:
		f.place("burst").warn("burst and jitter leave less than half of "+FormatRate(r)+
			" in the long run, for no period to see more than it", "lower burst or jitter, or write the rate for a longer period")
	}
}

// readOverrides reads what single keys have instead of the rules' Key, which is the bucket of all.
func readOverrides(v value, of bucket.Rules) []bucket.Override {
	entries, _ := v.entries(mostOverrides)
	overrides := make([]bucket.Override, 0, len(entries))
	for _, e := range entries {
		if e.name == "" || len(e.name) > longestName {
			e.fail("is no key", "write a key of 1 to 128 bytes, or a pattern with *")
			continue
		}
		overrides = append(overrides, readOverride(e, of))
	}
	slices.SortStableFunc(overrides, moreExact)
	return overrides
}

func readOverride(e entry, of bucket.Rules) bucket.Override {
	o := bucket.Override{Pattern: e.name}
	before := len(e.doc.problems)
	f, _ := e.fields("rate", "burst", "counts", "capacity", "max_wait", "in_flight")
	if f.has("rate") || f.has("burst") || f.has("counts") {
		r := readRate(f, of.Key.Rate, of)
		o.Rate = &r
	}
	if f.has("capacity") {
		capacity := read(f, "capacity", 0, wholeIn(1, mostCapacity))
		o.Capacity = &capacity
	}
	if f.has("max_wait") {
		wait := read(f, "max_wait", 0, maxWait)
		o.MaxWait = &wait
	}
	if f.has("in_flight") {
		inFlight := read(f, "in_flight", 0, wholeIn(1, mostInFlight))
		o.InFlight = &inFlight
	}
	if len(f.byName) == 0 && len(e.doc.problems) == before {
		e.fail("changes nothing", "write rate, burst, counts, capacity, max_wait or in_flight")
	}
	return o
}

// moreExact orders overrides by precedence: a pattern without * first, and then the longer one. Equally long patterns
// are ordered by the alphabet, so that the result never depends on the order of a YAML mapping.
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

// leastJitter is the smallest jitter, even if the operator allows none: timers of an operating system are not finer.
const leastJitter = time.Millisecond

// CallRules returns the rules that an api's calls are made by: the api's own, with at least leastJitter.
func (a *API) CallRules() bucket.Rules {
	rules := a.Rules
	rules.Jitter = max(rules.Jitter, leastJitter)
	return rules
}
