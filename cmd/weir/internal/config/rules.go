package config

import (
	"cmp"
	"slices"
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
)

// readRules reads every limit of an api.
func readRules(f fields, price Money) bucket.Rules {
	r := bucket.Rules{
		Key:      bucket.KeyLimits{InFlight: 4, Rate: bucket.Rate{Burst: 1}},
		Headroom: read(f, "headroom", 0, percentIn(99)),
		Jitter:   read(f, "jitter", 5*time.Millisecond, durationIn(0, mostJitter)),
	}
	if v, ok := f.byName["bucket"]; ok {
		r.Key = readBucket(v, r.Key)
	} else {
		f.require("bucket", "write bucket: {rate: 10/s, capacity: 500}")
	}
	if v, ok := f.byName["limits"]; ok {
		r.Shared = readShared(v, sharedContext{price: price, headroom: r.Headroom, bucket: r.Key.Rate})
	}
	if v, ok := f.byName["admit"]; ok {
		r.Admit = readAdmit(v)
	}
	if v, ok := f.byName["keys"]; ok {
		r.Overrides = readOverrides(v, r.Key)
	}
	return r
}

// readBucket reads the bucket that every key has; the rate's Count is 0 when it was refused.
func readBucket(v value, defaults bucket.KeyLimits) bucket.KeyLimits {
	f, ok := v.fields("rate", "burst", "capacity", "max_wait", "in_flight")
	if !ok {
		return defaults
	}
	f.require("rate", rateFix)
	f.require("capacity", "write how many jobs of one key may wait, as in 500")
	return bucket.KeyLimits{
		Rate:     readRate(f, "rate", defaults.Rate),
		Capacity: read(f, "capacity", 0, wholeIn(1, mostCapacity)),
		MaxWait:  read(f, "max_wait", 0, maxWait),
		InFlight: read(f, "in_flight", defaults.InFlight, wholeIn(1, mostInFlight)),
	}
}

// maxWait reads how long a job may wait; 0 is refused because it could mean "not at all" as well as "no bound".
func maxWait(text string) (time.Duration, error) {
	if d, err := ParseDuration(text); err == nil && d == 0 {
		return 0, refuse("remove it for no bound, or write at least 1ms", "%s would let no job wait", quote(text))
	}
	return durationIn(time.Millisecond, longestPeriod)(text)
}

// readRate reads a rate and its burst; each keeps what defaults say when absent.
func readRate(f fields, field string, defaults bucket.Rate) bucket.Rate {
	before := len(f.doc.problems)
	r := read(f, field, defaults, ParseRate)
	r.Burst = read(f, "burst", defaults.Burst, wholeIn(1, mostBurst))
	if len(f.doc.problems) > before || r.Count == 0 {
		return r
	}
	if !countable(r) {
		f.place(field).fail("cannot be counted exactly with a burst this large",
			"lower the burst or round the rate, as in 1000/h instead of 1001/h")
	}
	if f.has("burst") && r.Burst > r.Count {
		f.place("burst").warn("after idling more calls leave at once than "+FormatRate(r)+" lets out in its whole period",
			"lower burst if the api counts per period")
	}
	return r
}

// readOverrides reads what single keys have instead of the bucket of all.
func readOverrides(v value, of bucket.KeyLimits) []bucket.Override {
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

func readOverride(e entry, of bucket.KeyLimits) bucket.Override {
	o := bucket.Override{Pattern: e.name}
	before := len(e.doc.problems)
	f, _ := e.fields("rate", "burst", "capacity", "max_wait", "in_flight")
	if f.has("rate") || f.has("burst") {
		r := readRate(f, "rate", of.Rate)
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
		e.fail("changes nothing", "write rate, burst, capacity, max_wait or in_flight")
	}
	return o
}

// moreExact orders overrides so that the first match wins: a pattern without * first, then the one with more letters
// that must match, then by the alphabet so that the order never depends on the file's.
func moreExact(a, b bucket.Override) int {
	wildA, wildB := strings.Count(a.Pattern, "*"), strings.Count(b.Pattern, "*")
	return cmp.Or(
		cmp.Compare(min(wildA, 1), min(wildB, 1)),
		cmp.Compare(len(b.Pattern)-wildB, len(a.Pattern)-wildA),
		strings.Compare(a.Pattern, b.Pattern),
	)
}
