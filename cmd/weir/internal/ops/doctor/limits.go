package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
)

// limits looks for contradictions between the limits in the configuration.
func (e *examination) limits() {
	if e.Config == nil {
		return
	}
	before := len(e.findings)
	for _, p := range append(append([]problem.Problem{}, e.Config.Warnings...), e.Config.MissingSecrets(nil)...) {
		e.watch(p.Fix, "%s: %s", p.Path, p.Message)
	}
	for i := range e.Config.APIs {
		e.limitsOf(&e.Config.APIs[i])
	}
	if len(e.findings) == before {
		e.fine("no limit contradicts another")
	}
}

// shares looks for an unfinished move of shares, and for accounts whose share in force differs from the share in the
// file.
func (e *examination) shares(ctx context.Context) {
	if e.Config == nil || e.Connection == nil || e.Config.Site() == "" {
		return
	}
	site := e.Config.Site()
	ctx, done := e.Connection.Denied.Tolerate(ctx)
	defer done()
	move, err := admin.UnfinishedMove(ctx, e.Connection)
	if err != nil {
		e.watch("look at `weir shares`", "whether a move of shares is unfinished was not checked: %v", err)
	}
	for i := range e.Config.Accounts {
		a := &e.Config.Accounts[i]
		said, ok := a.ByFile(site)
		switch {
		case move != nil && move.Account == a.Name:
			e.watch("run `"+move.Command()+"`, unless that command is at work already", "account %s: a move is unfinished: site %s has %d%% in force, and the move gives it %d%%",
				a.Name, site, a.Share, move.Target[site])
		case ok && said != a.Share:
			e.watch(fmt.Sprintf("look at `weir shares %s`: if no move is unfinished, write %s: %d%% into the file of every site", a.Name, site, a.Share),
				"account %s: site %s has %d%% in force, and its file says %d%%: with an empty store weir would begin with that", a.Name, site, a.Share, said)
		}
	}
}

// profiles looks for vendors whose profile has changed since the running configuration was applied.
func (e *examination) profiles() {
	if e.Config == nil || e.Connection == nil {
		return
	}
	now := e.Config.Vendors()
	for _, vendor := range slices.Sorted(maps.Keys(now)) {
		if then := e.Confirmed[vendor]; then != now[vendor] {
			e.watch("look at `weir config show --explain`, and run `weir config apply` to confirm the values",
				"the profile of vendor %s is of %s, and the configuration was applied with that of %s", vendor, now[vendor],
				cmp.Or(then, "no date"))
		}
	}
}

func (e *examination) limitsOf(a *config.API) {
	own := a.Rules.Interval(a.Rules.Key.Rate)
	drains := time.Duration(float64(a.Rules.Key.Capacity) / own.PerSecond() * float64(time.Second))
	if wait := a.Rules.Key.MaxWait; wait > 0 && wait < drains/2 {
		e.watch("lower the capacity, or raise max_wait", "api %s: a full bucket takes %s to drain, and max_wait is %s: most of the capacity of %d is never used", a.Name,
			drains.Round(time.Second), wait, a.Rules.Key.Capacity)
	}
	all := slices.Concat(a.Rules.Shared, a.Rules.Replica) // one replica at a time calls a key
	for i := range all {
		l := &all[i]
		switch l.Kind() {
		case bucket.KindRate:
			if lets := a.Rules.By(l).Interval(*l.Rate).PerSecond(); lets < own.PerSecond() && !l.Shadow {
				e.watch(config.SlowLimitFix(*l.Rate), "api %s: limit %s lets %.3g calls a second pass, less than the %.3g of one key: no key ever gets its rate",
					a.Name, l.Name, lets, own.PerSecond())
			}
		case bucket.KindInFlight:
			if l.InFlight < a.Rules.Key.InFlight {
				e.watch("lower bucket.in_flight, or raise the limit", "api %s: limit %s allows %d calls in flight, fewer than the %d of one key", a.Name, l.Name, l.InFlight, a.Rules.Key.InFlight)
			}
		case bucket.KindBudget:
			if int64(a.Price) > l.Budget.Count/10 {
				e.watch("raise the budget", "api %s: budget %s of %s buys %d calls", a.Name, l.Name, limitstate.Amount(l.Budget.Count, limitstate.InMoney), l.Budget.Count/int64(a.Price))
			}
		case bucket.KindQuota:
		}
	}
}

// excesses adds the limits of which vendors count more use than weir counts.
func (e *examination) excesses() {
	if e.Status == nil {
		return
	}
	for _, a := range e.Status.APIs {
		for i := range a.Limits {
			if l := &a.Limits[i]; l.ExcessText() != "" {
				e.watch("find out what else uses the account, or lower the limit to what the vendor allows; if the figure is wrong, "+
					"take left out of the limit",
					"api %s: limit %s: %s", a.API, cli.Visible(l.Limit), l.ExcessText())
			}
		}
	}
}
