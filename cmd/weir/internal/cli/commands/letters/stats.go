package letters

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/terminal"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

func deadStatsCommand() *cobra.Command {
	flags, as := letterFlags{}, cli.ForPeople
	cmd := &cobra.Command{
		Use:     "stats",
		Short:   "Count dead letters by api, reason, status and bill",
		Long:    "Counts dead letters by api, reason, last answer and whether the call was billed, the most frequent first.",
		Example: "  weir dead stats\n  weir dead stats --since 1d --json",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := flags.filter(time.Now())
			if err != nil {
				return err
			}
			return connect.With(func(c *connect.Connection) error {
				counts, err := countLetters(c, cmd, filter)
				if err != nil {
					return err
				}
				if len(counts) == 0 {
					return as.Empty(cmd.OutOrStdout(), deadview.None(filter))
				}
				return printCounts(cmd.OutOrStdout(), counts, as, time.Now())
			})
		},
	}
	flags.add(cmd.Flags())
	as.Add(cmd.Flags(), "one JSON object per line")
	return cmd
}

// progressEvery is how many letters are read between two displays of the progress.
const progressEvery = 10_000

func countLetters(c *connect.Connection, cmd *cobra.Command, filter deadletter.Filter) ([]*deadview.Count, error) {
	store, err := deadview.Open(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	talk, shown := cmd.ErrOrStderr(), false
	counts, err := deadview.CountByCause(cmd.Context(), store.Browser, filter, func(read, of uint64) {
		if read%progressEvery == 0 && terminal.Watched(talk) {
			shown = true
			_, _ = fmt.Fprintf(talk, "\rread %d of %d letters", read, of)
		}
	})
	if shown {
		_, _ = fmt.Fprint(talk, "\r\x1b[K")
	}
	if err != nil {
		return nil, c.Explain(err)
	}
	return counts, nil
}

func printCounts(out io.Writer, counts []*deadview.Count, as cli.Format, now time.Time) error {
	t := &cli.Table{}
	t.Row("LETTERS", "API", "REASON", "STATUS", "BILLED", "OLDEST", "NEWEST")
	for _, n := range counts {
		if as == cli.AsJSON {
			if err := cli.PrintJSON(out, n); err != nil {
				return err
			}
			continue
		}
		status := "-"
		if n.Status > 0 {
			status = strconv.Itoa(n.Status)
		}
		t.Row(strconv.Itoa(n.Letters), cmp.Or(n.API, "-"), string(n.Reason), status, string(n.Billed),
			cli.Brief(now.Sub(n.Oldest))+" ago", cli.Brief(now.Sub(n.Newest))+" ago")
	}
	if as == cli.AsJSON {
		return nil
	}
	return t.Print(out)
}
