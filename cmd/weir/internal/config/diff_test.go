package config

import (
	"os"
	"slices"
	"strings"
	"testing"
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
apis.sms.limits.wide: added quota 300/3h, window sliding, cost header:X-Cost, shadow true
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

// TestEveryLineOfAFileShowsInTheDiff takes single values of the widest file away or changes them: whatever a file can
// say must show in the difference.
func TestEveryLineOfAFileShowsInTheDiff(t *testing.T) {
	data, err := os.ReadFile("testdata/good/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	whole := parseText(t, text)
	for _, edit := range []string{
		"2.5/s>5/s", "burst: 20>burst: 4", "capacity: 10000000>capacity: 9", "max_wait: 1ms>max_wait: 2ms",
		"in_flight: 1}>in_flight: 2}", "1.5s>2s", "1MiB>2MiB", "0.000125>0.5", ", quoted: true>", "Idempotency-Key>X-Idem",
		"json:/customer/id>json:/id", "[GET, POST, PATCH]>[POST, GET, PATCH]", "[content-type, Accept]>[Accept]",
		"application/json>text/plain", "${env:LEFT}>${env:RIGHT}", "100000/month>100000/week", "50/week>51/week",
		"Europe/Berlin>Europe/Paris", "on_exhausted: dead_letter>on_exhausted: hold", "90000/min>90000/h",
		"burst: 4000>burst: 4001", "header:Weir-Cost>header:X-Cost", "json:/usage/total_tokens>json:/usage/all",
		"cost: 100}>cost: 101}", "shadow: true>shadow: false", "window: fixed>window: sliding", "300/15m>300/16m",
		"from: 10,>from: 11,", "header:X-Used>header:X-All", "1000/min>1001/min", "algorithm: token_bucket>algorithm: leaky_bucket", "burst: 60, counts: token_bucket>burst: 60",
		"burst: 50,>burst: 51,", "elastic: true>elastic: false", "soft: 25%>soft: 26%", `"*": {in_flight: 2}>"*": {in_flight: 3}`,
		"{burst: 3}>{burst: 4}", "{capacity: 7}>{capacity: 8}", "{max_wait: 1h}>{max_wait: 2h}", "{rate: 1/min}>{rate: 2/min}",
		"attempts: 1>attempts: 2", "min: 100ms>min: 200ms", "max: 1d>max: 2h", "on: [409]>on: [408]", "reject: [403, 302]>reject: [403]", "hold: key>hold: api",
		"headroom: 10%>headroom: 11%", "jitter: 0>jitter: 1ms", "max_age: 1w>max_age: 2w", "max_bytes: 5MB>max_bytes: 6MB",
		"max_age: 12h>max_age: 13h", "max_body: 0>max_body: 1", "dedupe: 1h30m>dedupe: 1h",
	} {
		from, to, _ := strings.Cut(edit, ">")
		if !strings.Contains(text, from) {
			t.Errorf("the file has no %q", from)
			continue
		}
		if changes := whole.Diff(parseText(t, strings.Replace(text, from, to, 1))); len(changes) == 0 {
			t.Errorf("%s -> %s shows no change", from, to)
		}
	}
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
