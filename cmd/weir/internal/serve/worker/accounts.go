package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/limitstate"
)

// accounts has the options with which limits are opened, and the opened limits of accounts. The start uses it first.
// Once the follower runs, only the follower opens and runs further accounts.
type accounts struct {
	*link

	limits *limitstate.Options  // nil if this replica does not dispatch
	first  []*limitstate.Limits // those at the start whose limits this process counts
	fresh  []*limitstate.Limits // opened limits of accounts that do not run yet
}

// forgetAccounts makes the limits forget the use of accounts that no api of a configuration has any more.
func (a *accounts) forgetAccounts(ctx context.Context, c *config.Config) error {
	if a.limits == nil {
		return nil
	}
	return limitstate.ForgetAccounts(ctx, a.limits, func(account string) bool {
		return slices.ContainsFunc(c.APIs, func(api config.API) bool { return api.Account == account })
	})
}

// openAccounts opens the limits of those accounts of a configuration that are not open yet. After the start only the
// follower calls it.
func (a *accounts) openAccounts(ctx context.Context, c *config.Config) error {
	if a.limits == nil {
		return nil
	}
	for i := range c.APIs {
		rules := c.APIs[i].CallRules()
		if rules.In == nil || a.limits.Pools.Has(rules.In.Account) {
			continue
		}
		opened, err := limitstate.OpenAccount(ctx, a.limits, rules)
		if err != nil {
			return fmt.Errorf("account %s: %w", rules.In.Account, err)
		}
		if opened != nil {
			a.fresh = append(a.fresh, opened)
		}
	}
	return nil
}

// runAccounts runs the limits of newly opened accounts.
func (a *accounts) runAccounts() {
	for _, opened := range a.fresh {
		a.lowerGo(func() error { return opened.Run(a.base) })
	}
	a.fresh = nil
}

// confirm tells the limits in Redis that the rules of this configuration are in force for all its apis.
func (a *accounts) confirm(c *config.Config) {
	if a.limits != nil {
		a.limits.Pools.Confirm(c.Version, func(api string) bool { _, has := c.API(api); return has })
	}
}

// willRefuse reports whether Redis refuses calls of an api that configuration c does not name. Redis refuses them now,
// or as soon as another api of the api's account follows c.
func (a *accounts) willRefuse(api string, c *config.Config) bool {
	if a.limits == nil {
		return false
	}
	account := a.limits.Pools.AccountInRedis(api)
	return account != "" && slices.ContainsFunc(c.APIs, func(api config.API) bool { return api.Account == account })
}

// accountsReady bounds how long a start waits until limits count their exact use.
const accountsReady = 2 * time.Second

// awaitAccounts blocks until every limit of the given apis and of the accounts at the start counts its exact use, but
// for accountsReady at most. Without this wait, operators would see only an upper bound right after the start. Calls
// begin during the wait.
func (a *accounts) awaitAccounts(ctx context.Context, apis []*apiParts) {
	ctx, cancel := context.WithTimeout(ctx, accountsReady)
	defer cancel()
	for _, api := range apis {
		if !api.limits.AwaitExact(ctx) {
			return
		}
	}
	for _, account := range a.first {
		if !account.AwaitExact(ctx) {
			return
		}
	}
}
