package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/internal/machine"
)

// Terms are the settings of the api that a run changes. They can be compared with ==.
type Terms struct {
	Gone bool // the api is not in the configuration

	pack   int    // jobs that a call may have; 0: each call has one
	posts  bool   // weir posts the ends of jobs
	polls  bool   // the api goes on working after a call, and weir polls it
	reuse  bool   // weir gives answers again
	tokens bool   // only answers say what calls took and cost
	Header string // of the idempotency key; "": the api is not idempotent
	Quoted bool

	Rate, Burst, capacity, InFlight int           // of a steady key
	slowPer                         time.Duration // between two calls of the slow key
	burstRate, burstHolds           int           // of the key that gets more jobs than its bucket holds

	timeout, jitter time.Duration
	attempts        int
	Takes502        bool // 502 means "not processed"
	headroom        int  // percent
	Price           int  // hundredths of the currency

	account     string // name of the rate that all keys share; "": none
	accountRate int
	budget      int // a month, in the currency; 0: none
	quota       int // calls a month; 0: none
	lately      int // calls in each QuotaPer; 0: any number
}

// Limits that are larger than any run needs, so that they delay no job.
const (
	LargeBudget = 1_000_000
	largeQuota  = 10_000_000
)

// noon is a time zone in which it is about noon, so that no month ends during a run. The verdict compares a month's
// budget with all calls of the run.
var noon = machine.Noon()

// MostJitter is the largest jitter that a change sets.
const MostJitter = Jitter + 50*time.Millisecond

// FirstTerms returns the terms with which a run begins and ends.
func FirstTerms(o *Options) Terms {
	t := Terms{
		Rate: o.Rate, Burst: 1, capacity: 20000, InFlight: 4, slowPer: slowPer, burstRate: burstRate, burstHolds: burstHolds,
		timeout: CallTimeout, jitter: Jitter, attempts: 1000, Price: 1, pack: o.Pack, posts: o.Callbacks, polls: o.Operations, reuse: o.Reuse, tokens: o.Settled,
	}
	t.lately = o.Quota
	if o.Idempotent {
		t.Header = UsualKeyHeader
	}
	if o.Takeovers == 0 { // without Redis two weirs cannot share a limit
		t.account, t.accountRate = "account", o.accountRate()
	}
	if o.SharesSpend() {
		t.budget = LargeBudget
	}
	return t
}

// SharesSpend reports whether the run always has a budget, so that its use can be compared with the ledger.
func (o *Options) SharesSpend() bool { return o.IdleKills > 0 && o.Takeovers == 0 }

// accountRate returns how many calls per second all keys together may make. Unless an option sets this rate, it is so
// high that it delays no job.
func (o *Options) accountRate() int {
	if o.Account > 0 {
		return o.Account
	}
	return max(accountRate, 2*o.Jobs)
}

// setting is one setting that a run may change.
type setting struct {
	name   string
	shared bool // it belongs to a limit that all keys share
	change func(r *rand.Rand, t *Terms)
}

// removal is the setting that removes the api from the configuration for a while.
const removal = "api"

// settings returns all settings that a run may change.
func settings() []setting {
	return []setting{
		{"idempotency", false, func(_ *rand.Rand, t *Terms) { t.Header = other(t.Header, "", UsualKeyHeader) }},
		{"header", false, func(_ *rand.Rand, t *Terms) { t.Header = other(t.Header, UsualKeyHeader, OtherKeyHeader) }},
		{"quoted", false, func(_ *rand.Rand, t *Terms) {
			if t.Header == "" {
				t.Header = UsualKeyHeader
			}
			t.Quoted = !t.Quoted
		}},
		{"rate", false, func(r *rand.Rand, t *Terms) { t.Rate = another(r, t.Rate, 10, 20, 40) }},
		{"slow", false, func(r *rand.Rand, t *Terms) {
			t.slowPer = another(r, t.slowPer, slowPer, 9*time.Second, 12*time.Second, time.Second)
		}},
		{"burst", false, func(r *rand.Rand, t *Terms) { t.Burst = another(r, t.Burst, 1, 3, 5) }},
		{"capacity", false, func(r *rand.Rand, t *Terms) { t.capacity = another(r, t.capacity, 20000, 500, 20) }},
		{"in-flight", false, func(r *rand.Rand, t *Terms) { t.InFlight = another(r, t.InFlight, 4, 2, 1) }},
		{"timeout", false, func(_ *rand.Rand, t *Terms) { t.timeout = other(t.timeout, CallTimeout, 1500*time.Millisecond) }},
		{"retry-on", false, func(_ *rand.Rand, t *Terms) { t.Takes502 = !t.Takes502 }},
		{"attempts", false, func(_ *rand.Rand, t *Terms) { t.attempts = other(t.attempts, 1000, 500) }},
		{"jitter", false, func(_ *rand.Rand, t *Terms) { t.jitter = other(t.jitter, Jitter, MostJitter) }},
		{"headroom", false, func(_ *rand.Rand, t *Terms) { t.headroom = other(t.headroom, 0, 20) }},
		{"price", false, func(_ *rand.Rand, t *Terms) { t.Price = other(t.Price, 1, 2) }},
		{"limits", true, func(_ *rand.Rand, t *Terms) { t.account = other(t.account, "", "account") }},
		{"limit-name", true, func(_ *rand.Rand, t *Terms) { t.account = other(t.account, "account", "region") }},
		{"limit-rate", true, func(_ *rand.Rand, t *Terms) { t.accountRate = other(t.accountRate, 80, 60) }},
		{"budget", true, func(_ *rand.Rand, t *Terms) { t.budget = other(t.budget, LargeBudget, LargeBudget/2) }},
		{"quota", true, func(r *rand.Rand, t *Terms) { t.quota = another(r, t.quota, 0, largeQuota, largeQuota/2) }},
		{"overrides", false, func(_ *rand.Rand, t *Terms) {
			t.burstRate, t.burstHolds = other(t.burstRate, burstRate, 8), other(t.burstHolds, burstHolds, 9)
		}},
		{removal, false, func(_ *rand.Rand, t *Terms) { t.Gone = true }}, // operator.change puts it back
	}
}

// other returns the one of two values that is not the current value.
func other[T comparable](is, first, second T) T {
	if is == first {
		return second
	}
	return first
}

// another returns a random one of several values that is not the current value.
func another[T comparable](r *rand.Rand, is T, of ...T) T {
	of = slices.DeleteFunc(of, func(v T) bool { return v == is })
	return of[r.IntN(len(of))]
}

// RateOf returns the rate of a key or, if key is "", of all keys together. It returns false if there is none.
func (t *Terms) RateOf(key string) (bucket.Rate, bool) {
	switch key {
	case "":
		return bucket.Rate{Count: int64(t.accountRate), Per: time.Second, Burst: 1}, t.account != ""
	case burstKey:
		return bucket.Rate{Count: int64(t.burstRate), Per: time.Second, Burst: 1}, true
	case slowKey:
		return bucket.Rate{Count: 1, Per: t.slowPer, Burst: 1}, true
	}
	return bucket.Rate{Count: int64(t.Rate), Per: time.Second, Burst: int64(t.Burst)}, true
}

// YAML returns the configuration. Only a fleet has the limit of concurrent calls, and the header with the replica's
// name.
func (t *Terms) YAML(url, number string, fleet bool) string {
	head := "# configuration " + number + "\n" // so that no two files are equal
	if t.Gone {
		return head + "apis: {}\n"
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "    "+format+"\n", args...) }
	fmt.Fprintf(&b, "%sapis:\n  %s:\n", head, APIName)
	line("url: %s/v1", url)
	if t.tokens {
		line(settledYAML)
	} else {
		line("price: %d.%02d", t.Price/100, t.Price%100)
	}
	line("timeout: %s", t.timeout)
	line("jitter: %s", t.jitter)
	line("headroom: %d%%", t.headroom)
	if t.Header != "" {
		line("idempotency: {header: %s, quoted: %v}", t.Header, t.Quoted)
	}
	line("bucket: {rate: %d/s, burst: %d, capacity: %d, in_flight: %d}", t.Rate, t.Burst, t.capacity, t.InFlight)
	if t.pack > 0 {
		line("pack: {jobs: %d, wait: %s}", t.pack, PackWait)
	}
	if t.posts {
		line("callback: {url: \"${env:%s}\", secret: \"${env:%s}\", rate: %d/s}", CallbackAddress, CallbackVariable, callbackRate)
	}
	if t.polls {
		line(operationsYAML, OperationEvery, operationsRate)
	}
	if t.reuse {
		line("reuse: {for: %s, of: [path]}", ReusedFor)
	}
	if limits := t.limits(fleet); limits != "" {
		line("limits: [%s]", limits)
	}
	if fleet {
		line("headers: {%s: \"${env:%s}\"}", NameHeader, NameVariable)
	}
	line("keys:")
	line("  %s: {rate: %d/s, burst: 1, capacity: %d}", burstKey, t.burstRate, t.burstHolds)
	line("  %s: {rate: 1/%s, burst: 1, capacity: 20}", slowKey, t.slowPer)
	on := "429, 503"
	if t.Takes502 {
		on += ", 502"
	}
	line("retry: {attempts: %d, min: 100ms, max: 1s, hold: key, on: [%s]}", t.attempts, on)
	return b.String()
}

func (t *Terms) limits(fleet bool) string {
	var all []string
	if t.account != "" {
		all = append(all, fmt.Sprintf("{name: %s, rate: %d/s, burst: 1}", t.account, t.accountRate))
	}
	if t.tokens {
		all = append(all, tokensYAML)
	}
	if fleet {
		all = append(all, fmt.Sprintf("{name: concurrent, in_flight: %d}", FleetInFlight))
	}
	if t.budget > 0 {
		all = append(all, fmt.Sprintf("{name: %s, budget: %d.00/month, tz: %s}", BudgetName, t.budget, noon))
	}
	if t.quota > 0 {
		all = append(all, fmt.Sprintf("{name: calls, quota: %d/month, tz: %s}", t.quota, noon))
	}
	if t.lately > 0 {
		all = append(all, fmt.Sprintf("{name: lately, quota: %d/%s, window: sliding}", t.lately, QuotaPer))
	}
	return strings.Join(all, ", ")
}

// Settings returns the names of the settings that a run may change.
func Settings() []string {
	var names []string
	for _, s := range settings() {
		names = append(names, s.name)
	}
	return names
}
