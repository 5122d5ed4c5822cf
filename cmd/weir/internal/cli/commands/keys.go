package commands

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/schedule"

	"github.com/spf13/cobra"
)

func keysCommand() *cobra.Command {
	limit, as := 100, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "keys API",
		Short: "List an api's buckets, deepest first",
		Long: `Lists the buckets of an api that hold unfinished jobs, deepest first, as the running dispatchers see them.

DEPTH counts unfinished jobs, including running calls. WAIT is how long a job that arrives now would wait for its call,
if no shared limit delays it. WAITS FOR is what delays the next job now. The list includes paused keys without jobs.`,
		Example: "  weir keys credit-check\n  weir keys credit-check --limit 5 --json | jq .key",
		Args:    cli.Takes("API"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := admin.CheckLimit(limit); err != nil {
				return err
			}
			return aboutAPI(cmd, args[0], func(c *connect.Connection) error {
				found, err := admin.Keys(c, args[0], limit)
				if err != nil {
					return err
				}
				return printKeys(cmd, args[0], found, as)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "how many to list")
	as.Add(cmd.Flags(), "one JSON object per line")
	return cmd
}

// aboutAPI connects, checks that the api is configured, and then calls do.
func aboutAPI(cmd *cobra.Command, api string, do func(c *connect.Connection) error) error {
	return connect.With(func(c *connect.Connection) error {
		if err := checkAPI(c, cmd, api); err != nil {
			return err
		}
		return do(c)
	})
}

// checkAPI fails if the api is not configured, so that commands do not ask replicas about unknown apis.
func checkAPI(c *connect.Connection, cmd *cobra.Command, name string) error {
	current, ok := admin.RunningConfig(cmd.Context(), c)
	if !ok {
		return admin.CheckAPIName(name)
	}
	if _, found := current.API(name); !found {
		return admin.ExplainNoAPI(cmd.Context(), c, name, current)
	}
	return nil
}

func printKeys(cmd *cobra.Command, api string, g *admin.KeyList, as cli.Format) error {
	talk, out := cmd.ErrOrStderr(), cmd.OutOrStdout()
	if g.Missing > 0 {
		_, _ = fmt.Fprintf(talk, "weir: no replica answered for %d of the %d partitions of %s: their buckets are not listed\n", g.Missing, g.Partitions, api)
	}
	if g.Pause != nil {
		_, _ = fmt.Fprintf(talk, "weir: %s is %s\n", api, cli.Visible(g.Pause.String()))
	}
	buckets := slices.Concat(g.Buckets, g.Resting)
	if len(buckets) == 0 {
		return as.Empty(out, fmt.Errorf("no job waits for %s: every bucket is empty", api))
	}
	if as == cli.AsJSON {
		for _, k := range buckets {
			if err := cli.PrintJSON(out, k); err != nil {
				return err
			}
		}
		return nil
	}
	if err := keysTable(out, buckets); err != nil {
		return err
	}
	if g.RestingAll > len(g.Resting) {
		_, _ = fmt.Fprintf(talk, "weir: %d of %d paused keys without jobs; --limit lists more\n", len(g.Resting), g.RestingAll)
	}
	if g.Keys > len(g.Buckets) {
		_, _ = fmt.Fprintf(talk, "weir: the deepest %d of %d buckets, which hold %d jobs; --limit lists more\n", len(g.Buckets), g.Keys, g.Jobs)
	}
	return nil
}

func keysTable(out io.Writer, buckets []schedule.KeyState) error {
	t := &cli.Table{}
	t.Row("KEY", "DEPTH", "CAPACITY", "IN FLIGHT", "RATE", "WAIT", "WAITS FOR")
	for _, k := range buckets {
		t.Row(k.Key, strconv.Itoa(k.Depth), strconv.FormatInt(k.Capacity, 10),
			fmt.Sprintf("%d/%d", k.InFlight, k.MaxInFlight), rateText(k.Rate), waitText(k.WaitMS), status.WaitingText(k.Waits))
	}
	return t.Print(out)
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func rateText(r schedule.RateState) string {
	return grammar.FormatRate(bucket.Rate{Count: r.Count, Per: time.Duration(r.PerUS) * time.Microsecond, Burst: r.Burst})
}

// waitText formats a wait, "-" if it is unknown.
func waitText(wait int64) string {
	if wait < 0 {
		return "-"
	}
	return cli.Brief(ms(wait))
}
