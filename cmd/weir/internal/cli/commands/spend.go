package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/terminal"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/ledger"

	"github.com/spf13/cobra"
)

func spendCommand() *cobra.Command {
	api, since, by, limit, as := "", "", string(spend.ByAPI), 100, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "spend",
		Short: "Show what was spent, from the ledger, and the use of the budgets",
		Long: `Adds up the ledger (the stream WEIR_CALLS): what was billed, and apart from it what is in doubt because no
answer said whether the api had processed the call. A call costs the price in its record, which is that of its time.
Without --since the sum is for today in UTC, and with --by day for the last 31 days.

Below that the command shows each budget in its present window: SPENT and IN DOUBT from the ledger, and COUNTED from the
running weir, which is both plus what running calls may cost. A budget of an account is shown once, with what all of its
apis spent. A tenant is the part of a key before the api's tenant_until, or before the first dot if it has none.

The command reads every record of the period and of the budgets' windows: about 100,000 a second. Exit code 3: there is
no ledger.`,
		Example: "  weir spend\n  weir spend --by key --api credit-check --since 30d\n  weir spend --by day --json",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(spend.Groupings(), spend.By(by)) {
				return cli.Usage(fmt.Errorf("--by %q is not api, key, tenant or day", by))
			}
			if limit < 0 {
				return cli.Usage(errors.New("--limit is 0 for all, or how many to list"))
			}
			now := time.Now()
			from, err := deadview.ReadTime(since, now)
			if err != nil {
				return cli.Usage(fmt.Errorf("--since %w", err))
			}
			return connect.With(func(c *connect.Connection) error {
				if api != "" {
					if err := checkAPI(c, cmd, api); err != nil {
						return err
					}
				}
				a, err := addUp(cmd.Context(), c, cmd.ErrOrStderr(), spend.Options{By: spend.By(by), API: api, Since: from, Now: now, Limit: limit})
				if err != nil {
					return err
				}
				return printSpending(cmd, a, spend.By(by), as)
			})
		},
	}
	cmd.Flags().StringVar(&by, "by", by, "group by api, key, tenant or day")
	cmd.Flags().StringVar(&api, "api", "", "only calls of this api")
	cmd.Flags().StringVar(&since, "since", "", "only calls from this RFC 3339 time on, or from this long ago, such as 2h or 30d")
	cmd.Flags().IntVar(&limit, "limit", limit, "how many lines to list, the most expensive first; 0 for all")
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

// addUp adds up from the ledger what calls have cost. If a running weir answers, addUp includes how much of the budgets
// that weir counts as used.
func addUp(ctx context.Context, c *connect.Connection, talk io.Writer, o spend.Options) (*spend.Account, error) {
	if current, ok := admin.RunningConfig(ctx, c); ok {
		o.Config = current
	}
	shown := false
	o.Read = func(n, of uint64) {
		if terminal.Watched(talk) {
			shown = true
			_, _ = fmt.Fprintf(talk, "\r%d of %d calls", n, of)
		}
	}
	var replicas []admin.ReplicaStatus
	if upTo, err := ledger.End(ctx, c.JetStream); err == nil && o.HasBudgets() {
		o.UpTo = upTo                         // the ledger's end before the budgets are read
		replicas, _ = admin.Status(c, 1, nil) // on an error only the ledger is used
	}
	a, err := spend.Of(ctx, c, o)
	if shown {
		_, _ = fmt.Fprint(talk, "\r\x1b[K")
	}
	if err != nil {
		return nil, err
	}
	hearBudgets(a, replicas)
	return a, nil
}

func hearBudgets(a *spend.Account, replicas []admin.ReplicaStatus) {
	for i := range replicas {
		for k := range replicas[i].APIs {
			a.Heard(replicas[i].APIs[k].API, replicas[i].APIs[k].Limits)
		}
	}
}

func printSpending(cmd *cobra.Command, a *spend.Account, by spend.By, as cli.Format) error {
	out, talk := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if a.Unreadable > 0 {
		_, _ = fmt.Fprintf(talk, "weir: %s that cannot be read: not counted\n", cli.Count(a.Unreadable, "record"))
	}
	for i := range a.Gone {
		_, _ = fmt.Fprintf(talk, "weir: %s: not counted\n", a.Gone[i].Why())
	}
	if !a.Begins.IsZero() {
		_, _ = fmt.Fprintf(talk, "weir: the ledger tells everything since %s only: older records have gone\n", cli.ClockTime(a.Begins))
	}
	if a.Lines > 0 {
		_, _ = fmt.Fprintf(talk, "weir: %d of %d lines; --limit lists more\n", len(a.Groups), a.Lines)
	}
	if as == cli.AsJSON {
		return cli.PrintJSON(out, a)
	}
	t := &cli.Table{}
	head := strings.ToUpper(string(by))
	if by == spend.ByKey || by == spend.ByTenant {
		head = "API/" + head
	}
	names := slices.Sorted(maps.Keys(a.Usage))
	heads := []string{head, "CALLS", "SPENT", "IN DOUBT"}
	if a.Reused > 0 {
		heads = append(heads, "REUSED", "SAVED")
	}
	row := func(usage map[string]int64, reused int64, saved string, cells ...string) {
		if a.Reused > 0 {
			cells = append(cells, strconv.FormatInt(reused, 10), cmp.Or(saved, "-"))
		}
		for _, name := range names {
			cells = append(cells, strconv.FormatInt(usage[name], 10))
		}
		t.Row(cells...)
	}
	t.Row(append(heads, upper(names)...)...)
	for _, g := range a.Groups {
		row(g.Usage, g.Reused, g.Saved, groupName(g, by), strconv.FormatInt(g.Calls, 10), g.Spent, g.InDoubt)
	}
	row(a.Usage, a.Reused, a.Saved, "all since "+a.Since.Format("2006-01-02T15:04Z"), "", a.Spent, a.InDoubt)
	if err := t.Print(out); err != nil || len(a.Budgets) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return fmt.Errorf("write what was spent: %w", err)
	}
	t.Row("BUDGET", "SPENT", "IN DOUBT", "COUNTED", "OF", "FROM", "UNTIL")
	shown := map[string]bool{}
	for _, b := range a.Budgets {
		name := b.API + "/" + b.Limit
		if strings.Contains(b.Limit, "/") {
			name = b.Limit
		}
		if shown[name] {
			continue
		}
		shown[name] = true
		t.Row(name, b.Spent, b.InDoubt, cmp.Or(b.Counted, "-"), budgetText(b), shortTime(b.From), shortTime(b.Until))
	}
	return t.Print(out)
}

func upper(names []string) (heads []string) {
	for _, name := range names {
		heads = append(heads, strings.ToUpper(name))
	}
	return heads
}

func budgetText(b *spend.Budget) string {
	if b.Shadow {
		return b.Budget + " (only watches)"
	}
	return b.Budget
}

func groupName(g *spend.Group, by spend.By) string {
	switch by {
	case spend.ByDay:
		return cmp.Or(g.Day, "others")
	case spend.ByKey:
		return g.API + "/" + cmp.Or(g.Key, "-")
	case spend.ByTenant:
		return g.API + "/" + cmp.Or(g.Tenant, "-")
	case spend.ByAPI:
	}
	return cmp.Or(g.API, "others")
}

func shortTime(t time.Time) string {
	if t.IsZero() {
		return "now"
	}
	return t.UTC().Format("2006-01-02T15:04Z")
}
