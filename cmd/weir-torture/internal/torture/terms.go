package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/internal/machine"
)

// terms are the settings of the api that a run changes. They can be compared with ==.
type terms struct {
	gone bool // the api is not in the configuration

	pack   int    // jobs that a call may have; 0: each call has one
	posts  bool   // weir posts the ends of jobs
	polls  bool   // the api goes on working after a call, and weir polls it
	reuse  bool   // weir gives answers again
	tokens bool   // only answers say what calls took and cost
	header string // of the idempotency key; "": the api is not idempotent
	quoted bool

	rate, burst, capacity, inFlight int           // of a steady key
	slowPer                         time.Duration // between two calls of the slow key
	burstRate, burstHolds           int           // of the key that gets more jobs than its bucket holds

	timeout, jitter time.Duration
	attempts        int
	takes502        bool // 502 means "not processed"
	headroom        int  // percent
	price           int  // hundredths of the currency

	account     string // name of the rate that all keys share; "": none
	accountRate int
	budget      int // a month, in the currency; 0: none
	quota       int // calls a month; 0: none
}

// The headers that may carry an idempotency key. The fake api reads both.
const (
	usualKeyHeader = "Idempotency-Key"
	otherKeyHeader = "X-Idempotency-Key"
)

// Limits that are larger than any run needs, so that they delay no job.
const (
	largeBudget = 1_000_000
	largeQuota  = 10_000_000
)

// noon is a time zone in which it is about noon, so that no month ends during a run. The verdict compares a month's
// budget with all calls of the run.
var noon = machine.Noon()

// mostJitter is the largest jitter that a change sets.
const mostJitter = jitter + 50*time.Millisecond

// firstTerms returns the terms with which a run begins and ends.
func firstTerms(o *Options) terms {
	t := terms{
		rate: o.Rate, burst: 1, capacity: 20000, inFlight: 4, slowPer: slowPer, burstRate: burstRate, burstHolds: burstHolds,
		timeout: callTimeout, jitter: jitter, attempts: 1000, price: 1, pack: o.Pack, posts: o.Callbacks, polls: o.Operations, reuse: o.Reuse, tokens: o.Settled,
	}
	if o.Idempotent {
		t.header = usualKeyHeader
	}
	if o.Takeovers == 0 { // without Redis two weirs cannot share a limit
		t.account, t.accountRate = "account", o.accountRate()
	}
	if o.sharesSpend() {
		t.budget = largeBudget
	}
	return t
}

// sharesSpend reports whether the run always has a budget, so that its use can be compared with the ledger.
func (o *Options) sharesSpend() bool { return o.IdleKills > 0 && o.Takeovers == 0 }

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
	change func(r *rand.Rand, t *terms)
}

// removal is the setting that removes the api from the configuration for a while.
const removal = "api"

// settings returns all settings that a run may change.
func settings() []setting {
	return []setting{
		{"idempotency", false, func(_ *rand.Rand, t *terms) { t.header = other(t.header, "", usualKeyHeader) }},
		{"header", false, func(_ *rand.Rand, t *terms) { t.header = other(t.header, usualKeyHeader, otherKeyHeader) }},
		{"quoted", false, func(_ *rand.Rand, t *terms) {
			if t.header == "" {
				t.header = usualKeyHeader
			}
			t.quoted = !t.quoted
		}},
		{"rate", false, func(r *rand.Rand, t *terms) { t.rate = another(r, t.rate, 10, 20, 40) }},
		{"slow", false, func(r *rand.Rand, t *terms) {
			t.slowPer = another(r, t.slowPer, slowPer, 9*time.Second, 12*time.Second, time.Second)
		}},
		{"burst", false, func(r *rand.Rand, t *terms) { t.burst = another(r, t.burst, 1, 3, 5) }},
		{"capacity", false, func(r *rand.Rand, t *terms) { t.capacity = another(r, t.capacity, 20000, 500, 20) }},
		{"in-flight", false, func(r *rand.Rand, t *terms) { t.inFlight = another(r, t.inFlight, 4, 2, 1) }},
		{"timeout", false, func(_ *rand.Rand, t *terms) { t.timeout = other(t.timeout, callTimeout, 1500*time.Millisecond) }},
		{"retry-on", false, func(_ *rand.Rand, t *terms) { t.takes502 = !t.takes502 }},
		{"attempts", false, func(_ *rand.Rand, t *terms) { t.attempts = other(t.attempts, 1000, 500) }},
		{"jitter", false, func(_ *rand.Rand, t *terms) { t.jitter = other(t.jitter, jitter, mostJitter) }},
		{"headroom", false, func(_ *rand.Rand, t *terms) { t.headroom = other(t.headroom, 0, 20) }},
		{"price", false, func(_ *rand.Rand, t *terms) { t.price = other(t.price, 1, 2) }},
		{"limits", true, func(_ *rand.Rand, t *terms) { t.account = other(t.account, "", "account") }},
		{"limit-name", true, func(_ *rand.Rand, t *terms) { t.account = other(t.account, "account", "region") }},
		{"limit-rate", true, func(_ *rand.Rand, t *terms) { t.accountRate = other(t.accountRate, 80, 60) }},
		{"budget", true, func(_ *rand.Rand, t *terms) { t.budget = other(t.budget, largeBudget, largeBudget/2) }},
		{"quota", true, func(r *rand.Rand, t *terms) { t.quota = another(r, t.quota, 0, largeQuota, largeQuota/2) }},
		{"overrides", false, func(_ *rand.Rand, t *terms) {
			t.burstRate, t.burstHolds = other(t.burstRate, burstRate, 8), other(t.burstHolds, burstHolds, 9)
		}},
		{removal, false, func(_ *rand.Rand, t *terms) { t.gone = true }}, // operator.change puts it back
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

// rateOf returns the rate of a key or, if key is "", of all keys together. It returns false if there is none.
func (t *terms) rateOf(key string) (bucket.Rate, bool) {
	switch key {
	case "":
		return bucket.Rate{Count: int64(t.accountRate), Per: time.Second, Burst: 1}, t.account != ""
	case burstKey:
		return bucket.Rate{Count: int64(t.burstRate), Per: time.Second, Burst: 1}, true
	case slowKey:
		return bucket.Rate{Count: 1, Per: t.slowPer, Burst: 1}, true
	}
	return bucket.Rate{Count: int64(t.rate), Per: time.Second, Burst: int64(t.burst)}, true
}

// yaml returns the configuration. Only a fleet has the limit of concurrent calls, and the header with the replica's
// name.
func (t *terms) yaml(url, number string, fleet bool) string {
	head := "# configuration " + number + "\n" // so that no two files are equal
	if t.gone {
		return head + "apis: {}\n"
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "    "+format+"\n", args...) }
	fmt.Fprintf(&b, "%sapis:\n  %s:\n", head, apiName)
	line("url: %s/v1", url)
	if t.tokens {
		line(settledYAML)
	} else {
		line("price: %d.%02d", t.price/100, t.price%100)
	}
	line("timeout: %s", t.timeout)
	line("jitter: %s", t.jitter)
	line("headroom: %d%%", t.headroom)
	if t.header != "" {
		line("idempotency: {header: %s, quoted: %v}", t.header, t.quoted)
	}
	line("bucket: {rate: %d/s, burst: %d, capacity: %d, in_flight: %d}", t.rate, t.burst, t.capacity, t.inFlight)
	if t.pack > 0 {
		line("pack: {jobs: %d, wait: %s}", t.pack, packWait)
	}
	if t.posts {
		line("callback: {url: \"${env:%s}\", secret: \"${env:%s}\", rate: %d/s}", callbackAddress, callbackVariable, callbackRate)
	}
	if t.polls {
		line(operationsYAML, operationEvery, operationsRate)
	}
	if t.reuse {
		line("reuse: {for: %s, of: [path]}", reusedFor)
	}
	if limits := t.limits(fleet); limits != "" {
		line("limits: [%s]", limits)
	}
	if fleet {
		line("headers: {%s: \"${env:%s}\"}", nameHeader, nameVariable)
	}
	line("keys:")
	line("  %s: {rate: %d/s, burst: 1, capacity: %d}", burstKey, t.burstRate, t.burstHolds)
	line("  %s: {rate: 1/%s, burst: 1, capacity: 20}", slowKey, t.slowPer)
	on := "429, 503"
	if t.takes502 {
		on += ", 502"
	}
	line("retry: {attempts: %d, min: 100ms, max: 1s, hold: key, on: [%s]}", t.attempts, on)
	return b.String()
}

func (t *terms) limits(fleet bool) string {
	var all []string
	if t.account != "" {
		all = append(all, fmt.Sprintf("{name: %s, rate: %d/s, burst: 1}", t.account, t.accountRate))
	}
	if t.tokens {
		all = append(all, tokensYAML)
	}
	if fleet {
		all = append(all, fmt.Sprintf("{name: concurrent, in_flight: %d}", fleetInFlight))
	}
	if t.budget > 0 {
		all = append(all, fmt.Sprintf("{name: %s, budget: %d.00/month, tz: %s}", budgetName, t.budget, noon))
	}
	if t.quota > 0 {
		all = append(all, fmt.Sprintf("{name: calls, quota: %d/month, tz: %s}", t.quota, noon))
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
