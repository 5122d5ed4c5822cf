package letters

import (
	"context"
	"errors"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

func deadTailCommand() *cobra.Command {
	flags, as := letterFlags{}, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow dead letters as they arrive",
		Long: `Prints dead letters as they arrive, beginning now or at --since, until Ctrl-C. It continues when the connection
to the server comes back.`,
		Example: "  weir dead tail\n  weir dead tail --api credit-check --since 10m --json",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := flags.filter(time.Now())
			if err != nil {
				return err
			}
			if flags.until != "" {
				return cli.Usage(errors.New("--until: tail has no end but Ctrl-C; `weir dead ls` knows --until"))
			}
			return withLetters(cmd, func(ctx context.Context, c *connect.Connection, store *deadview.Store) error {
				out := cmd.OutOrStdout()
				return c.Explain(store.Follow(ctx, filter, func(k deadletter.Kept) error {
					if as == cli.AsJSON {
						return cli.PrintJSON(out, deadview.Of(&k))
					}
					t := &cli.Table{}
					t.Row(letterRow(&k, cli.ClockTime(k.Stored))...)
					return t.Print(out)
				}))
			})
		},
	}
	flags.add(cmd.Flags())
	cmd.Flags().Lookup("until").Hidden = true // it is there only for a refusal that names `weir dead ls`
	as.Add(cmd.Flags(), "one JSON object per line")
	return cmd
}
