package config

import (
	"cmp"
	"fmt"
	"math/big"
	"strconv"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
	"weir/ingest"
)

// mostShared bounds the shared limits of an api. Each reservation asks all of them.
const mostShared = 32

// limit returns the fields of a limit that all keys share. of has the rules that were read so far. price is what a call
// costs; it is nil for a limit of an account. usage has the usage counters. lines maps the names of the limits read so
// far to their lines. A limit without a name gets the name of its kind. A limit whose value could not be read still has
// its kind, so that the other checks of the file can continue.
func limit(l *bucket.Limit, of *bucket.Rules, price *ingest.Cost, usage *[]Usage, lines map[string]int) field.Section {
	l.Rate, l.Quota, l.Budget = &bucket.Rate{}, &bucket.Quota{}, &bucket.Budget{}
	at := &limitFields{Limit: l, rate: l.Rate, quota: l.Quota, budget: l.Budget, zone: time.UTC}
	all := append([]field.Field{
		{
			Name: "name", Is: field.One(&l.Name, limitName()),
			Otherwise: "the kind of limit",
			Means: "the limit's name in events, metrics and `weir show`. A limit keeps its count as long as it keeps its " +
				"name. So give it another name if it counts something else from now on: a `quota` that becomes a `budget`, or " +
				"another unit of `cost`",
		},
	}, pace(l.Rate)...)
	for i, means := range []string{
		"the most calls, or units of `cost`, in any window as long as its period",
		"for a `rate`: how much may start together. No job may cost more", "for a `rate`: as in `bucket`",
	} {
		all[i+1].Means, all[i+1].Needs = means, ""
	}
	if price != nil {
		all = append(all, field.Field{
			Name: "per", Is: field.One(&at.per, field.Word(perAPI, perReplica)), Or: string(perAPI),
			Means: "`replica`: a `rate` or `in_flight` counts the calls of each weir for itself ([levels](levels.md))",
		})
	}
	return field.Section{
		Fields: append(all, []field.Field{
			{
				Name: "quota", Means: "a count per day, month or other period",
				Is: field.One(l.Quota,
					quota("a quota", grammar.QuotaCount, func(n int64) string { return strconv.FormatInt(n, 10) })),
			},
			{
				Name: "window", Is: field.One(&at.window, field.Word(bucket.Calendar, bucket.Sliding, bucket.Fixed)),
				Otherwise: "`calendar` for a period of the calendar, else `sliding`",
				Means: "for a `quota` or `budget`: a period of the calendar; any window of that length (`sliding`); or one " +
					"period after another since 1970 (`fixed`)",
			},
			{
				Name: "tz", Is: field.One(&at.zone, zone()), Or: "UTC",
				Means: "the time zone in which days and months begin, with the window `calendar`",
			},
			{
				Name: "cost", Is: cost(&l.Cost, usage), Otherwise: "`1`",
				Means: "how much of a `rate` or `quota` a call takes. If it is a list, the call takes the sum ([costs](costs.md))",
			},
			{
				Name: "left", Is: field.One(&l.Left, answerHeader()), Otherwise: "none",
				Means: "the header of an answer that says how much the vendor has left of a `rate` or `quota`. If that is less " +
					"than weir counts, weir counts the difference as used ([limits](limits.md))",
			},
			{
				Name: "left_until", Is: field.One(&l.LeftUntil, answerHeader()), Otherwise: "none",
				Means: "the header that says when the vendor's count begins anew: seconds, a time since 1970, a date, or a " +
					"duration such as `6m0s`. Needs `left`. Without it: one period of the limit",
			},
			{
				Name:  "in_flight",
				Is:    field.One(&l.InFlight, field.Whole[int64](1, mostInFlight)),
				Means: "how many calls may run at once",
			},
			{
				Name: "budget", Means: "how much calls may cost, by `price`",
				Is: field.One(&l.Budget.Quota,
					quota("money per period, as in `200.00/day`", grammar.BudgetCount,
						func(n int64) string { return grammar.Money(n).String() })),
			},
			{
				Name:  "on_exhausted",
				Is:    field.One(&l.Budget.OnExhausted, field.Word(bucket.Hold, bucket.DeadLetter)),
				Or:    string(bucket.Hold),
				Means: "when a `budget` is used up: jobs wait for the next period, or become `over_budget` letters",
			},
			{
				Name:  "shadow",
				Is:    field.One(&l.Shadow, field.Yes()),
				Or:    "false",
				Means: "`true`: the limit only watches ([limits](limits.md))",
			},
		}...),
		Check:     func(f field.Fields) { at.check(f, of, price, lines) },
		EntryName: func() string { return l.Name },
		Relations: field.Object{
			"oneOf": []field.Object{required("rate"), required("quota"), required("in_flight"), required("budget")},
			"dependencies": field.Object{
				"burst": []string{"rate"}, "counts": []string{"rate"}, "on_exhausted": []string{"budget"},
				"window": field.Object{"anyOf": []field.Object{required("quota"), required("budget")}},
				"tz":     field.Object{"anyOf": []field.Object{required("quota"), required("budget")}},
				"cost":   field.Object{"anyOf": []field.Object{required("rate"), required("quota")}},
				"left":   field.Object{"anyOf": []field.Object{required("rate"), required("quota")}},
			},
		},
	}
}

func required(name string) field.Object { return field.Object{"required": []string{name}} }

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
func (l *limitFields) check(f field.Fields, of *bucket.Rules, price *ingest.Cost, lines map[string]int) {
	l.Rate, l.Quota, l.Budget = nil, nil, nil
	kind, ok := limitKind(f)
	if !ok {
		return
	}
	for _, other := range bucket.Kinds() {
		if other != kind {
			f.Leave(string(other))
		}
	}
	f.Leave("name")
	l.Name = cmp.Or(l.Name, unnamed(kind))
	switch kind {
	case bucket.KindRate:
		f.Ignored("to a rate", "window", "tz", "on_exhausted")
		l.Rate = l.rate
		checkPace(f, l.rate, *of)
	case bucket.KindQuota:
		f.Ignored("to a quota", "burst", "counts", "on_exhausted")
		l.Quota = l.quota
		layQuota(f, "quota", l.quota, &l.window, l.zone)
	case bucket.KindInFlight:
		f.Ignored("to in_flight", "burst", "counts", "window", "tz", "cost", "on_exhausted")
		f.Ignored("to in_flight: an answer comes when its call has ended", "left", "left_until")
	case bucket.KindBudget:
		f.Ignored("to a budget: every call costs the api's price", "burst", "counts", "cost")
		f.Ignored("to a budget: no vendor says how much money is left of it", "left", "left_until")
		l.Budget = l.budget
		layQuota(f, "budget", &l.budget.Quota, &l.window, l.zone)
	}
	switch {
	case f.Has("left_until") && !f.Has("left"):
		f.Place("left_until").Fail("says until when, and nothing says how much is left", "write left: header:NAME too")
	case f.Has("left") && l.Shadow && f.Clean():
		f.Place("left").Warn("has no effect while the limit only watches", "remove shadow: true, or left")
	}
	l.checkLevel(f, kind)
	if f.Clean() && l.Cost.Usual() == 0 && !l.Cost.Settles() {
		f.Place("cost").Fail("takes nothing for a job that lacks its numbers: such a call would reserve 0, and nothing "+
			"settles it",
			"write a default above 0, or settle: json:/pointer")
	}
	if f.Clean() {
		checkPassable(f, *l.Limit, *of, price)
	}
	if !f.Fine("name") {
		return
	}
	place := f.Place("name")
	if first, twice := lines[l.Name]; twice {
		place.Fail(fmt.Sprintf("a second limit is called %q, the first on line %d", l.Name, first),
			"give each a name of its own")
		return
	}
	lines[l.Name] = place.Line
}

// checkLevel marks a limit that counts on each replica by itself. It reports the fields that such a limit cannot have.
func (l *limitFields) checkLevel(f field.Fields, kind bucket.Kind) {
	if l.per != perReplica {
		return
	}
	l.Replica = true
	if kind != bucket.KindRate && kind != bucket.KindInFlight {
		f.Place("per").Fail("a "+string(kind)+" counts over all replicas",
			"limit each replica by rate or in_flight, or remove per")
	}
	f.Ignored("to a limit of one replica: each call counts as one", "cost", "left", "left_until", "shadow")
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

func limitName() field.Type[string] {
	return field.Type[string]{
		Parse: func(text string) (string, error) {
			if text == ownRate {
				return "",
					problem.Refuse("give it another name", "%s is what weir calls the rate of a key's own bucket", problem.Quote(text))
			}
			return grammar.ParseName(text)
		},
		Show:   field.Same,
		Words:  "a name; not `rate`",
		Schema: field.Object{"type": []string{"string", "integer"}, "pattern": field.NamePattern},
	}
}

// limitKind returns the kind of a limit, by the one field that names it. A limit with none or several of these fields
// is a problem.
func limitKind(f field.Fields) (bucket.Kind, bool) {
	const fix = "write exactly one of rate, quota, in_flight and budget"
	kind := bucket.Kind("")
	for _, k := range bucket.Kinds() {
		switch {
		case !f.Has(string(k)):
		case kind == "":
			kind = k
		default:
			f.Fail(fmt.Sprintf("limits both %s and %s", kind, k), fix+"; a second limit is a second entry")
			return "", false
		}
	}
	if kind == "" {
		f.Fail("limits nothing", fix)
	}
	return kind, kind != ""
}

// checkPassable refuses a limit that can never let a call through, and warns of limits with surprising effects.
func checkPassable(f field.Fields, l bucket.Limit, of bucket.Rules, price *ingest.Cost) {
	switch l.Kind() {
	case bucket.KindRate:
		checkRate(f, l, of.Key.Rate)
	case bucket.KindQuota:
		checkFixed(f, *l.Quota, of.Jitter)
		left := afterHeadroom(l.Quota.Count, of.Headroom)
		if cost := max(l.Cost.Usual(), 1); !l.Cost.Varies() && cost > left {
			f.Place("quota").Fail(fmt.Sprintf("a call costs %d and at most %d may be spent per period: none can ever pass",
				cost, left), "raise the quota, or lower cost or headroom")
		}
	case bucket.KindInFlight: // at least one call may be in flight, whatever the headroom
	case bucket.KindBudget:
		if price == nil { // each api of the account has its own price
			checkFixed(f, l.Budget.Quota, of.Jitter)
			return
		}
		usual := grammar.Money(price.Usual())
		if price.Fixed() && usual == 0 {
			f.Place("budget").Fail("a budget needs to know what a call costs", "write price: 0.40 for the api")
			return
		}
		checkFixed(f, l.Budget.Quota, of.Jitter)
		left := afterHeadroom(l.Budget.Count, of.Headroom)
		if !price.Varies() && int64(usual) > left {
			f.Place("budget").Fail(fmt.Sprintf("a call costs %s and at most %s may be spent per period: none can ever pass",
				usual, grammar.Money(left)), "raise the budget, or lower price or headroom")
		}
	}
}

func checkRate(f field.Fields, l bucket.Limit, own bucket.Rate) {
	cost := max(l.Cost.Usual(), 1)
	weighted := l.Cost.Varies()
	switch {
	case cost > l.Rate.Burst && !weighted:
		f.Place("cost").Fail(fmt.Sprintf("a call costs %d, more than the burst of %d: none can ever pass", cost,
			l.Rate.Burst),
			"write burst: "+strconv.FormatInt(cost, 10)+" or more")
	case weighted && l.Rate.Burst == 1:
		f.Place("cost").Warn("with burst 1 every job that costs more than 1 is refused", "write the highest cost as burst")
	case !weighted && !l.Shadow && own.Count > 0 && slower(*l.Rate, cost, own):
		f.Place("rate").Warn("all keys together are slower than the bucket of one, "+grammar.FormatRate(own),
			SlowLimitFix(*l.Rate))
	default:
		noteOfDay(f, *l.Rate, SlowLimitFix(*l.Rate))
	}
}

// SlowLimitFix returns the fix for an api's limit that is slower than the rate of one key. Many calls in a long period
// are probably meant as a quota: the rate 20000/day lets one call pass every 4.32 s.
func SlowLimitFix(r bucket.Rate) string {
	if r.Per >= time.Hour && r.Count > 1 {
		return "write quota: " + grammar.FormatRate(r) +
			" if they may be used at any time of the period: a rate spreads them over it"
	}
	return "lower bucket.rate, or raise this"
}

// noteOfDay notes that a rate of a day or more spreads its calls over that period. An API's daily allowance may not
// require that.
func noteOfDay(f field.Fields, r bucket.Rate, fix string) {
	if f.Has("rate") && r.Per >= grammar.Day && r.Count > 1 {
		every := (r.Per / time.Duration(r.Count)).Round(time.Millisecond)
		f.Place("rate").Note(grammar.FormatRate(r)+" spreads the calls over the period: one every "+
			grammar.FormatDuration(every), fix)
	}
}

// allowanceFix returns the fix for a key's rate that is really an API's daily allowance.
func allowanceFix(r bucket.Rate) string {
	return "if they may be used at any time of the period, write limits: [{name: allowance, quota: " +
		grammar.FormatRate(r) +
		"}] for all keys together, and as rate the highest pace"
}

// checkFixed refuses a fixed window that jitter fills. Calls keep the jitter as a distance from both ends of the
// window.
func checkFixed(f field.Fields, q bucket.Quota, jitter time.Duration) {
	if q.Window == bucket.Fixed && q.Per <= 2*jitter+time.Microsecond {
		f.Place("window").Fail("a fixed window of "+grammar.FormatDuration(q.Per)+" has no room between the jitter of "+
			grammar.FormatDuration(jitter)+" at both its ends", "write a longer period or less jitter")
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
