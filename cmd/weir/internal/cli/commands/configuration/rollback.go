package configuration

import (
	"fmt"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/proposal"

	"github.com/spf13/cobra"
)

func configRollbackCommand() *cobra.Command {
	how := manner{}
	cmd := &cobra.Command{
		Use:   "rollback [VERSION]",
		Short: "Apply an earlier version of the configuration again",
		Long: `Applies an earlier version, by default the previous one, as config apply would apply its text: it becomes a new
version. The command does not change the file that the version came from; weir serve applies that file only once it has changed.`,
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
				p, err := proposal.Earlier(cmd.Context(), c, cli.User(), wanted)
				if err != nil {
					return err
				}
				return how.apply(cmd, c, p)
			})
		},
	}
	cmd.Flags().BoolVar(&how.dryRun, "dry-run", false, "show what would change, and change nothing")
	how.confirm.Add(cmd.Flags())
	how.as.Add(cmd.Flags(), "one JSON object")
	return cmd
}
