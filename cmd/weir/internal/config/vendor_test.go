package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config/vendors"
)

// vendored returns a file with one api of a vendor. It has a rate for each limit that the vendor's facts name. more has
// further fields of the api.
func vendored(p *vendors.Profile, more string) string {
	var limits []string
	rate := "10000/min"
	if p.Period == time.Hour {
		rate = "10000/h"
	}
	for _, fact := range p.Facts {
		if parts := strings.Split(fact.Field, "."); parts[0] == "limits" {
			limit := "{name: " + parts[1] + ", rate: " + rate + ", burst: 100}"
			if !slices.Contains(limits, limit) {
				limits = append(limits, limit)
			}
		}
	}
	return fmt.Sprintf("apis:\n  a:\n    url: https://api.example.com\n    vendor: %s\n    bucket: {rate: 1/s, capacity: 1}\n    limits: [%s]\n%s",
		p.Name, strings.Join(limits, ", "), more)
}

// explained returns the values in force, by their paths below the api.
func explained(t *testing.T, text string) map[string]Explained {
	t.Helper()
	values := map[string]Explained{}
	for _, v := range parseText(t, text).Explain() {
		values[strings.TrimPrefix(v.Path, "apis.a.")] = v
	}
	return values
}

// TestProfiles checks that an api needs only the fields that no vendor documents, that each fact of its profile is then
// in force and names its source, and that no other value claims to be the vendor's.
func TestProfiles(t *testing.T) {
	var before string
	for _, p := range vendors.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			seen := map[string]bool{}
			c := parseText(t, vendored(&p, ""))
			if len(c.Warnings) > 0 {
				t.Errorf("warnings: %v", c.Warnings)
			}
			values := explained(t, vendored(&p, ""))
			for _, fact := range p.Facts {
				if seen[fact.Field] {
					t.Errorf("%s stands twice", fact.Field)
				}
				seen[fact.Field] = true
				v, ok := values[strings.ReplaceAll(fact.Field, ".anthropic-version", ".Anthropic-Version")]
				if !ok || v.Vendor != p.Name || v.Page != fact.Page || v.Date != fact.Date || v.Says != fact.Says || v.Line != 0 {
					t.Errorf("%s is %+v", fact.Field, v)
				}
				if day, err := time.Parse(time.DateOnly, fact.Date); err != nil || day.After(time.Now()) {
					t.Errorf("%s has the date %q", fact.Field, fact.Date)
				}
				if !strings.HasPrefix(fact.Page, "https://") || fact.Says == "" || strings.Contains(fact.Value, "${") {
					t.Errorf("%s says %q on %s: a fact has words and a page, and no secret", fact.Field, fact.Says, fact.Page)
				}
			}
			for path, v := range values {
				if v.Vendor != "" && !slices.ContainsFunc(p.Facts, func(f vendors.Fact) bool { return strings.EqualFold(f.Field, path) }) {
					t.Errorf("%s claims to be the vendor's", path)
				}
			}
			if p.Name <= before {
				t.Errorf("%s stands after %s", p.Name, before)
			}
			before = p.Name
		})
	}
}

// TestProfilesPromise checks what a profile must never do. Only a vendor that documents idempotency keys gets a header
// for them. Only statuses that the vendor documents as not processed or not billed are repeated.
func TestProfilesPromise(t *testing.T) {
	headers := map[string]string{"stripe": "Idempotency-Key"}
	statuses := map[string][]int{"anthropic": {429, 503, 529}, "stripe": {429, 503, 409}}
	rejected := map[string][]int{"stripe": {402}} // never repeated
	for _, p := range vendors.Profiles() {
		a := parseText(t, vendored(&p, "")).APIs[0]
		header := ""
		if a.Idempotency != nil {
			header = a.Idempotency.Header
		}
		if header != headers[p.Name] {
			t.Errorf("%s: the header is %q", p.Name, header)
		}
		want := statuses[p.Name]
		if want == nil {
			want = []int{429, 503}
		}
		if !slices.Equal(a.Retry.On, want) || !slices.Equal(a.Retry.Reject, rejected[p.Name]) {
			t.Errorf("%s: on %v, reject %v", p.Name, a.Retry.On, a.Retry.Reject)
		}
	}
}

// TestFileBeforeProfile checks that a value of the file replaces the vendor's, in every mapping and for every limit,
// and that the fields beside it keep the vendor's values.
func TestFileBeforeProfile(t *testing.T) {
	values := explained(t, `
apis:
  a:
    url: https://api.example.com
    vendor: {name: anthropic, without: [timeout, usage.cache_read_input_tokens]}
    headers: {Anthropic-Version: "2099-01-01", X-Api-Key: "${env:KEY}"}
    bucket: {rate: 1/s, capacity: 1}
    usage: {input_tokens: json:/mine}
    retry: {on: [500]}
    limits:
      - {name: input_tokens, rate: 1000/min, burst: 100, cost: 7}
      - {name: output_tokens, quota: 1000/day}
      - {name: requests, in_flight: 3}
      - {name: mine, rate: 5/s}
`)
	for path, want := range map[string]Explained{
		"timeout":                       {Value: "30s"},
		"headers.Anthropic-Version":     {Value: "2099-01-01", Line: 6},
		"usage.input_tokens":            {Value: "json:/mine", Line: 8},
		"usage.output_tokens":           {Value: "json:/usage/output_tokens or json:/message/usage/output_tokens", Vendor: "anthropic"},
		"retry.on":                      {Value: "500", Line: 9},
		"retry.hold":                    {Value: "api", Vendor: "anthropic"},
		"retry.attempts":                {Value: "5"},
		"limits.input_tokens.cost":      {Value: "7", Line: 11},
		"limits.input_tokens.counts":    {Value: "token_bucket", Vendor: "anthropic"},
		"limits.requests.in_flight":     {Value: "3", Line: 13},
		"limits.mine.counts":            {Value: "window"},
		"vendor":                        {Value: "anthropic", Line: 5},
		"vendor.without":                {Value: "timeout, usage.cache_read_input_tokens", Line: 5},
		"usage.cache_read_input_tokens": {},
		"limits.output_tokens.counts":   {},
		"limits.requests.counts":        {},
		"limits.requests.cost":          {},
		"limits.output_tokens.quota":    {Value: "1000/day", Line: 12},
		"limits.output_tokens.cost":     {Value: "json:/max_tokens default 0 settled by json:/usage/output_tokens or json:/message/usage/output_tokens", Vendor: "anthropic"},
		"usage.cache_creation_input_tokens": {
			Value: "json:/usage/cache_creation_input_tokens or json:/message/usage/cache_creation_input_tokens", Vendor: "anthropic",
		},
	} {
		got := values[path]
		if got.Value != want.Value || got.Line != want.Line || got.Vendor != want.Vendor {
			t.Errorf("%s is %+v, want %+v", path, got, want)
		}
	}
}

// TestProfileOfLeft checks which limits get the vendor's headers of what is left: those with the vendor's period that
// are not shadows. A field that means nothing without another one is left out together with it.
func TestProfileOfLeft(t *testing.T) {
	const until = "header:x-ratelimit-reset-requests"
	for limit, want := range map[string][2]string{
		"rate: 500/min":  {"header:x-ratelimit-remaining-requests", until},
		"rate: 500/60s":  {"header:x-ratelimit-remaining-requests", until},
		"quota: 500/min": {"header:x-ratelimit-remaining-requests", until},
		"quota: 500/min, window: fixed, shadow: false": {"header:x-ratelimit-remaining-requests", until},
		"rate: 500/min, left: header:X-Mine":           {"header:X-Mine", until},
		"rate: 500/min, left_until: header:X-Mine":     {"header:x-ratelimit-remaining-requests", "header:X-Mine"},
		"rate: 8/s":                   {},
		"quota: 10000/day":            {},
		"quota: 10000/month":          {},
		"rate: 500/min, shadow: true": {},
		"in_flight: 5":                {},
	} {
		values := explained(t, "apis: {a: {url: 'https://a.example.com', vendor: openai, bucket: {rate: 1/s, capacity: 1}, limits: [{name: requests, "+limit+"}]}}")
		if got := [2]string{values["limits.requests.left"].Value, values["limits.requests.left_until"].Value}; got != want {
			t.Errorf("%s: left is read from %q, want %q", limit, got, want)
		}
	}
	values := explained(t, "apis: {a: {url: 'https://a.example.com', vendor: {name: openai, without: [limits.requests.left]}, "+
		"bucket: {rate: 1/s, capacity: 1}, limits: [{name: requests, rate: 500/min}]}}")
	if got := values["limits.requests.left_until"]; got.Value != "" {
		t.Errorf("without left there is %+v", got)
	}
	values = explained(t, "apis: {a: {url: 'https://a.example.com', vendor: {name: stripe, without: [idempotency.header]}, bucket: {rate: 1/s, capacity: 1}}}")
	for path, v := range values {
		if strings.HasPrefix(path, "idempotency") {
			t.Errorf("without its header the idempotency has %+v", v)
		}
	}
}

// TestEmptyMappings checks that an empty mapping, for example with only comments, keeps the vendor's values.
func TestEmptyMappings(t *testing.T) {
	for _, empty := range []string{"", " {}", " null", " ~"} {
		values := explained(t, "apis:\n  a:\n    url: https://a.example.com\n    vendor: anthropic\n    bucket: {rate: 1/s, capacity: 1}\n"+
			"    retry:"+empty+"\n    usage:"+empty+"\n    headers:"+empty+"\n")
		for path, want := range map[string]string{
			"retry.on": "429, 503, 529", "usage.cache_read_input_tokens": "json:/usage/cache_read_input_tokens or json:/message/usage/cache_read_input_tokens",
			"headers.Anthropic-Version": "2023-06-01",
		} {
			if got := values[path]; got.Value != want || got.Vendor != "anthropic" {
				t.Errorf("with %q %s is %+v", empty, path, got)
			}
		}
	}
}

// TestProfileOfAlias checks that values which a profile fills in for one api do not get into another api that shares
// its fields by an alias.
func TestProfileOfAlias(t *testing.T) {
	c := parseText(t, `
apis:
  a: {url: 'https://a.example.com', vendor: github, bucket: {rate: 1/s, capacity: 1}, retry: &r {attempts: 2}, limits: &l [{name: requests, rate: 5/s}]}
  b: {url: 'https://b.example.com', bucket: {rate: 1/s, capacity: 1}, retry: *r, limits: *l}
  c: {url: 'https://c.example.com', vendor: anthropic, bucket: {rate: 1/s, capacity: 1}, retry: *r, limits: *l}
`)
	for i, want := range []time.Duration{time.Minute, time.Second, time.Second} {
		if a := c.APIs[i]; a.Retry.Min != want || a.Retry.Attempts != 2 {
			t.Errorf("api %s: %+v", a.Name, a.Retry)
		}
	}
	if a, b := c.APIs[2].Rules.Shared[0].Rate, c.APIs[1].Rules.Shared[0].Rate; a.Counts != "token_bucket" || b.Counts != "" {
		t.Errorf("the limits count %q and %q", a.Counts, b.Counts)
	}
}

// TestDiffOfProfile checks that a difference compares values in force. A file that writes out a vendor's value does not
// differ.
func TestDiffOfProfile(t *testing.T) {
	const without = "apis: {a: {url: 'https://a.example.com', bucket: {rate: 1/s, capacity: 1}, %s}}"
	before, after := parseText(t, fmt.Sprintf(without, "timeout: 30s")), parseText(t, fmt.Sprintf(without, "vendor: stripe"))
	const want = `apis.a.idempotency: added header Idempotency-Key, for 1d
apis.a.retry.on: 429, 503 -> 429, 503, 409
apis.a.retry.reject: added 402
apis.a.vendor: added stripe`
	if got := diffText(before, after); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	written := parseText(t, fmt.Sprintf(without, "idempotency: {header: Idempotency-Key, for: 24h}, retry: {on: [429, 503, 409], reject: [402]}"))
	if got := diffText(written, after); got != "apis.a.vendor: added stripe" {
		t.Errorf("written out, the difference is %s", got)
	}
	if got := after.Vendors(); len(got) != 1 || got["stripe"] == "" {
		t.Errorf("the vendors are %v", got)
	}
}

// TestRevisions checks that a change of a profile's values changes the revision, and that a change of its words does
// not.
func TestRevisions(t *testing.T) {
	of := func(change func(p *vendors.Profile)) string {
		p := *vendors.Of("stripe")
		change(&p)
		return p.Revision()
	}
	same := of(func(*vendors.Profile) {})
	for what, change := range map[string]func(p *vendors.Profile){
		"a value": func(p *vendors.Profile) { p.Facts[0].Value = "X-Key" },
		"a new fact": func(p *vendors.Profile) {
			p.Facts = append(p.Facts, vendors.Fact{Field: "timeout", Value: "80s", Date: "2001-01-01"})
		},
		"a fact that is gone": func(p *vendors.Profile) { p.Facts = p.Facts[1:] },
		"a date":              func(p *vendors.Profile) { p.Facts[0].Date = "2999-01-01" },
		"the period":          func(p *vendors.Profile) { p.Period = time.Hour },
	} {
		if of(change) == same {
			t.Errorf("with %s changed it is %s, too", what, same)
		}
	}
	if got := of(func(p *vendors.Profile) { p.Facts[0].Says += "." }); got != same {
		t.Errorf("in other words it is %s, not %s", got, same)
	}
}

// TestProfileProblems checks that problems with a vendor, or with its values in this file, are reported on the line
// that names the vendor.
func TestProfileProblems(t *testing.T) {
	for more, want := range map[string]string{
		"vendor: antropic": `line 4: apis.a.vendor: "antropic" is unknown: did you mean "anthropic"?`,
		"vendor: {without: [usage]}": "line 4: apis.a.vendor.name: is missing: " +
			"write one of anthropic, bedrock, github, openai, shopify, stripe, twilio",
		"vendor: {name: openai, without: [retry.hod]}": `line 4: apis.a.vendor.without[0]: the profile of openai has no field "retry.hod": did you mean "retry.hold"?`,
		"vendor: stripe\n    forward_headers: [idempotency-key]": "line 4: apis.a.idempotency.header: Idempotency-Key stands in forward_headers too: " +
			"a job could replace its id (from the profile of vendor stripe): remove it there, " +
			"or write vendor: {name: stripe, without: [idempotency.header]}",
		"vendor: stripe\n    retry: {on: [402]}": "line 4: apis.a.retry.reject[0]: 402 stands under on too, where it means that the job was not processed " +
			"(from the profile of vendor stripe): remove it from one of them, or write vendor: {name: stripe, without: [retry.reject]}",
		"vendor: openai\n    usage: {a1: json:/1, a2: json:/1, a3: json:/1, a4: json:/1, a5: json:/1, a6: json:/1, a7: json:/1, a8: json:/1, " +
			"a9: json:/1, b1: json:/1, b2: json:/1, b3: json:/1, b4: json:/1}": "line 5: apis.a.usage: has 17 entries, " +
			"4 of them from the profile of the api's vendor: write at most 16, or leave some of those out: vendor: {name: …, without: […]}",
		"vendor: openai\n    price: {each: 1, settle: usage:output_token}": `line 5: apis.a.price.settle: there is no usage counter "output_token": ` +
			`did you mean "output_tokens"?`,
	} {
		_, err := Parse([]byte("apis:\n  a:\n    url: https://api.example.com\n    "+more+"\n    bucket: {rate: 1/s, capacity: 1}\n"), Options{})
		if err == nil || err.Error() != "weir.yaml:"+strings.TrimPrefix(want, "line ") {
			t.Errorf("%s\n got %v\nwant %s", more, err, want)
		}
	}
}
