package config

import (
	"maps"
	"strings"
	"testing"
)

// sharedAcme is an account of two sites.
const sharedAcme = `accounts:
  acme:
    limits: [{name: calls, rate: 100/s, burst: 10}, {name: daily, quota: 50/day, tz: UTC}, {name: running, in_flight: 5}, {name: spend, budget: 10.00/day}]
    shares: {eu: 60%, us: 40%}
apis:
  chat: {url: "https://a", account: acme, price: 0.10, bucket: {rate: 1/s, capacity: 1}}
`

func parseAt(t *testing.T, text, site string, shares map[string]int64) *Config {
	t.Helper()
	c, err := Parse([]byte(text), Options{Site: site, Shares: shares})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestShareOfLimits checks that a site has its part of each limit of the account, rounded down, and that the share in
// force replaces that of the file.
func TestShareOfLimits(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		site                                          string
		shares                                        map[string]int64
		share, rate, burst, daily, running, millionth int64
	}{
		"eu":              {"eu", nil, 60, 60, 6, 30, 3, 6_000_000},
		"us":              {"us", nil, 40, 40, 4, 20, 2, 4_000_000},
		"eu after a move": {"eu", map[string]int64{"acme": 51}, 51, 51, 5, 25, 2, 5_100_000},
		"no site":         {"", nil, 40, 40, 4, 20, 2, 4_000_000},
	} {
		c := parseAt(t, sharedAcme, of.site, of.shares)
		l := c.APIs[0].Rules.Shared
		got := []int64{c.Accounts[0].Share, l[0].Rate.Count, l[0].Rate.Burst, l[1].Quota.Count, l[2].InFlight, l[3].Budget.Count}
		for i, want := range []int64{of.share, of.rate, of.burst, of.daily, of.running, of.millionth} {
			if got[i] != want {
				t.Errorf("%s: %v", name, got)
				break
			}
		}
		if c.Accounts[0].Whole[0].Rate.Count != 100 {
			t.Errorf("%s: the whole is %+v", name, c.Accounts[0].Whole[0].Rate)
		}
	}
}

// TestSharesAreChecked checks that shares that cannot be enforced are problems.
func TestSharesAreChecked(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		"{eu: 60%, us: 41%}": "the shares are 101% together",
		"{eu: 99%, us: 1%}":  "site us, limit running: 1% of in_flight leaves no call",
		"{eu: 60%, us: 0%}":  "a share of 0% makes no calls",
		"{ap: 60%}":          `the site "eu" has no share`,
		"{EU: 60%}":          "cannot be a name",
		"[eu]":               "is a list",
		"{eu: 60}":           "has no % sign",
	} {
		_, err := Parse([]byte(strings.Replace(sharedAcme, "{eu: 60%, us: 40%}", written, 1)), Options{Site: "eu"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", written, err)
		}
	}
}

// TestShareIsInTheDiff checks that a move is one difference, and that the explanation says where a share comes from.
func TestShareIsInTheDiff(t *testing.T) {
	t.Parallel()
	c := parseAt(t, sharedAcme, "eu", nil)
	moved, err := c.WithShare("acme", 50)
	if err != nil {
		t.Fatal(err)
	}
	changes := c.Diff(moved)
	if len(changes) != 1 || changes[0] != (Change{"accounts.acme.shares.eu", "60%", "50%"}) {
		t.Errorf("changes: %v", changes)
	}
	for _, v := range moved.Explain() {
		if v.Path == "accounts.acme.shares.eu" && (v.Value != "50%" || !v.Moved) || v.Path == "accounts.acme.shares.us" && (v.Value != "40%" || v.Line != 4) {
			t.Errorf("%+v", v)
		}
	}
}

// TestTextsRaiseNoShare checks what a new text does to the share in force.
func TestTextsRaiseNoShare(t *testing.T) {
	t.Parallel()
	without := strings.Replace(sharedAcme, "    shares: {eu: 60%, us: 40%}\n", "", 1)
	text := func(shares string) string { return strings.Replace(sharedAcme, "{eu: 60%, us: 40%}", shares, 1) }
	renamed := func(text string) string { return strings.ReplaceAll(text, "acme", "other") }
	moved := map[string]int64{"acme": 50}
	const (
		beside  = "accounts: {other: {limits: [{rate: 1/s}]}, acme: {limits: [{rate: 9/s}], shares: {eu: 60%}}}\napis:\n"
		moving  = "  chat: {url: 'https://a', account: other, bucket: {rate: 1/s, capacity: 1}}\n"
		staying = "  stays: {url: 'https://a', account: acme, price: 0.10, bucket: {rate: 1/s, capacity: 1}}\n"
		both    = "accounts: {other: {limits: [{rate: 9/s}], shares: {eu: 60%}}, acme: {limits: [{rate: 9/s}], shares: {eu: 60%}}}\napis:\n"
	)
	back := strings.Replace(moving, "other", "acme", 1)
	stayed := map[string]int64{"acme": 60, "other": 30}
	for name, of := range map[string]struct {
		before, next string
		inForce      map[string]int64
		how          Succession
		want         int64 // 0: refused
	}{
		"the first":                   {"", sharedAcme, nil, Lowering, 60},
		"the same after a move":       {sharedAcme, sharedAcme, moved, Lowering, 50},
		"another site's share":        {sharedAcme, text("{eu: 60%, us: 30%}"), moved, Lowering, 50},
		"what is in force":            {sharedAcme, text("{eu: 50%, us: 50%}"), moved, Lowering, 50},
		"less":                        {sharedAcme, text("{eu: 45%, us: 40%}"), moved, Lowering, 45},
		"more":                        {sharedAcme, text("{eu: 55%, us: 40%}"), moved, Lowering, 0},
		"more than the text before":   {sharedAcme, text("{eu: 61%, us: 39%}"), nil, Lowering, 0},
		"a rollback":                  {sharedAcme, text("{eu: 80%, us: 20%}"), moved, Keeping, 50},
		"a rollback to less":          {sharedAcme, text("{eu: 20%, us: 20%}"), moved, Keeping, 50},
		"a rollback to no shares":     {sharedAcme, without, moved, Keeping, 50},
		"no shares":                   {sharedAcme, without, nil, Lowering, 0},
		"no shares, after the whole":  {sharedAcme, without, map[string]int64{"acme": 100}, Lowering, 100},
		"shares of a whole account":   {without, sharedAcme, nil, Lowering, 60},
		"an account that comes back":  {"apis: {}\n", sharedAcme, moved, Lowering, 0},
		"an account that comes lower": {"apis: {}\n", text("{eu: 40%}"), moved, Lowering, 40},
		"another name":                {sharedAcme, renamed(sharedAcme), moved, Lowering, 0},
		"another name, and less":      {sharedAcme, renamed(text("{eu: 40%}")), moved, Lowering, 40},
		"another name, whole":         {sharedAcme, renamed(without), moved, Lowering, 0},
		"a rollback to another name":  {sharedAcme, renamed(sharedAcme), map[string]int64{"acme": 50, "other": 55}, Keeping, 50},
		"the former entry stays":      {sharedAcme, beside + moving, moved, Lowering, 0},
		"the entry stays, a new api":  {sharedAcme, beside + moving + staying, moved, Lowering, 0},
		"an account beside it":        {sharedAcme + staying, beside + moving + staying, moved, Lowering, 50},
		"the entry that stayed":       {both + moving, both + back, stayed, Lowering, 0},
		"a rollback to it":            {both + moving, both + back, stayed, Keeping, 30},
		"an entry written ahead":      {both + back, both + moving, map[string]int64{"acme": 30, "other": 60}, Lowering, 0},
	} {
		var before *Config
		if of.before != "" {
			before = parseAt(t, of.before, "eu", of.inForce)
		}
		c, err := parseAt(t, of.next, "", nil).Succeed(before, "eu", of.how)
		switch {
		case of.want == 0 && err == nil:
			t.Errorf("%s: not refused, %d%%", name, c.Accounts[0].Share)
		case of.want > 0 && (err != nil || c.Accounts[0].Share != of.want):
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

// TestSites checks that a weir of no site, or of another one, does not run by a configuration with shares.
func TestSites(t *testing.T) {
	t.Parallel()
	c := parseAt(t, sharedAcme, "eu", nil)
	for site, ok := range map[string]bool{"eu": true, "us": false, "": false} {
		if err := c.RefuseSite(site); (err == nil) != ok {
			t.Errorf("site %q: %v", site, err)
		}
	}
	if _, err := parseAt(t, sharedAcme, "", nil).Succeed(nil, "", Lowering); err == nil || !strings.Contains(err.Error(), "set WEIR_SITE to eu or us") {
		t.Errorf("no site: %v", err)
	}
	if _, err := parseAt(t, sharedAcme, "", nil).Succeed(c, "us", Lowering); err == nil || !strings.Contains(err.Error(), `the store is of site "eu"`) {
		t.Errorf("another site: %v", err)
	}
	if !maps.Equal(c.InForce(), map[string]int64{"acme": 60}) {
		t.Errorf("in force: %v", c.InForce())
	}
	if err := parseAt(t, twoOfAcme, "", nil).RefuseSite("eu"); err != nil {
		t.Errorf("no shares: %v", err)
	}
}
