package configuration

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
)

func configHistoryCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:     "history",
		Short:   "List the versions of the configuration, the present one first",
		Long:    fmt.Sprintf("Lists the versions of the configuration, the newest first. The last %d are kept.", admin.KeptVersions),
		Example: "  weir config history\n  weir config history --json | jq .who",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return connect.With(func(c *connect.Connection) error {
				entries, err := admin.ConfigHistory(cmd.Context(), c)
				if err != nil {
					return err
				}
				return listHistory(cmd.OutOrStdout(), entries, as)
			})
		},
	}
	as.Add(cmd.Flags(), "one JSON object per line")
	return cmd
}

func listHistory(out io.Writer, entries []jetstream.KeyValueEntry, as cli.Format) error {
	t := &cli.Table{}
	t.Row("VERSION", "WHEN", "WHO", "FROM", "CHANGES")
	for _, entry := range slices.Backward(entries) {
		h := admin.PastVersionOf(entry)
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
