package config

import (
	"fmt"
	"slices"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
)

// Account is a vendor's account that several apis share, with the limits that count over all of them.
type Account struct {
	Name  string
	Rules bucket.Rules // its limits and their headroom; with shares, the parts that this site enforces
	// Shares are the shares in the file, sorted by site. If there are none, no other site uses the account.
	Shares []Share
	Share  int64          // in force at this site, in percent; 100 without shares
	Whole  []bucket.Limit // the undivided limits, of all sites together
}

// mostAccounts bounds the accounts of a file.
const mostAccounts = 100

// section returns the fields of one account, read for a site with the shares in force there.
func (a *Account) section(site string, inForce map[string]int64) field.Section {
	of, lines := &a.Rules, map[string]int{}
	of.Jitter = DefaultJitter // each api is also checked by its own jitter
	return field.Section{
		Fields: []field.Field{
			{
				Name: "headroom", Is: field.One(&of.Headroom, field.Percent(0, 99)), Or: "0%",
				Means: "how far weir stays below every limit of the account",
			},
			{
				Name: "limits", Needs: "write limits: [{name: calls, rate: 100/s}]",
				Is: field.Items(&of.Shared, mostShared,
					func(l *bucket.Limit) field.Section { return limit(l, of, nil, &[]Usage{}, lines) }),
				Means: "limits that count over all APIs of the account; a call must be within all of them, and within those of " +
					"its API",
			},
			{
				Name: "shares", Is: shares(a, site, inForce), Otherwise: "none",
				Means: "the part of each limit that each site enforces alone ([sites](sites.md)). Later changes are made by " +
					"`weir shares`",
			},
		},
		Check: func(f field.Fields) { a.divide(f, site, inForce) },
		Whole: func() string { return fmt.Sprintf("%d limits", len(of.Shared)) },
	}
}

// Account returns the account of that name.
func (c *Config) Account(name string) (*Account, bool) {
	i := slices.IndexFunc(c.Accounts, func(a Account) bool { return a.Name == name })
	if i < 0 {
		return nil, false
	}
	return &c.Accounts[i], true
}

// join appends the limits of the api's account to the api's own limits. Such a limit is called account/limit.
func (a *API) join(f field.Fields, accounts []Account) {
	if a.Account == "" {
		f.Ignored("without an account", "weight")
		return
	}
	i := slices.IndexFunc(accounts, func(of Account) bool { return of.Name == a.Account })
	if i < 0 {
		fix := "write it under accounts, with its limits"
		if len(accounts) > 0 {
			names := make([]string, len(accounts))
			for i := range accounts {
				names[i] = accounts[i].Name
			}
			fix = problem.Meant(a.Account, names)
		}
		f.Place("account").Fail("there is no account "+problem.Quote(a.Account), fix)
		return
	}
	of := &accounts[i]
	a.Rules.In = &bucket.Membership{Account: of.Name, API: a.Name, Weight: a.Weight, Headroom: of.Rules.Headroom}
	for _, l := range of.Rules.Shared {
		l.Name, l.Account = of.Name+"/"+l.Name, of.Name
		a.Rules.Shared = append(a.Rules.Shared, l)
		if l.Budget != nil {
			a.checkBudget(f, &l)
		}
	}
}

// checkBudget refuses a budget of the account under which no call of the api can be made.
func (a *API) checkBudget(f field.Fields, l *bucket.Limit) {
	usual := grammar.Money(a.Prices.Usual())
	left := afterHeadroom(l.Budget.Count, a.Rules.In.Headroom)
	switch {
	case a.Prices.Fixed() && usual == 0:
		f.Place("account").Fail("the budget "+l.Name+" needs to know what a call costs", "write price: 0.40 for the api")
	case !a.Prices.Varies() && int64(usual) > left:
		f.Place("account").Fail(fmt.Sprintf("a call costs %s and at most %s of %s may be spent per period: none can ever "+
			"pass", usual, grammar.Money(left), l.Name),
			"raise the budget, or lower price or headroom")
	}
}

// joinAccounts tells each api of an account the names of all its apis, and the largest jitter and lease among them.
func (c *Config) joinAccounts() {
	for i := range c.Accounts {
		var apis []string
		var jitter, lease time.Duration
		for k := range c.APIs {
			if a := &c.APIs[k]; a.Account == c.Accounts[i].Name {
				apis, jitter, lease = append(apis, a.Name), max(jitter, a.CallRules().Jitter), max(lease, a.Rules.Lease)
			}
		}
		for k := range c.APIs {
			if in := c.APIs[k].Rules.In; in != nil && in.Account == c.Accounts[i].Name {
				in.APIs, in.Jitter, in.Lease = apis, jitter, lease
			}
		}
	}
}

// warnOfAccounts warns of accounts that no api uses.
func (c *Config) warnOfAccounts(f field.Fields) {
	for i := range c.Accounts {
		name := c.Accounts[i].Name
		if !slices.ContainsFunc(c.APIs, func(a API) bool { return a.Account == name }) {
			f.Place("accounts").Warn("no api has the account "+name, "write account: "+name+" for each of its apis")
		}
	}
}
