package config

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/problem"
)

func parseText(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse([]byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func diffText(before, after *Config) string {
	var lines []string
	for _, c := range before.Diff(after) {
		lines = append(lines, c.String())
	}
	return strings.Join(lines, "\n")
}

func TestDiff(t *testing.T) {
	before := parseText(t, `
apis:
  sms:
    url: https://sms.example.com
    price: 0.10
    headers: {Authorization: "${env:A}"}
    bucket: {rate: 10/s, capacity: 500, max_wait: 10m}
    limits:
      - {name: account, rate: 100/s}
      - {name: daily, quota: 5/day}
      - {name: old, budget: 5.00/month, on_exhausted: dead_letter}
    keys: {vip: {capacity: 5}}
  fax: {url: "https://fax.example.com", bucket: {rate: 1/s, capacity: 1}}
`)
	after := parseText(t, `
dedupe: 5m
apis:
  mail: {url: "https://mail.example.com", bucket: {rate: 2/s, capacity: 1}}
  sms:
    bucket: {rate: 5/s, capacity: 500}
    url: https://sms.example.com
    price: 0.10
    headers: {Authorization: "${env:B}"}
    idempotency: {header: Idempotency-Key}
    timeout: 30s
    limits:
      - {name: daily, quota: 5/day, tz: Europe/Berlin}
      - {name: account, rate: 100/s}
      - {name: new, rate: 7/s}
      - {name: wide, quota: 300/3h, window: sliding, cost: header:X-Cost, shadow: true}
    keys: {vip: {capacity: 5, in_flight: 1}}
`)
	const want = `apis.fax: removed https://fax.example.com at 1/s
apis.mail: added https://mail.example.com at 2/s
apis.sms.bucket.max_wait: 10m -> no bound
apis.sms.bucket.rate: 10/s -> 5/s
apis.sms.headers.Authorization: ${env:A} -> ${env:B}
apis.sms.idempotency: added header Idempotency-Key
apis.sms.keys.vip.in_flight: added 1
apis.sms.limits.daily.tz: UTC -> Europe/Berlin
apis.sms.limits.new: added rate 7/s
apis.sms.limits.old: removed budget 5.00/month, on_exhausted dead_letter
apis.sms.limits.wide: added quota 300/3h, window sliding, cost header:X-Cost default 1, shadow true
dedupe: 10m -> 5m`
	if got := diffText(before, after); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := diffText(after, after); got != "" {
		t.Errorf("a file differs from itself: %s", got)
	}
	if got := diffText(nil, parseText(t, "apis: {}")); strings.Count(got, "added") != 6 {
		t.Errorf("the first file changes\n%s", got)
	}
}

// TestEveryFieldShowsInTheDiff checks that each field of a file shows in differences. It removes or changes values of
// the widest file, at least one of each field.
func TestEveryFieldShowsInTheDiff(t *testing.T) {
	data, err := os.ReadFile("testdata/good/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	whole, shown := parseText(t, text), map[string]bool{}
	for _, c := range []struct{ field, edit string }{
		{"accounts.NAME.shares", "{eu: 90%, us: 10%}>{eu: 89%, us: 10%}"},
		{"accounts.NAME.headroom", "headroom: 12%>headroom: 13%"},
		{"accounts.NAME.limits.name", "name: acme-open>name: acme-opened"},
		{"accounts.NAME.limits.rate", "rate: 77/s>rate: 78/s"},
		{"accounts.NAME.limits.burst", "burst: 66>burst: 65"},
		{"accounts.NAME.limits.counts", "burst: 66, counts: token_bucket>burst: 66"},
		{"accounts.NAME.limits.quota", "7777/day>7778/day"},
		{"accounts.NAME.limits.window", "77/17m, window: fixed>77/17m, window: sliding"},
		{"accounts.NAME.limits.tz", "Asia/Tokyo>Asia/Seoul"},
		{"accounts.NAME.limits.cost.from", "json:/acme>json:/acmes"},
		{"accounts.NAME.limits.cost.settle", "json:/usage/acme>json:/usage/all"},
		{"accounts.NAME.limits.cost.times", "times: 1.5,>times: 1.6,"},
		{"accounts.NAME.limits.cost.default", "default: 70,>default: 71,"},
		{"accounts.NAME.limits.cost.max", "max: 700,>max: 701,"},
		{"accounts.NAME.limits.cost.learn", "learn: p90>learn: p95"},
		{"accounts.NAME.limits.left", "header:X-Acme-Left>header:X-Acme-Rest"},
		{"accounts.NAME.limits.left_until", "header:X-Acme-Until>header:X-Acme-Reset"},
		{"accounts.NAME.limits.in_flight", "in_flight: 77>in_flight: 78"},
		{"accounts.NAME.limits.budget", "77/week>78/week"},
		{"accounts.NAME.limits.on_exhausted", "on_exhausted: dead_letter, shadow: true>on_exhausted: hold, shadow: true"},
		{"accounts.NAME.limits.shadow", "dead_letter, shadow: true>dead_letter, shadow: false"},
		{"apis.NAME.account", "account: acme\n    weight>account: other\n    weight"},
		{"apis.NAME.weight", "weight: 7>weight: 8"},
		{"apis.NAME.url", "https://zebra.example.com:8443/base/>https://zebra.example.com:8443/"},
		{"apis.NAME.methods", "[GET, POST, PATCH]>[POST, GET, PATCH]"},
		{"apis.NAME.headers", "application/json>text/plain"},
		{"apis.NAME.headers", "${env:LEFT}>${env:RIGHT}"},
		{"apis.NAME.forward_headers", "[content-type, Accept]>[Accept]"},
		{"apis.NAME.timeout", "1.5s>2s"},
		{"apis.NAME.idle_timeout", "idle_timeout: 20s>idle_timeout: 21s"},
		{"apis.NAME.idle_timeout", "    idle_timeout: 20s\n>"},
		{"apis.NAME.max_body", "1MiB>2MiB"},
		{"apis.NAME.price", "0.000125>0.5"},
		{"apis.NAME.price", "      - {each: 0.002}\n>"},
		{"apis.NAME.price.each", "each: 0.002>each: 0.003"},
		{"apis.NAME.price.each", "each: 7000,>each: 8000,"},
		{"apis.NAME.price.each", "each: 0.333334, per: 1000000>each: 1, per: 3000000"},
		{"apis.NAME.price.per", "each: 2.50, per: 1000000>each: 2.50, per: 1000"},
		{"apis.NAME.price.per", "each: 0.333334, per: 1000000>each: 0.333334, per: 999999"},
		{"apis.NAME.price.from", "json:/input_estimate>json:/input"},
		{"apis.NAME.price.settle", "json:/usage/prompt_tokens>json:/usage/all"},
		{"apis.NAME.price.times", "times: 1.1}>times: 1.100001}"},
		{"apis.NAME.price.default", "default: 1000,>default: 1001,"},
		{"apis.NAME.price.default", "default: 1,>"},
		{"apis.NAME.price.max", "max: 5000>max: 5001"},
		{"apis.NAME.price.learn", "learn: p99>learn: p95"},
		{"apis.NAME.usage", `{out: "json:/usage/out"}>{out: "json:/usage/in"}`},
		{"apis.NAME.usage", `{out: "json:/usage/out"}>{in: "json:/usage/out"}`},
		{"apis.NAME.idempotency.header", "Idempotency-Key>X-Idem"},
		{"apis.NAME.idempotency.quoted", ", quoted: true>"},
		{"apis.NAME.vendor.name", "name: github>name: twilio"},
		{"apis.NAME.vendor.without", "without: [retry]>without: [retry.hold]"},
		{"apis.NAME.idempotency.for", "quoted: true>quoted: true, for: 1h"},
		{"apis.NAME.key.from", "json:/customer/id>json:/id"},
		{"apis.NAME.key.tenant_until", `tenant_until: ".">tenant_until: "-"`},
		{"apis.NAME.headroom", "headroom: 10%>headroom: 11%"},
		{"apis.NAME.jitter", "jitter: 0>jitter: 1ms"},
		{"apis.NAME.bucket.rate", "2.5/s>5/s"},
		{"apis.NAME.bucket.burst", "burst: 20>burst: 4"},
		{"apis.NAME.bucket.counts", "burst: 2, counts: token_bucket>burst: 2"},
		{"apis.NAME.bucket.capacity", "capacity: 10000000>capacity: 9"},
		{"apis.NAME.bucket.max_wait", "max_wait: 1ms>max_wait: 2ms"},
		{"apis.NAME.bucket.in_flight", "in_flight: 1}>in_flight: 2}"},
		{"apis.NAME.limits.name", "name: jittery>name: steady"},
		{"apis.NAME.limits.rate", "90000/min>90000/h"},
		{"apis.NAME.limits.burst", "burst: 4000>burst: 4001"},
		{"apis.NAME.limits.counts", "burst: 60, counts: token_bucket>burst: 60"},
		{"apis.NAME.limits.quota", "100000/month>100000/week"},
		{"apis.NAME.limits.quota", "300/15m>300/16m"},
		{"apis.NAME.limits.window", "window: fixed>window: sliding"},
		{"apis.NAME.limits.tz", "Europe/Berlin>Europe/Paris"},
		{"apis.NAME.limits.left", "left: header:X-Left,>left: header:X-Remaining,"},
		{"apis.NAME.limits.left_until", "header:X-Left-Until>header:X-Reset"},
		{"apis.NAME.limits.cost", "cost: 100}>cost: 101}"},
		{"apis.NAME.limits.cost", `cost: "json:/n">cost: {from: "json:/n", default: 1}`},
		{"apis.NAME.limits.cost", `cost: "header:X-N">cost: {from: "header:X-N"}`},
		{"apis.NAME.limits.cost.from", "header:Weir-Cost>header:X-Cost"},
		{"apis.NAME.limits.cost.from", "from: 10,>from: 11,"},
		{"apis.NAME.limits.cost.settle", "json:/usage/total_tokens>json:/usage/all"},
		{"apis.NAME.limits.cost.settle", "header:X-Used>header:X-All"},
		{"apis.NAME.limits.cost.times", "times: 1.25>times: 1.250001"},
		{"apis.NAME.limits.cost.times", "times: 1.25>times: 1"},
		{"apis.NAME.limits.cost.default", ", default: 9>"},
		{"apis.NAME.limits.cost.default", ", default: 9>, default: 1"},
		{"apis.NAME.limits.cost.max", "max: 99>max: 98"},
		{"apis.NAME.limits.cost.learn", ", learn: p95>"},
		{"apis.NAME.limits.in_flight", "in_flight: 5}>in_flight: 7}"},
		{"apis.NAME.limits.per", "in_flight: 6, per: replica>in_flight: 6, per: api"},
		{"apis.NAME.limits.budget", "50/week>51/week"},
		{"apis.NAME.limits.on_exhausted", "on_exhausted: dead_letter>on_exhausted: hold"},
		{"apis.NAME.limits.shadow", "shadow: true>shadow: false"},
		{"apis.NAME.admit.rate", "1000/min>1001/min"},
		{"apis.NAME.admit.algorithm", "algorithm: token_bucket>algorithm: leaky_bucket"},
		{"apis.NAME.admit.burst", "burst: 50,>burst: 51,"},
		{"apis.NAME.admit.soft", "soft: 25%>soft: 26%"},
		{"apis.NAME.admit.elastic", "elastic: true>elastic: false"},
		{"apis.NAME.keys.PATTERN.rate", "{rate: 1/min}>{rate: 2/min}"},
		{"apis.NAME.keys.PATTERN.burst", "{burst: 3}>{burst: 4}"},
		{"apis.NAME.keys.PATTERN.counts", "{burst: 2, rate: 5/s}>{burst: 2, rate: 5/s, counts: window}"},
		{"apis.NAME.keys.PATTERN.capacity", "{capacity: 7}>{capacity: 8}"},
		{"apis.NAME.keys.PATTERN.max_wait", "{max_wait: 1h}>{max_wait: 2h}"},
		{"apis.NAME.keys.PATTERN.in_flight", `"*": {in_flight: 2}>"*": {in_flight: 3}`},
		{"apis.NAME.retry.attempts", "attempts: 1>attempts: 2"},
		{"apis.NAME.retry.min", "min: 100ms>min: 200ms"},
		{"apis.NAME.retry.max", "max: 1d>max: 2h"},
		{"apis.NAME.retry.on", "on: [409]>on: [408]"},
		{"apis.NAME.retry.reject", "reject: [403, 302]>reject: [403]"},
		{"apis.NAME.retry.hold", "hold: key>hold: api"},
		{"apis.NAME.retry.headers", "headers: ignore>headers: obey"},
		{"apis.NAME.retry.adaptive.floor", "floor: 25%>floor: 26%"},
		{"apis.NAME.retry.adaptive.recover", "recover: 5m>recover: 6m"},
		{"apis.NAME.breaker.failures", "failures: 0>failures: 1"},
		{"apis.NAME.breaker.min", "min: 10m>min: 11m"},
		{"apis.NAME.breaker.max", "{failures: 0, min: 10m}>{failures: 0, min: 10m, max: 20m}"},
		{"apis.NAME.inquiry.method", "method: HEAD>method: GET"},
		{"apis.NAME.inquiry.path", "/orders/{job}>/order/{job}"},
		{"apis.NAME.inquiry.answers.status", "status: 410>status: 404"},
		{"apis.NAME.inquiry.answers.json", "json: /data/0>json: /data/1"},
		{"apis.NAME.inquiry.answers.values", "values: [paid, 7, true]>values: [paid, 7]"},
		{"apis.NAME.inquiry.answers.means", "status: 404, means: not_processed>status: 404, means: processed"},
		{"apis.NAME.inquiry.rate", "rate: 30/min>rate: 31/min"},
		{"apis.NAME.inquiry.after", "after: 0s>after: 1s"},
		{"apis.NAME.inquiry.auto", "method: HEAD>method: HEAD\n      auto: true"},
		{"apis.NAME.inquiry.tries", "tries: 3>tries: 4"},
		{"apis.NAME.callback.url", "https://hooks.example.com/${env:CALLBACK}>https://hooks.example.com/${env:OTHER}"},
		{"apis.NAME.callback.secret", "${file:/run/secrets/callback}>${file:/run/secrets/other}"},
		{"apis.NAME.callback.rate", "rate: 50/s, for>rate: 51/s, for"},
		{"apis.NAME.callback.for", "for: 3d>for: 4d"},
		{"apis.NAME.operation.accepted", "accepted: [201, 202]>accepted: [202]"},
		{"apis.NAME.operation.poll.path", "?of={job}>?job={job}"},
		{"apis.NAME.operation.poll.every", "every: 1m>every: 2m"},
		{"apis.NAME.operation.poll.rate", "rate: 10/min, for>rate: 11/min, for"},
		{"apis.NAME.operation.poll.for", "for: 2d>for: 1d"},
		{"apis.NAME.operation.poll.hosts", `, "http://b:8080">`},
		{"apis.NAME.operation.answers.status", "status: 200, json: /state, values: [done]>status: 201, json: /state, values: [done]"},
		{"apis.NAME.operation.answers.json", "json: /state, values: [done]>json: /phase, values: [done]"},
		{"apis.NAME.operation.answers.values", "values: [failed]>values: [failed, gone]"},
		{"apis.NAME.operation.answers.means", "status: 200, means: running>status: 200, means: failed"},
		{"apis.NAME.operation.result", "result: json:/output/0>result: json:/output/1"},
		{"apis.NAME.operation.hold_slot", "hold_slot: true>hold_slot: false"},
		{"apis.NAME.operation.cancel.method", "method: POST>method: PUT"},
		{"apis.NAME.operation.cancel.path", "/cancel>/stop"},
		{"apis.NAME.reuse.for", "reuse: {for: 30d>reuse: {for: 29d"},
		{"apis.NAME.reuse.of", "of: [path, \"header:accept\"]>of: [path]"},
		{"apis.NAME.reuse.across_keys", "across_keys: true>across_keys: false"},
		{"apis.NAME.reuse.bytes", "bytes: 1MiB>bytes: 2MiB"},
		{"apis.NAME.pack.jobs", "pack: {jobs: 50>pack: {jobs: 60"},
		{"apis.NAME.pack.bytes", "bytes: 1MiB, wait>bytes: 2MiB, wait"},
		{"apis.NAME.pack.wait", "wait: 2s>wait: 3s"},
		{"apis.NAME.pack.request.under", "request: {under: \"/requests\"}>request: lines"},
		{"apis.NAME.pack.answers.under", "answers: lines>answers: {under: \"/results\"}"},
		{"apis.NAME.pack.match", "match: \"/custom_id\">match: order"},
		{"apis.NAME.pack.status", "status: \"/status\">status: \"/code\""},
		{"apis.NAME.priorities.high", "{high: 100, low: 2}>{high: 101, low: 2}"},
		{"apis.NAME.priorities.normal", "{high: 100, low: 2}>{high: 100, normal: 5, low: 2}"},
		{"apis.NAME.priorities.low", "{high: 100, low: 2}>{high: 100, low: 3}"},
		{"apis.NAME.tls.ca_file", "weir/ca.pem>weir/cas.pem"},
		{"apis.NAME.tls.cert_file", "cert_file: /etc/weir/own.pem>cert_file: /etc/weir/other.pem"},
		{"apis.NAME.tls.key_file", "key_file: /etc/weir/own.pem>key_file: /etc/weir/other.pem"},
		{"dead_letters.max_age", "max_age: 1w>max_age: 2w"},
		{"dead_letters.max_bytes", "max_bytes: 5MB>max_bytes: 6MB"},
		{"results.max_age", "max_age: 12h>max_age: 13h"},
		{"results.max_body", "max_body: 0>max_body: 1"},
		{"http.tokens.NAME.role", "role: producer>role: viewer"},
		{"http.tokens.NAME.token", "${env:SHOP_TOKEN}>${env:TOKEN}"},
		{"http.hosts", "Weir.example.com, weir>weir"},
		{"notifications.NAME.url", "${env:HOOK}>${env:OTHER}"},
		{"notifications.NAME.secret", "${file:/run/secrets/hook}>${file:/run/secrets/other}"},
		{"notifications.NAME.format", "format: standard>format: slack"},
		{"notifications.NAME.group", "group: 1m>group: 2m"},
		{"notifications.NAME.events", "[held, throttled]>[held]"},
		{"notifications.NAME.rate", "throttled], rate: 5/s>throttled], rate: 6/s"},
		{"reply_to", "reports.*.done>reports.*.end"},
		{"dedupe", "dedupe: 1h30m>dedupe: 1h"},
	} {
		shown[c.field] = true
		from, to, _ := strings.Cut(c.edit, ">")
		if !strings.Contains(text, from) {
			t.Errorf("the file has no %q", from)
			continue
		}
		changes := whole.Diff(parseText(t, strings.Replace(text, from, to, 1)))
		if !slices.ContainsFunc(changes, func(change Change) bool { return tells(change.Path, c.field) }) {
			t.Errorf("%s: %s -> %s shows as %v", c.field, from, to, changes)
		}
	}
	for _, path := range singleFields(File()) {
		if !shown[path] {
			t.Errorf("no edit changes %s", path)
		}
	}
}

// tells reports whether a difference at path can come from the field: path ends with the mapping that has the field.
func tells(path, field string) bool {
	names := strings.Split(field, ".")
	for _, name := range names[:max(1, len(names)-1)] {
		found := strings.Index(path, name)
		if found < 0 && name != "NAME" && name != "PATTERN" {
			return false
		}
		path = path[max(found, 0):]
	}
	return true
}

// singleFields returns the paths of all fields without a mapping inside.
func singleFields(s field.Table) (paths []string) {
	for _, f := range s.Fields {
		if f.Inner != nil {
			paths = append(paths, singleFields(*f.Inner)...)
		} else {
			paths = append(paths, strings.Trim(s.Path+"."+f.Name, "."))
		}
	}
	return paths
}

func TestOverridesStandMostExactFirst(t *testing.T) {
	api, ok := parseFile(t, "testdata/good/everything.yaml").API("chat")
	if !ok {
		t.Fatal("no api chat")
	}
	var patterns []string
	for _, o := range api.Rules.Overrides {
		patterns = append(patterns, o.Pattern)
	}
	if want := []string{"tenant.42", "bob", "42", "b*z", "*b", "b*", "*"}; !slices.Equal(patterns, want) {
		t.Errorf("overrides stand as %q, want %q", patterns, want)
	}
}

func TestAllowsAndForwards(t *testing.T) {
	api, ok := parseFile(t, "testdata/good/everything.yaml").API("chat")
	if !ok || !api.Allows("PATCH") || api.Allows("DELETE") || api.Allows("patch") {
		t.Error("methods are not what the file allows")
	}
	if !api.Forwards("CONTENT-type") || api.Forwards("X-Pair") {
		t.Error("headers are not what the file lets a job add")
	}
}

// TestALimitDoesNotChangeItsUnit checks that a quota cannot become a budget under the same name, nor the reverse.
func TestALimitDoesNotChangeItsUnit(t *testing.T) {
	of := func(own, accounts string) *Config {
		t.Helper()
		c, err := Parse([]byte("accounts: {acme: {limits: ["+accounts+"]}}\napis:\n  a: &a\n    url: https://api.example.com\n    account: acme\n    price: 0.01\n"+
			"    bucket: {rate: 1/s, capacity: 1}\n    limits: ["+own+"]\n"+
			"  b: {url: 'https://api.example.com', account: acme, price: 0.01, bucket: {rate: 1/s, capacity: 1}}\n"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const quota, budget, other = "{name: day, quota: 1000/day}", "{name: day, budget: 5.00/day}", "{name: spend, budget: 5.00/day}"
	for name, c := range map[string]struct {
		former, next *Config
		wrong        []string
	}{
		"no former":      {nil, of(budget, budget), nil},
		"the same":       {of(quota, budget), of(quota, budget), nil},
		"another name":   {of(quota, quota), of(other, other), nil},
		"another quota":  {of(quota, quota), of("{name: day, quota: 9/h}", "{name: day, rate: 9/s}"), nil},
		"a budget now":   {of(quota, quota), of(budget, quota), []string{"apis.a.limits.day"}},
		"a quota now":    {of(budget, quota), of(quota, quota), []string{"apis.a.limits.day"}},
		"of the account": {of(quota, quota), of(quota, budget), []string{"accounts.acme.limits.day"}},
	} {
		err := c.former.CheckUnits(c.next, "weir.yaml")
		var wrong *problem.Errors
		if err != nil && !errors.As(err, &wrong) {
			t.Fatal(err)
		}
		if wrong == nil {
			wrong = &problem.Errors{}
		}
		var paths []string
		for _, p := range wrong.Problems {
			paths = append(paths, p.Path)
		}
		if strings.Join(paths, " ") != strings.Join(c.wrong, " ") {
			t.Errorf("%s: %v, want %v", name, err, c.wrong)
		}
	}
}
