package commands

import (
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/ops/verify"

	"github.com/spf13/cobra"
)

func verifyCommand() *cobra.Command {
	api, since, as := "", "", cli.ForPeople
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every recorded call against the limits",
		Long: `Replays the ledger (the stream WEIR_CALLS) against the limits of the running configuration. For each limit it
prints the worst window, its key, and the verdict. It checks every window, exactly, however the calls were planned. For
quotas and budgets it says how much is used now. It also looks for jobs that were called again after a call that may
have been processed, and adds up what was spent.

What calls had reserved must fit into every window. If calls took more than they had reserved, verify says apart by how
much that made a window exceed the limit. Such an excess fails nothing ("weir help costs").

It checks when calls started, by the clock of the weir that made them. The ledger does not know how long they then took
to the api; the configured jitter allows for that. Without --since it does not judge calls from before the limits were
last changed, but counts them in windows that reach back over the change.

It keeps about 500 bytes for every key, and the calls of one period of each limit. Exit code 0: all limits held, 1: one
did not, or a job was called twice that must not be, 3: the ledger has no such calls, or records of it are missing or
cannot be read.`,
		Example: "  weir verify\n  weir verify --api credit-check --since 1d --json",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := deadview.ReadTime(since, time.Now())
			if err != nil {
				return cli.Usage(fmt.Errorf("--since %w", err))
			}
			return connect.With(func(c *connect.Connection) error {
				return verify.Run(cmd.Context(), c, verify.Options{API: api, Since: from, As: as, Out: cmd.OutOrStdout(), Talk: cmd.ErrOrStderr()})
			})
		},
	}
	cmd.Flags().StringVar(&api, "api", "", "only calls of this api")
	cmd.Flags().StringVar(&since, "since", "", "only calls from this RFC 3339 time on, or from this long ago, such as 2h or 1d")
	as.Add(cmd.Flags(), "one JSON object per line and api")
	return cmd
}
