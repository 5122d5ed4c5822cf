package config

import (
	"cmp"
	"fmt"
	"math/big"
	"strconv"
	"time"

	"weir/bucket"
)

// mostShared bounds the shared limits of an api: one reservation asks all of them.
const mostShared = 32

// readShared reads the limits that all keys share; of are the rules read so far, price is what a call costs.
func readShared(v value, of bucket.Rules, price Money) []bucket.Limit {
	items := v.list(mostShared)
	limits := make([]bucket.Limit, 0, len(items))
	lines := make(map[string]int, len(items))
	for _, item := range items {
		l, place, ok := readLimit(item, of, price)
		if !ok {
			continue
		}
		if first, twice := lines[l.Name]; twice {
			place.fail(fmt.Sprintf("a second limit is called %q, the first on line %d", l.Name, first),
				"give each a name of its own")
			continue
		}
		lines[l.Name] = place.line
		limits = append(limits, l)
	}
	return limits
}

// readLimit reads one shared limit. It returns the place of the limit's name, and whether the name must be unique. A
// limit without a name is called by its kind. A limit whose value could not be read has its kind, so that the other
// checks of the file can continue.
func readLimit(item value, of bucket.Rules, price Money) (bucket.Limit, value, bool) {
	before := len(item.doc.problems)
	f, ok := item.fields("name", "rate", "burst", "counts", "quota", "window", "tz", "cost", "in_flight", "budget", "on_exhausted",
		"shadow")
	if !ok {
		return bucket.Limit{}, item, false
	}
	kind, ok := limitKind(f)
	if !ok {
		return bucket.Limit{}, item, false
	}
	l := bucket.Limit{Name: read(f, "name", unnamed(kind), limitName)}
	named := len(item.doc.problems) == before
	l.Shadow = read(f, "shadow", false, yesOrNo)
	switch kind {
	case bucket.KindRate:
		f.ignored("to a rate", "window", "tz", "on_exhausted")
		r := readRate(f, bucket.Rate{Burst: 1}, of)
		l.Rate, l.Cost = &r, readCost(f)
	case bucket.KindQuota:
		f.ignored("to a quota", "burst", "counts", "on_exhausted")
		l.Quota, l.Cost = cmp.Or(readQuota(f, "quota", quotaCount), &bucket.Quota{}), readCost(f)
	case bucket.KindInFlight:
		f.ignored("to in_flight", "burst", "counts", "window", "tz", "cost", "on_exhausted")
		l.InFlight = read(f, "in_flight", 1, wholeIn(1, mostInFlight))
	case bucket.KindBudget:
		f.ignored("to a budget: every call costs the api's price", "burst", "counts", "cost")
		exhausted := read(f, "on_exhausted", bucket.Hold, oneOf(bucket.Hold, bucket.DeadLetter))
		q := cmp.Or(readQuota(f, "budget", budgetCount), &bucket.Quota{})
		l.Budget = &bucket.Budget{Quota: *q, OnExhausted: exhausted}
	}
	if len(item.doc.problems) == before {
		checkPassable(f, l, of, price)
	}
	return l, f.place("name"), named
}

// ownRate is the name of a key's own rate in the reasons for waits, so no shared limit can have it.
const ownRate = "rate"

// unnamed returns the name of a limit without one: its kind, and not its place in the list, so that it keeps its count
// when another is written above it.
func unnamed(kind bucket.Kind) string {
	if kind == bucket.KindRate { // its word is ownRate
		return "shared-rate"
	}
	return string(kind)
}

func limitName(text string) (string, error) {
	if text == ownRate {
		return "", refuse("give it another name", "%s is what weir calls the rate of a key's own bucket", quote(text))
	}
	return name(text)
}

// limitKind returns which kind a limit is, by the field of that name; none or several is a problem.
func limitKind(f fields) (bucket.Kind, bool) {
	const fix = "write exactly one of rate, quota, in_flight and budget"
	kind := bucket.Kind("")
	for _, k := range bucket.Kinds() {
		switch {
		case !f.has(string(k)):
		case kind == "":
			kind = k
		default:
			f.fail(fmt.Sprintf("limits both %s and %s", kind, k), fix+"; a second limit is a second entry")
			return "", false
		}
	}
	if kind == "" {
		f.fail("limits nothing", fix)
	}
	return kind, kind != ""
}

// checkPassable refuses a limit that can never let a call through, and warns of a limit with a surprising effect.
func checkPassable(f fields, l bucket.Limit, of bucket.Rules, price Money) {
	switch l.Kind() {
	case bucket.KindRate:
		checkRate(f, l, of.Key.Rate)
	case bucket.KindQuota:
		checkFixed(f, *l.Quota, of.Jitter)
		left := afterHeadroom(l.Quota.Count, of.Headroom)
		if cost := max(l.Cost.Constant, 1); cost > left {
			f.place("quota").fail(fmt.Sprintf("a call costs %d and at most %d may be spent per period: none can ever pass",
				cost, left), "raise the quota, or lower cost or headroom")
		}
	case bucket.KindInFlight: // at least one call may be under way, whatever the headroom
	case bucket.KindBudget:
		if price == 0 {
			f.place("budget").fail("a budget needs to know what a call costs", "write price: 0.40 for the api")
			return
		}
		checkFixed(f, l.Budget.Quota, of.Jitter)
		left := afterHeadroom(l.Budget.Count, of.Headroom)
		if int64(price) > left {
			f.place("budget").fail(fmt.Sprintf("a call costs %s and at most %s may be spent per period: none can ever pass",
				price, Money(left)), "raise the budget, or lower price or headroom")
		}
	}
}

func checkRate(f fields, l bucket.Limit, own bucket.Rate) {
	cost := max(l.Cost.Constant, 1)
	weighted := l.Cost.Header != "" || l.Cost.Pointer != ""
	switch {
	case cost > l.Rate.Burst:
		f.place("cost").fail(fmt.Sprintf("a call costs %d, more than the burst of %d: none can ever pass", cost, l.Rate.Burst),
			"write burst: "+strconv.FormatInt(cost, 10)+" or more")
	case weighted && l.Rate.Burst == 1:
		f.place("cost").warn("with burst 1 every job that costs more than 1 is refused", "write the highest cost as burst")
	case !weighted && !l.Shadow && own.Count > 0 && slower(*l.Rate, cost, own):
		f.place("rate").warn("all keys together are slower than the bucket of one, "+FormatRate(own), SlowLimitFix(*l.Rate))
	}
}

// SlowLimitFix says what to do about a limit of an api that is slower than the rate of one key. Many calls in a long
// time are probably meant as a quota: as a rate 20000/day lets one call pass every 4.32 s.
func SlowLimitFix(r bucket.Rate) string {
	if r.Per >= time.Hour && r.Count > 1 {
		return "write quota: " + FormatRate(r) + " if they may be used at any time of the period: a rate spreads them over it"
	}
	return "lower bucket.rate, or raise this"
}

// checkFixed refuses a fixed window that jitter fills: calls stay that far away from both its ends.
func checkFixed(f fields, q bucket.Quota, jitter time.Duration) {
	if q.Window == bucket.Fixed && q.Per <= 2*jitter+time.Microsecond {
		f.place("window").fail("a fixed window of "+FormatDuration(q.Per)+" has no room between the jitter of "+
			FormatDuration(jitter)+" at both its ends", "write a longer period or less jitter")
	}
}

// afterHeadroom returns what percent of free headroom leaves of count; at least 1.
func afterHeadroom(count, percent int64) int64 { return max(1, count*(100-percent)/100) }

// slower reports whether calls of that cost leave more slowly by shared than by own.
func slower(shared bucket.Rate, cost int64, own bucket.Rate) bool {
	// Per × cost / Count is the time between two calls; multiplied crosswise, so that nothing is rounded.
	theirs := new(big.Int).Mul(big.NewInt(int64(shared.Per)), big.NewInt(cost))
	theirs.Mul(theirs, big.NewInt(own.Count))
	ours := new(big.Int).Mul(big.NewInt(int64(own.Per)), big.NewInt(shared.Count))
	return theirs.Cmp(ours) > 0
}
