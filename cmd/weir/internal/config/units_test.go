package config

import (
	"errors"
	"strings"
	"testing"
)

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
		var wrong *Errors
		if err != nil && !errors.As(err, &wrong) {
			t.Fatal(err)
		}
		if wrong == nil {
			wrong = &Errors{}
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
