package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"

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
				p, err := rollback(entries, wanted)
				if err != nil {
					return err
				}
				store, err := control.OpenConfigStore(cmd.Context(), c)
				if err != nil {
					return err
				}
				return p.apply(cmd, c, store, how)
			})
		},
	}
	cmd.Flags().BoolVar(&how.dryRun, "dry-run", false, "show what would change, and change nothing")
	how.confirm.Add(cmd.Flags())
	how.as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

// rollback proposes the wanted version of a history, 0 for the one before that in force.
func rollback(entries []jetstream.KeyValueEntry, wanted uint64) (*proposal, error) {
	p := &proposal{}
	var target *control.Version
	for _, entry := range slices.Backward(entries) {
		p.last = max(p.last, entry.Revision())
		v, err := control.ReadVersion(entry)
		switch {
		case err != nil && entry.Revision() == wanted:
			return nil, fmt.Errorf("version %d cannot be applied: %w", wanted, err)
		case err != nil:
			continue
		case p.current == nil:
			p.current = v
		case wanted == 0 && target == nil:
			target = v
		}
		if v.Number == wanted {
			target = v
		}
	}
	switch {
	case target == nil && wanted == 0:
		return nil, cli.NotFound(errors.New("there is no version before the present one"))
	case target == nil:
		return nil, cli.NotFound(fmt.Errorf("version %d is not kept: `weir config history` lists those that are", wanted))
	}
	p.from, p.text, p.config = fmt.Sprintf("version %d", target.Number), target.YAML, target.Config
	return p, nil
}
