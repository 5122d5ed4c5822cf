package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/proposal"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
)

func configHistoryCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:     "history",
		Short:   "List the versions of the configuration, the present one first",
		Long:    fmt.Sprintf("Lists the versions of the configuration, the newest first. The last %d are kept.", control.KeptVersions),
		Example: "  weir config history\n  weir config history --json | jq .who",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return connect.With(func(c *connect.Connection) error {
				entries, err := control.ConfigHistory(cmd.Context(), c)
				if err != nil {
					return err
				}
				return listHistory(cmd.OutOrStdout(), entries, as)
			})
		},
	}
	as.Add(cmd.Flags(), "one JSON object a line")
	return cmd
}

func listHistory(out io.Writer, entries []jetstream.KeyValueEntry, as cli.Format) error {
	t := &cli.Table{}
	t.Row("VERSION", "WHEN", "WHO", "FROM", "CHANGES")
	for _, entry := range slices.Backward(entries) {
		h := control.PastVersionOf(entry)
		if as == cli.AsJSON {
			if err := cli.PrintJSON(out, h); err != nil {
				return err
			}
		}
		changes := strconv.Itoa(h.Changes)
		if h.Error != "" {
			changes = h.Error
		}
		t.Row(strconv.FormatUint(h.Version, 10), cli.ClockTime(h.At), h.Who, h.From, changes)
	}
	if as == cli.AsJSON {
		return nil
	}
	return t.Print(out)
}

func configRollbackCommand() *cobra.Command {
	how := manner{}
	cmd := &cobra.Command{
		Use:   "rollback [VERSION]",
		Short: "Put an earlier version of the configuration in force again",
		Long: `Applies an earlier version, by default the one before the present, as a new version: as config apply would apply its
text. The file it once came from is not touched; weir serve applies that only once it has changed.`,
		Example: "  weir config rollback\n  weir config rollback 17 --yes",
		Args:    cli.Takes("[VERSION]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted := uint64(0)
			if len(args) > 0 {
				var err error
				if wanted, err = strconv.ParseUint(args[0], 10, 64); err != nil || wanted == 0 {
					return cli.Usage(fmt.Errorf("%q is not a version: `weir config history` lists them", args[0]))
				}
			}
			return connect.With(func(c *connect.Connection) error {
				entries, err := control.ConfigHistory(cmd.Context(), c)
				if err != nil {
					return err
				}
				p, err := proposal.Earlier(entries, wanted)
				if err != nil {
					return err
				}
				store, err := control.OpenConfigStore(cmd.Context(), c)
				if err != nil {
					return err
				}
				p.Who = cli.User()
				return how.apply(cmd, c, store, p)
			})
		},
	}
	cmd.Flags().BoolVar(&how.dryRun, "dry-run", false, "show what would change, and change nothing")
	how.confirm.Add(cmd.Flags())
	how.as.Add(cmd.Flags(), "one JSON object")
	return cmd
}
