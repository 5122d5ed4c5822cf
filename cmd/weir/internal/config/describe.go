package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
)

// description is a configuration as texts by path, with defaults written out. Every field that has an effect has a
// text, so that two configurations differ exactly if their descriptions do. A change of a field without a description
// would be adopted by no worker.
type description map[string]string

func (d description) set(path, field, text string) { d[joinPath(path, field)] = text }

func (d description) number(path, field string, n int64) {
	d.set(path, field, strconv.FormatInt(n, 10))
}

func (d description) duration(path, field string, t time.Duration) {
	d.set(path, field, FormatDuration(t))
}

func (d description) yes(path, field string, b bool) { d.set(path, field, strconv.FormatBool(b)) }

func (c *Config) describe() description {
	d := description{}
	if c == nil {
		return d
	}
	d.duration("dead_letters", "max_age", c.DeadLetters.MaxAge)
	d.set("dead_letters", "max_bytes", FormatSize(c.DeadLetters.MaxBytes))
	d.duration("results", "max_age", c.Results.MaxAge)
	d.set("results", "max_body", FormatSize(c.Results.MaxBody))
	d.duration("", "dedupe", c.Dedupe)
	replyTo := c.ReplyTo
	if len(replyTo) == 0 {
		replyTo = []string{"_INBOX.>"}
	}
	d.set("", "reply_to", strings.Join(replyTo, ", "))
	d.http(c.HTTP)
	d.notifications(c.Notifications)
	for _, a := range c.APIs {
		d.api(joinPath("apis", a.Name), a)
	}
	return d
}

func (d description) api(path string, a API) {
	d[path] = a.URL.String() + " at " + FormatRate(a.Rules.Key.Rate) // the api in short; its fields have the details
	d.set(path, "url", a.URL.String())
	d.set(path, "methods", strings.Join(a.Methods, ", "))
	for _, h := range a.Headers {
		d.set(path+".headers", h.Name, h.Value.String())
	}
	d.set(path, "forward_headers", orNone(strings.Join(a.ForwardHeaders, ", ")))
	d.duration(path, "timeout", a.Timeout)
	d.set(path, "max_body", FormatSize(a.MaxBody))
	d.set(path, "price", a.Price.String())
	idempotency := "none"
	if a.Idempotency != nil {
		idempotency = a.Idempotency.Header
		if a.Idempotency.Quoted {
			idempotency += ", quoted"
		}
	}
	d.set(path, "idempotency", idempotency)
	key := a.Key.String()
	if a.Key.TenantUntil != "" {
		key += ", tenant until " + a.Key.TenantUntil
	}
	d.set(path, "key", key)
	d.rules(path, a.Rules)
	d.number(path+".retry", "attempts", int64(a.Retry.Attempts))
	d.duration(path+".retry", "min", a.Retry.Min)
	d.duration(path+".retry", "max", a.Retry.Max)
	d.set(path+".retry", "on", orNone(strings.Trim(fmt.Sprint(a.Retry.On), "[]")))
	d.set(path+".retry", "reject", orNone(strings.Trim(fmt.Sprint(a.Retry.Reject), "[]")))
	d.set(path+".retry", "hold", string(a.Retry.Hold))
	d.set(path+".retry", "headers", string(a.Retry.Headers))
	adaptive := "none"
	if r := a.Retry.Adaptive; r != nil {
		adaptive = "floor " + strconv.FormatInt(r.Floor, 10) + "%, recover " + FormatDuration(r.Recover)
	}
	d.set(path+".retry", "adaptive", adaptive)
	d.number(path+".breaker", "failures", int64(a.Breaker.Failures))
	d.duration(path+".breaker", "min", a.Breaker.Min)
	d.duration(path+".breaker", "max", a.Breaker.Max)
	d.inquiry(joinPath(path, "inquiry"), a.Inquiry)
	d.tls(joinPath(path, "tls"), a.TLS)
}

func (d description) rules(path string, r bucket.Rules) {
	d.pace(path+".bucket", r.Key.Rate)
	d.number(path+".bucket", "capacity", r.Key.Capacity)
	d.set(path+".bucket", "max_wait", waitText(r.Key.MaxWait))
	d.number(path+".bucket", "in_flight", r.Key.InFlight)
	d.set(path, "headroom", strconv.FormatInt(r.Headroom, 10)+"%")
	d.duration(path, "jitter", r.Jitter)
	for _, l := range r.Shared {
		d.limit(joinPath(path+".limits", l.Name), l)
	}
	for i, a := range r.Admit {
		at := path + ".admit[" + strconv.Itoa(i) + "]"
		d.rate(at, a.Rate)
		d.set(at, "algorithm", string(a.Algorithm))
		d.set(at, "soft", strconv.FormatInt(a.SoftPercent, 10)+"%")
		d.yes(at, "elastic", a.Elastic)
	}
	for _, o := range r.Overrides {
		d.override(joinPath(path+".keys", o.Pattern), o)
	}
}

func (d description) rate(path string, r bucket.Rate) {
	d.set(path, "rate", FormatRate(r))
	d.number(path, "burst", r.Burst)
}

// pace describes a rate of calls. A rate of admissions is described with its algorithm.
func (d description) pace(path string, r bucket.Rate) {
	d.rate(path, r)
	d.set(path, "counts", string(r.Counted()))
}

func (d description) limit(path string, l bucket.Limit) {
	d[path] = inShort(l)
	d.yes(path, "shadow", l.Shadow)
	switch l.Kind() {
	case bucket.KindRate:
		d.pace(path, *l.Rate)
		d.set(path, "cost", formatCost(l.Cost))
	case bucket.KindQuota:
		d.window(path, "quota", strconv.FormatInt(l.Quota.Count, 10), *l.Quota)
		d.set(path, "cost", formatCost(l.Cost))
	case bucket.KindBudget:
		d.window(path, "budget", Money(l.Budget.Count).String(), l.Budget.Quota)
		d.set(path, "on_exhausted", string(l.Budget.OnExhausted))
	case bucket.KindInFlight:
		d.number(path, "in_flight", l.InFlight)
	}
}

// inShort describes a limit in one line, without defaults.
func inShort(l bucket.Limit) string {
	text := ""
	switch l.Kind() {
	case bucket.KindRate:
		text = FormatRate(*l.Rate)
		if l.Rate.Burst > 1 {
			text += ", burst " + strconv.FormatInt(l.Rate.Burst, 10)
		}
		if l.Rate.Counted() != bucket.ByWindow {
			text += ", counts " + string(l.Rate.Counted())
		}
	case bucket.KindQuota:
		text = windowText(strconv.FormatInt(l.Quota.Count, 10), *l.Quota)
	case bucket.KindBudget:
		text = windowText(Money(l.Budget.Count).String(), l.Budget.Quota)
		if l.Budget.OnExhausted != bucket.Hold {
			text += ", on_exhausted " + string(l.Budget.OnExhausted)
		}
	case bucket.KindInFlight:
		text = "in_flight " + strconv.FormatInt(l.InFlight, 10)
	}
	if cost := formatCost(l.Cost); cost != formatCost(bucket.CostSource{}) {
		text += ", cost " + cost
	}
	if l.Shadow {
		text += ", shadow"
	}
	return text
}

func windowText(count string, q bucket.Quota) string {
	switch {
	case q.Window != bucket.Calendar:
		return count + "/" + formatPeriod(q.Per) + ", window " + string(q.Window)
	case q.Zone != time.UTC:
		return count + "/" + string(q.Unit) + ", tz " + q.Zone.String()
	}
	return count + "/" + string(q.Unit)
}

func (d description) window(path, field, count string, q bucket.Quota) {
	d.set(path, "window", string(q.Window))
	if q.Window == bucket.Calendar {
		d.set(path, field, count+"/"+string(q.Unit))
		d.set(path, "tz", q.Zone.String())
		return
	}
	d.set(path, field, count+"/"+formatPeriod(q.Per))
}

func (d description) override(path string, o bucket.Override) {
	if o.Rate != nil {
		d.pace(path, *o.Rate)
	}
	if o.Capacity != nil {
		d.number(path, "capacity", *o.Capacity)
	}
	if o.MaxWait != nil {
		d.set(path, "max_wait", waitText(*o.MaxWait))
	}
	if o.InFlight != nil {
		d.number(path, "in_flight", *o.InFlight)
	}
}

func waitText(wait time.Duration) string {
	if wait == 0 {
		return "no bound"
	}
	return FormatDuration(wait)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
