package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/config/problem"
)

const twoOfAcme = `accounts:
  acme:
    headroom: 10%
    limits: [{name: calls, rate: 100/s}, {name: spend, budget: 5.00/day}]
apis:
  chat:
    url: https://a
    account: acme
    weight: 3
    price: 0.10
    timeout: 60s
    bucket: {rate: 1/s, capacity: 1}
    limits: [{name: calls, rate: 50/s}]
  search:
    url: https://b
    account: acme
    price: 0.20
    jitter: 9ms
    bucket: {rate: 1/s, capacity: 1}
  alone:
    url: https://c
    bucket: {rate: 1/s, capacity: 1}
`

// TestAccountIsGivenToItsAPIs checks that an api has its own limits and then those of its account, and that the account
// has the largest jitter and lease of its apis.
func TestAccountIsGivenToItsAPIs(t *testing.T) {
	c, err := Parse([]byte(twoOfAcme), Options{})
	if err != nil {
		t.Fatal(err)
	}
	chat, _ := c.API("chat")
	search, _ := c.API("search")
	alone, _ := c.API("alone")
	if got := chat.Rules.Names(); !slices.Equal(got, []string{"calls", "acme/calls", "acme/spend"}) {
		t.Errorf("chat has the limits %q", got)
	}
	if got := search.Rules.Names(); !slices.Equal(got, []string{"acme/calls", "acme/spend"}) || search.Retry.Hold != HoldAPI {
		t.Errorf("search has the limits %q, and pushback holds %s", got, search.Retry.Hold)
	}
	if alone.Rules.In != nil || len(alone.Rules.Shared) > 0 || alone.Retry.Hold != HoldKey {
		t.Errorf("an api without an account has %+v", alone.Rules)
	}
	for _, a := range []*API{chat, search} {
		in := a.Rules.In
		if in.Account != "acme" || in.API != a.Name || in.Weight != a.Weight || in.Headroom != 10 || in.Jitter != 9*time.Millisecond || in.Lease < 65*time.Second ||
			!slices.Equal(in.APIs, []string{"chat", "search"}) {
			t.Errorf("%s has the place %+v", a.Name, *in)
		}
	}
	if len(c.Warnings) > 0 {
		t.Errorf("%v", c.Warnings)
	}
}

// TestMistakesOfAccounts checks that mistakes are refused with their fix.
func TestMistakesOfAccounts(t *testing.T) {
	for _, c := range []struct{ what, from, to, path, message string }{
		{"another name", "account: acme\n    price", "account: acne\n    price", "apis.search.account", "there is no account"},
		{"a weight alone", "url: https://c", "url: https://c\n    weight: 2", "apis.alone.weight", "means nothing without an account"},
		{"a hold alone", "url: https://c", "url: https://c\n    retry: {hold: account}", "apis.alone.retry.hold", "means nothing without an account"},
		{"no price", "    price: 0.20\n", "", "apis.search.account", "needs to know what a call costs"},
		{"too dear", "price: 0.20", "price: 4.60", "apis.search.account", "none can ever pass"},
		{"no limits", "    limits: [{name: calls, rate: 100/s}, {name: spend, budget: 5.00/day}]\n", "", "accounts.acme.limits", "is missing"},
		{"one name twice", "{name: spend, budget", "{name: calls, budget", "accounts.acme.limits[1].name", "a second limit"},
		{"a usage counter", "rate: 100/s}", "rate: 100/s, cost: usage:tokens}", "accounts.acme.limits[0].cost", ""},
	} {
		_, err := Parse([]byte(strings.Replace(twoOfAcme, c.from, c.to, 1)), Options{})
		told, _ := err.(*problem.Errors) //nolint:errorlint // Parse returns no other
		if told == nil || !slices.ContainsFunc(told.Problems, func(p problem.Problem) bool {
			return p.Path == c.path && strings.Contains(p.Message, c.message) && p.Line > 0
		}) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// TestChangesOfAccountsConcernAll checks that a change of an account affects every api.
func TestChangesOfAccountsConcernAll(t *testing.T) {
	before, err := Parse([]byte(twoOfAcme), Options{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := Parse([]byte(strings.Replace(twoOfAcme, "rate: 100/s", "rate: 90/s", 1)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	changes := before.Diff(after)
	if len(changes) != 1 || changes[0].Path != "accounts.acme.limits.calls.rate" || !Concerns(changes, "search") {
		t.Errorf("%v", changes)
	}
}
