package config

import (
	"cmp"
	"fmt"
	"math/big"
	"strconv"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// mostShared bounds the shared limits of an api. Each reservation asks all of them.
const mostShared = 32

// limit returns the fields of a limit that all keys share. of has the rules that were read so far. price is what a call
// costs; it is nil for a limit of an account. usage has the usage counters. lines maps the names of the limits read so
// far to their lines. A limit without a name gets the name of its kind. A limit whose value could not be read still has
// its kind, so that the other checks of the file can continue.
func limit(l *bucket.Limit, of *bucket.Rules, price *ingest.Cost, usage *[]Usage, lines map[string]int) section {
	l.Rate, l.Quota, l.Budget = &bucket.Rate{}, &bucket.Quota{}, &bucket.Budget{}
	at := &limitFields{Limit: l, rate: l.Rate, quota: l.Quota, budget: l.Budget, zone: time.UTC}
	all := append([]field{
		{
			name: "name", is: one(&l.Name, limitName()),
			otherwise: "the kind of limit",
			means: "the limit's name in events, metrics and `weir show`. A limit keeps its count as long as it keeps its name. " +
				"So give it another name if it counts something else from now on: a `quota` that becomes a `budget`, or another unit of `cost`",
		},
	}, pace(l.Rate)...)
	for i, means := range []string{
		"the most calls, or units of `cost`, in any window as long as its period",
		"for a `rate`: how much may start together. No job may cost more", "for a `rate`: as in `bucket`",
	} {
		all[i+1].means, all[i+1].needs = means, ""
	}
	if price != nil {
		all = append(all, field{
			name: "per", is: one(&at.per, word(perAPI, perReplica)), or: string(perAPI),
			means: "`replica`: a `rate` or `in_flight` counts the calls of each weir for itself ([levels](levels.md))",
		})
	}
	return section{
		fields: append(all, []field{
			{
				name: "quota", means: "a count per day, month or other period",
				is: one(l.Quota, quota("a quota", quotaCount, func(n int64) string { return strconv.FormatInt(n, 10) })),
			},
			{
				name: "window", is: one(&at.window, word(bucket.Calendar, bucket.Sliding, bucket.Fixed)),
				otherwise: "`calendar` for a period of the calendar, else `sliding`",
				means: "for a `quota` or `budget`: a period of the calendar; any window of that length (`sliding`); or one period after " +
					"another since 1970 (`fixed`)",
			},
			{
				name: "tz", is: one(&at.zone, zone()), or: "UTC",
				means: "the time zone in which days and months begin, with the window `calendar`",
			},
			{
				name: "cost", is: cost(&l.Cost, usage), otherwise: "`1`",
				means: "how much of a `rate` or `quota` a call takes. If it is a list, the call takes the sum ([costs](costs.md))",
			},
			{
				name: "left", is: one(&l.Left, answerHeader()), otherwise: "none",
				means: "the header of an answer that says how much the vendor has left of a `rate` or `quota`. If that is less " +
					"than weir counts, weir counts the difference as used ([limits](limits.md))",
			},
			{
				name: "left_until", is: one(&l.LeftUntil, answerHeader()), otherwise: "none",
				means: "the header that says when the vendor's count begins anew: seconds, a time since 1970, a date, or a " +
					"duration such as `6m0s`. Needs `left`. Without it: one period of the limit",
			},
			{name: "in_flight", is: one(&l.InFlight, whole[int64](1, mostInFlight)), means: "how many calls may run at once"},
			{
				name: "budget", means: "how much calls may cost, by `price`",
				is: one(&l.Budget.Quota, quota("money per period, as in `200.00/day`", budgetCount, func(n int64) string { return Money(n).String() })),
			},
			{
				name: "on_exhausted", is: one(&l.Budget.OnExhausted, word(bucket.Hold, bucket.DeadLetter)), or: string(bucket.Hold),
				means: "when a `budget` is used up: jobs wait for the next period, or become `over_budget` letters",
			},
			{name: "shadow", is: one(&l.Shadow, yes()), or: "false", means: "`true`: the limit only watches ([limits](limits.md))"},
		}...),
		check:     func(f fields) { at.check(f, of, price, lines) },
		entryName: func() string { return l.Name },
		relations: object{
			"oneOf": []object{required("rate"), required("quota"), required("in_flight"), required("budget")},
			"dependencies": object{
				"burst": []string{"rate"}, "counts": []string{"rate"}, "on_exhausted": []string{"budget"},
				"window": object{"anyOf": []object{required("quota"), required("budget")}},
				"tz":     object{"anyOf": []object{required("quota"), required("budget")}},
				"cost":   object{"anyOf": []object{required("rate"), required("quota")}},
				"left":   object{"anyOf": []object{required("rate"), required("quota")}},
			},
		},
	}
}

func required(name string) object { return object{"required": []string{name}} }

// limitFields holds the fields of every kind of limit until check knows the kind.
type limitFields struct {
	*bucket.Limit
	rate   *bucket.Rate
	quota  *bucket.Quota
	budget *bucket.Budget
	window bucket.Window
	zone   *time.Location
	per    level
}

// level says whose calls a limit counts.
type level string

// The levels.
const (
	perAPI     level = "api"     // of all replicas together; the default
	perReplica level = "replica" // of each replica by itself
)

// check keeps the fields of the limit's kind, and reports the problems that the fields cause together. It refuses a
// second limit with the same name.
func (l *limitFields) check(f fields, of *bucket.Rules, price *ingest.Cost, lines map[string]int) {
	l.Rate, l.Quota, l.Budget = nil, nil, nil
	kind, ok := limitKind(f)
	if !ok {
		return
	}
	for _, other := range bucket.Kinds() {
		if other != kind {
			f.leave(string(other))
		}
	}
	f.leave("name")
	l.Name = cmp.Or(l.Name, unnamed(kind))
	switch kind {
	case bucket.KindRate:
		f.ignored("to a rate", "window", "tz", "on_exhausted")
		l.Rate = l.rate
		checkPace(f, l.rate, *of)
	case bucket.KindQuota:
		f.ignored("to a quota", "burst", "counts", "on_exhausted")
		l.Quota = l.quota
		layQuota(f, "quota", l.quota, &l.window, l.zone)
	case bucket.KindInFlight:
		f.ignored("to in_flight", "burst", "counts", "window", "tz", "cost", "on_exhausted")
		f.ignored("to in_flight: an answer comes when its call has ended", "left", "left_until")
	case bucket.KindBudget:
		f.ignored("to a budget: every call costs the api's price", "burst", "counts", "cost")
		f.ignored("to a budget: no vendor says how much money is left of it", "left", "left_until")
		l.Budget = l.budget
		layQuota(f, "budget", &l.budget.Quota, &l.window, l.zone)
	}
	switch {
	case f.has("left_until") && !f.has("left"):
		f.place("left_until").fail("says until when, and nothing says how much is left", "write left: header:NAME too")
	case f.has("left") && l.Shadow && f.clean():
		f.place("left").warn("has no effect while the limit only watches", "remove shadow: true, or left")
	}
	l.checkLevel(f, kind)
	if f.clean() && l.Cost.Usual() == 0 && !l.Cost.Settles() {
		f.place("cost").fail("takes nothing for a job that lacks its numbers: such a call would reserve 0, and nothing settles it",
			"write a default above 0, or settle: json:/pointer")
	}
	if f.clean() {
		checkPassable(f, *l.Limit, *of, price)
	}
	if !f.fine("name") {
		return
	}
	place := f.place("name")
	if first, twice := lines[l.Name]; twice {
		place.fail(fmt.Sprintf("a second limit is called %q, the first on line %d", l.Name, first), "give each a name of its own")
		return
	}
	lines[l.Name] = place.line
}

// checkLevel marks a limit that counts on each replica by itself. It reports the fields that such a limit cannot have.
func (l *limitFields) checkLevel(f fields, kind bucket.Kind) {
	if l.per != perReplica {
		return
	}
	l.Replica = true
	if kind != bucket.KindRate && kind != bucket.KindInFlight {
		f.place("per").fail("a "+string(kind)+" counts over all replicas", "limit each replica by rate or in_flight, or remove per")
	}
	f.ignored("to a limit of one replica: each call counts as one", "cost", "left", "left_until", "shadow")
}

// ownRate names a key's own rate in reasons for waits. No shared limit may have this name.
const ownRate = "rate"

// unnamed returns the name of a limit that the file does not name. It derives from the kind and not from the place in
// the list, so that a limit keeps its count when another is inserted above it.
func unnamed(kind bucket.Kind) string {
	if kind == bucket.KindRate { // the kind's own word is ownRate
		return "shared-rate"
	}
	return string(kind)
}

func limitName() of[string] {
	return of[string]{func(text string) (string, error) {
		if text == ownRate {
			return "", refuse("give it another name", "%s is what weir calls the rate of a key's own bucket", quote(text))
		}
		return parseName(text)
	}, same, "a name; not `rate`", object{"type": []string{"string", "integer"}, "pattern": namePattern}}
}

// limitKind returns the kind of a limit, by the one field that names it. A limit with none or several of these fields
// is a problem.
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

// checkPassable refuses a limit that can never let a call through, and warns of limits with surprising effects.
func checkPassable(f fields, l bucket.Limit, of bucket.Rules, price *ingest.Cost) {
	switch l.Kind() {
	case bucket.KindRate:
		checkRate(f, l, of.Key.Rate)
	case bucket.KindQuota:
		checkFixed(f, *l.Quota, of.Jitter)
		left := afterHeadroom(l.Quota.Count, of.Headroom)
		if cost := max(l.Cost.Usual(), 1); !l.Cost.Varies() && cost > left {
			f.place("quota").fail(fmt.Sprintf("a call costs %d and at most %d may be spent per period: none can ever pass",
				cost, left), "raise the quota, or lower cost or headroom")
		}
	case bucket.KindInFlight: // at least one call may be in flight, whatever the headroom
	case bucket.KindBudget:
		if price == nil { // each api of the account has its own price
			checkFixed(f, l.Budget.Quota, of.Jitter)
			return
		}
		usual := Money(price.Usual())
		if price.Fixed() && usual == 0 {
			f.place("budget").fail("a budget needs to know what a call costs", "write price: 0.40 for the api")
			return
		}
		checkFixed(f, l.Budget.Quota, of.Jitter)
		left := afterHeadroom(l.Budget.Count, of.Headroom)
		if !price.Varies() && int64(usual) > left {
			f.place("budget").fail(fmt.Sprintf("a call costs %s and at most %s may be spent per period: none can ever pass",
				usual, Money(left)), "raise the budget, or lower price or headroom")
		}
	}
}

func checkRate(f fields, l bucket.Limit, own bucket.Rate) {
	cost := max(l.Cost.Usual(), 1)
	weighted := l.Cost.Varies()
	switch {
	case cost > l.Rate.Burst && !weighted:
		f.place("cost").fail(fmt.Sprintf("a call costs %d, more than the burst of %d: none can ever pass", cost, l.Rate.Burst),
			"write burst: "+strconv.FormatInt(cost, 10)+" or more")
	case weighted && l.Rate.Burst == 1:
		f.place("cost").warn("with burst 1 every job that costs more than 1 is refused", "write the highest cost as burst")
	case !weighted && !l.Shadow && own.Count > 0 && slower(*l.Rate, cost, own):
		f.place("rate").warn("all keys together are slower than the bucket of one, "+FormatRate(own), SlowLimitFix(*l.Rate))
	default:
		noteOfDay(f, *l.Rate, SlowLimitFix(*l.Rate))
	}
}

// SlowLimitFix returns the fix for an api's limit that is slower than the rate of one key. Many calls in a long period
// are probably meant as a quota: the rate 20000/day lets one call pass every 4.32 s.
func SlowLimitFix(r bucket.Rate) string {
	if r.Per >= time.Hour && r.Count > 1 {
		return "write quota: " + FormatRate(r) + " if they may be used at any time of the period: a rate spreads them over it"
	}
	return "lower bucket.rate, or raise this"
}

// noteOfDay notes that a rate of a day or more spreads its calls over that period. An API's daily allowance may not
// require that.
func noteOfDay(f fields, r bucket.Rate, fix string) {
	if f.has("rate") && r.Per >= day && r.Count > 1 {
		every := (r.Per / time.Duration(r.Count)).Round(time.Millisecond)
		f.place("rate").note(FormatRate(r)+" spreads the calls over the period: one every "+FormatDuration(every), fix)
	}
}

// allowanceFix returns the fix for a key's rate that is really an API's daily allowance.
func allowanceFix(r bucket.Rate) string {
	return "if they may be used at any time of the period, write limits: [{name: allowance, quota: " + FormatRate(r) +
		"}] for all keys together, and as rate the highest pace"
}

// checkFixed refuses a fixed window that jitter fills. Calls keep the jitter as a distance from both ends of the
// window.
func checkFixed(f fields, q bucket.Quota, jitter time.Duration) {
	if q.Window == bucket.Fixed && q.Per <= 2*jitter+time.Microsecond {
		f.place("window").fail("a fixed window of "+FormatDuration(q.Per)+" has no room between the jitter of "+
			FormatDuration(jitter)+" at both its ends", "write a longer period or less jitter")
	}
}

// afterHeadroom returns count less percent of it, but at least 1.
func afterHeadroom(count, percent int64) int64 { return max(1, count*(100-percent)/100) }

// slower reports whether calls of this cost leave more slowly at the rate shared than at the rate own.
func slower(shared bucket.Rate, cost int64, own bucket.Rate) bool {
	// Per × cost / Count is the time between two calls. Multiplied crosswise, the comparison rounds nothing.
	theirs := new(big.Int).Mul(big.NewInt(int64(shared.Per)), big.NewInt(cost))
	theirs.Mul(theirs, big.NewInt(own.Count))
	ours := new(big.Int).Mul(big.NewInt(int64(own.Per)), big.NewInt(shared.Count))
	return theirs.Cmp(ours) > 0
}
