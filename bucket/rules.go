package bucket

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/ingest"
)

// For returns the limits of one key. At most one override applies. A pattern that is equal to the key wins; else the
// longest pattern that matches, and of equally long ones the last. Patterns are case-sensitive; * matches any run of
// characters, also an empty one.
func (r Rules) For(key string) KeyLimits {
	best, length := -1, -1
	for i, o := range r.Overrides {
		if o.Pattern == key {
			best = i
			break
		}
		if len(o.Pattern) >= length && matches(o.Pattern, key) {
			best, length = i, len(o.Pattern)
		}
	}
	if best < 0 {
		return r.Key
	}
	return r.Overrides[best].apply(r.Key)
}

// Tenant returns the tenant that a key belongs to: the part before the first TenantUntil, or the whole key if it has
// none. It is "" for every key if TenantUntil is "".
func (r Rules) Tenant(key string) string {
	if r.TenantUntil == "" {
		return ""
	}
	tenant, _, _ := strings.Cut(key, r.TenantUntil)
	return tenant
}

// apply returns l with the values that the override replaces.
func (o Override) apply(l KeyLimits) KeyLimits {
	if o.Rate != nil {
		l.Rate = *o.Rate
	}
	if o.Capacity != nil {
		l.Capacity = *o.Capacity
	}
	if o.MaxWait != nil {
		l.MaxWait = *o.MaxWait
	}
	if o.InFlight != nil {
		l.InFlight = *o.InFlight
	}
	return l
}

// matches reports whether pattern, in which * stands for any run of bytes, matches the whole of s. It goes back only to
// the last star, so it takes at most len(pattern)*len(s) steps.
func matches(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p, i = p+1, i+1
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// Names returns the names of the limits shared by all keys, in order.
func (r Rules) Names() []string {
	if len(r.Shared) == 0 {
		return nil
	}
	names := make([]string, len(r.Shared))
	for i := range r.Shared {
		names[i] = r.Shared[i].Name
	}
	return names
}

// Lowered returns n less the headroom, but at least 1: a limit of 0 would hold forever.
func (r Rules) Lowered(n int64) int64 {
	return max(1, n/100*(100-r.Headroom)+n%100*(100-r.Headroom)/100)
}

// LeaseMicros returns the Lease in microseconds, the default if there is none.
func (r Rules) LeaseMicros() Micros {
	if r.Lease <= 0 {
		return Micros(DefaultLease / time.Microsecond)
	}
	return Micros(ceilMicros(r.Lease))
}

// Validate returns one error for all rules that can never be kept or that contradict another rule.
func (r Rules) Validate() error {
	var errs []error
	if r.Headroom < 0 || r.Headroom > 99 {
		errs = append(errs, fmt.Errorf("headroom %d%% is not within 0%% to 99%%", r.Headroom))
		r.Headroom = 0
	}
	if r.Jitter < 0 || r.Jitter > maxJitter {
		errs = append(errs, fmt.Errorf("jitter %s is not within 0s to %s", r.Jitter, maxJitter))
		r.Jitter = 0
	}
	if err := r.validateRate(r.Key.Rate); err != nil {
		errs = append(errs, fmt.Errorf("bucket: %w", err))
	}
	for _, o := range r.Overrides {
		if o.Rate == nil {
			continue
		}
		if err := r.validateRate(*o.Rate); err != nil {
			errs = append(errs, fmt.Errorf("keys %q: %w", o.Pattern, err))
		}
	}
	if err := r.Weights.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("priorities: %w", err))
	}
	if r.In != nil {
		errs = append(errs, r.In.validate())
	}
	names := map[string]int{}
	for _, l := range r.Shared {
		if l.Account != "" && l.Account != r.account() {
			errs = append(errs, fmt.Errorf("limit %q is of account %q, and the api of account %q", l.Name, l.Account, r.account()))
		}
		names[l.Name]++
		if names[l.Name] == 2 {
			errs = append(errs, fmt.Errorf("limit %q is named twice", l.Name))
		}
		if err := r.validateLimit(l); err != nil {
			errs = append(errs, fmt.Errorf("limit %q: %w", l.Name, err))
		}
		if l.Replica {
			errs = append(errs, fmt.Errorf("limit %q is of one replica, and stands among those of all", l.Name))
		}
	}
	for _, l := range r.Replica {
		names[l.Name]++
		if names[l.Name] == 2 {
			errs = append(errs, fmt.Errorf("limit %q is named twice", l.Name))
		}
		if err := r.validateReplica(l); err != nil {
			errs = append(errs, fmt.Errorf("limit %q: %w", l.Name, err))
		}
	}
	for i, a := range r.Admit {
		if err := a.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("admit %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

// Warnings returns a message about each setting that is valid but probably not intended: a rate whose burst costs it
// more than half of its calls.
//
// No window may hold more than N calls, so the interval between calls is T = (P+J)/(N+1-B) (pace.go). With B = N, only
// one call per period is left beside the burst.
func (r Rules) Warnings() []string {
	var w []string
	warn := func(what string, rate Rate) {
		given := float64(rate.Count) / rate.Per.Seconds()
		if got := r.Interval(rate).PerSecond() * 100 / float64(100-r.Headroom); got < given/2 && rate.Burst > 1 {
			w = append(w, fmt.Sprintf("%s: with burst %d only %.3g calls a second of %.3g can be sustained without ever exceeding %d in %s; "+
				"lower the burst to a tenth of the count, or say counts: token_bucket if the api lets burst + rate × time pass",
				what, rate.Burst, got, given, rate.Count, rate.Per))
		}
	}
	warn("bucket", r.Key.Rate)
	for _, o := range r.Overrides {
		if o.Rate != nil {
			warn(fmt.Sprintf("keys %q", o.Pattern), *o.Rate)
		}
	}
	for _, l := range r.Shared {
		if l.Rate != nil && l.Account == "" {
			warn(fmt.Sprintf("limit %q", l.Name), *l.Rate)
		}
	}
	return w
}

// validateRate returns why rate cannot be kept.
func (r Rules) validateRate(rate Rate) error {
	if err := rate.Validate(); err != nil {
		return err
	}
	if t := r.Interval(rate); t.times(rate.Burst) > maxDebt {
		return fmt.Errorf("burst %d at one call every %s takes over 100 years to drain; lower the burst or raise the rate",
			rate.Burst, t.Duration())
	}
	return nil
}

// Validate returns why the rate is not valid.
func (rate Rate) Validate() error {
	switch {
	case rate.Count < 1 || rate.Count > maxCount:
		return fmt.Errorf("rate of %d calls is not within 1 to %d; write a slow rate as 1 per a longer period", rate.Count, maxCount)
	case rate.Per < time.Microsecond || rate.Per > maxPer:
		return fmt.Errorf("period %s is not within 1µs to %s", rate.Per, maxPer)
	case rate.Burst < 1 || rate.Burst > maxBurst:
		return fmt.Errorf("burst %d is not within 1 to %d", rate.Burst, maxBurst)
	case rate.Counts != "" && rate.Counts != ByWindow && rate.Counts != ByTokens:
		return fmt.Errorf("counts %q is neither window nor token_bucket", rate.Counts)
	case rate.Counts == ByWindow && rate.Burst > rate.Count:
		return fmt.Errorf("burst %d can never leave together where no period of %s may see more than %d; counts: token_bucket has its own burst",
			rate.Burst, rate.Per, rate.Count)
	}
	return nil
}

// validateReplica returns an error if l cannot be a limit of each replica for itself.
func (r Rules) validateReplica(l Limit) error {
	if !l.Replica || l.Quota != nil || l.Budget != nil || l.Account != "" || l.Shadow || len(l.Cost) > 0 || l.ReadsLeft() {
		return errors.New("per replica, only a rate or in_flight of calls can be limited")
	}
	return r.validateLimit(l)
}

// validateLimit returns why a shared limit cannot be kept.
func (r Rules) validateLimit(l Limit) error {
	r = r.By(&l)
	kinds := 0
	var err error
	if l.Rate != nil {
		kinds++
		err = r.validateRate(*l.Rate)
	}
	if l.Quota != nil {
		kinds++
		err = r.validateQuota(*l.Quota)
	}
	if l.Budget != nil {
		kinds++
		err = r.validateQuota(l.Budget.Quota)
		if o := l.Budget.OnExhausted; err == nil && o != Hold && o != DeadLetter {
			err = fmt.Errorf("on_exhausted %q is neither hold nor dead_letter", o)
		}
	}
	if l.InFlight != 0 {
		kinds++
		if l.InFlight < 1 || l.InFlight > maxBurst {
			err = fmt.Errorf("in_flight %d is not within 1 to %d", l.InFlight, maxBurst)
		}
	}
	switch {
	case kinds != 1:
		return fmt.Errorf("has %d of rate, quota, in_flight and budget; it needs exactly one", kinds)
	case l.Name == "" || l.Name == OwnRate || l.Name == OwnCheckpoint:
		return fmt.Errorf("needs a name other than %q, which weir uses itself when it says what a job waits for", l.Name)
	case err == nil && !l.Cost.Varies() && l.Cost.Usual() > r.Capacity(l):
		return fmt.Errorf("cost %d can never pass: the limit holds %d at once", l.Cost.Usual(), r.Capacity(l))
	case l.Cost.Usual() < 0:
		return fmt.Errorf("cost %d is negative", l.Cost.Usual())
	case l.Left.IsPlace() && l.Rate == nil && l.Quota == nil:
		return errors.New("left is of a rate or a quota: no answer says how much money, or how many calls, are left")
	}
	return err
}

// validateQuota returns why a quota cannot be kept.
func (r Rules) validateQuota(q Quota) error {
	if q.Count < 1 || q.Count > 1<<52 {
		return fmt.Errorf("quota of %d is not within 1 to 2^52", q.Count)
	}
	switch q.Window {
	case Calendar:
		if q.Unit != Hour && q.Unit != Day && q.Unit != Week && q.Unit != Month {
			return fmt.Errorf("unit %q is not hour, day, week or month", q.Unit)
		}
		if q.Zone == nil || q.Zone == time.Local {
			return errors.New("needs a named time zone: what is local changes from machine to machine")
		}
	case Sliding:
		if q.Per < time.Microsecond || q.Per > maxPer {
			return fmt.Errorf("period %s is not within 1µs to %s", q.Per, maxPer)
		}
	case Fixed:
		if q.Per <= 2*r.Jitter+time.Microsecond || q.Per > maxPer {
			return fmt.Errorf("period %s is too short: weir makes no calls in the first and the last %s of it, because of the jitter", q.Per, r.Jitter)
		}
	default:
		return fmt.Errorf("window %q is not calendar, sliding or fixed", q.Window)
	}
	return nil
}

// Capacity returns the largest cost that limit l can ever let pass. For a quota or budget, that is its count less the
// headroom. For calls in flight there is no bound, because a permit always has the cost 1.
func (r Rules) Capacity(l Limit) int64 {
	r = r.By(&l)
	switch l.Kind() {
	case KindRate:
		return l.Rate.Burst
	case KindQuota:
		return r.Lowered(l.Quota.Count)
	case KindBudget:
		return r.Lowered(l.Budget.Count)
	case KindInFlight:
	}
	return 1 << 52
}

// CostBounds returns the bounds that the intake checks for the costs and the price that a job names. There is one for
// each limit whose cost depends on the job, and one for the price if the price depends on the job. A shadow limit has
// none.
func (r Rules) CostBounds(price ingest.Cost) []ingest.CostBound {
	var bounds []ingest.CostBound
	if price.Varies() {
		bounds = append(bounds, ingest.CostBound{From: price, Most: ingest.MostUnits})
	}
	for i := range r.Shared {
		l := &r.Shared[i]
		from := l.Cost
		if l.Budget != nil {
			from = price
		}
		if !l.Shadow && from.Varies() {
			bounds = append(bounds, ingest.CostBound{Limit: l.Name, From: from, Most: r.Capacity(*l)})
		}
	}
	return bounds
}

// Budgets returns the names of the budgets.
func (r Rules) Budgets() (names []string) {
	for i := range r.Shared {
		if r.Shared[i].Budget != nil {
			names = append(names, r.Shared[i].Name)
		}
	}
	return names
}
