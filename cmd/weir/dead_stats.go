package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/terminal"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

// letterGroup is what letters are counted by.
type letterGroup struct {
	API    string            `json:"api"`
	Reason deadletter.Reason `json:"reason"`
	Status int               `json:"status"`
	Billed deadletter.Billed `json:"billed"`
}

type letterCount struct {
	letterGroup

	Letters int       `json:"letters"`
	Oldest  time.Time `json:"oldest"`
	Newest  time.Time `json:"newest"`
}

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
				return printCounts(cmd.OutOrStdout(), counts, as, time.Now())
			})
		},
	}
	flags.add(cmd.Flags())
	as.Add(cmd.Flags(), "one JSON object a line")
	return cmd
}

// progressEvery is after how many letters the progress is shown anew.
const progressEvery = 10_000

func countLetters(c *connect.Connection, cmd *cobra.Command, filter deadletter.Filter) ([]*letterCount, error) {
	b, err := browse(cmd.Context(), c)
	if err != nil {
		return nil, err
	}
	talk, groups, shown := cmd.ErrOrStderr(), map[letterGroup]*letterCount{}, false
	err = b.Each(cmd.Context(), filter, func(k deadletter.Kept, read, of uint64) error {
		group := letterGroup{k.API, k.Reason, k.Status, k.Billed}
		n := groups[group]
		if n == nil {
			n = &letterCount{letterGroup: group, Oldest: k.Stored.UTC()}
			groups[group] = n
		}
		n.Letters++
		n.Newest = k.Stored.UTC()
		if read%progressEvery == 0 && terminal.Watched(talk) {
			shown = true
			_, _ = fmt.Fprintf(talk, "\rread %d of %d letters", read, of)
		}
		return nil
	})
	if shown {
		_, _ = fmt.Fprint(talk, "\r\x1b[K")
	}
	if err != nil {
		return nil, c.Explain(err)
	}
	if len(groups) == 0 {
		return nil, noLetters(filter)
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b *letterCount) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.API, b.API), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Status, b.Status), cmp.Compare(a.Billed, b.Billed))
	}), nil
}

func printCounts(out io.Writer, counts []*letterCount, as cli.Format, now time.Time) error {
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
		t.Row(strconv.Itoa(n.Letters), orDash(n.API), string(n.Reason), status, string(n.Billed),
			cli.Brief(now.Sub(n.Oldest))+" ago", cli.Brief(now.Sub(n.Newest))+" ago")
	}
	if as == cli.AsJSON {
		return nil
	}
	return t.Print(out)
}
