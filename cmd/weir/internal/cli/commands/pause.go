package commands

import (
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/ingest"

	"github.com/spf13/cobra"
)

func pauseCommand() *cobra.Command {
	why, lasting, as := "", "", cli.ForPeople
	cmd := &cobra.Command{
		Use:   "pause API [KEY]",
		Short: "Stop the calls of an api, or of one of its keys",
		Long: `Stops the calls of an api, or of one of its keys, until ` + "`weir resume`" + `. weir still accepts jobs, and
they wait; running calls may end. The pause is kept in NATS and survives restarts.

The command returns when every dispatching replica obeys the pause: no call starts after that. If a replica is stopped
or cut off and does not answer, the command ends that replica's right to call, which takes some seconds. If a replica
keeps that right and does not answer, the command names it and exits with 1.

With --for the pause ends by itself, even if weir is restarted or another replica takes over meanwhile. A second pause
replaces one that ends by itself. ` + "`weir status`" + ` lists all pauses.`,
		Example: "  weir pause credit-check --why 'invoice does not add up'\n  weir pause sms tenant.42 --for 2h",
		Args:    cli.Takes("API", "[KEY]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			lasts, err := admin.ReadLasting(lasting)
			if err != nil {
				return cli.Usage(fmt.Errorf("--for %w", err))
			}
			return sayToAll(cmd, args, as, func(c *connect.Connection, o *admin.OperatorCommand) error {
				return o.Pause(cmd.Context(), c, cmd.ErrOrStderr(), admin.Pausing{Why: why, For: lasts})
			})
		},
	}
	cmd.Flags().StringVar(&why, "why", why, "the reason, for other operators")
	cmd.Flags().StringVar(&lasting, "for", lasting, "how long, such as 90s, 2h or 1d (default: until it is resumed)")
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

func resumeCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:   "resume API [KEY]",
		Short: "Resume the calls of a paused api or key, or try a failing api at once",
		Long: `Ends a pause. If the api kept failing, so that its breaker is open, or denied weir (401, 402, 403, 407, a
redirect), weir makes one call at once; when the api answers it, the others follow. Other holds stay: an answer with
Retry-After, or a limit. Keys that were paused one by one stay paused when their api is resumed.`,
		Example: "  weir resume credit-check\n  weir resume sms tenant.42",
		Args:    cli.Takes("API", "[KEY]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sayToAll(cmd, args, as, func(c *connect.Connection, o *admin.OperatorCommand) error {
				return o.Resume(cmd.Context(), c, cmd.ErrOrStderr())
			})
		},
	}
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

// sayToAll runs say with a command about an api or one of its keys, and prints the outcome.
func sayToAll(cmd *cobra.Command, args []string, as cli.Format, say func(c *connect.Connection, o *admin.OperatorCommand) error) error {
	key := ""
	if len(args) > 1 {
		key = args[1]
		if err := ingest.CheckKey(key); err != nil {
			return cli.Usage(err)
		}
	}
	var o *admin.OperatorCommand
	err := aboutAPI(cmd, args[0], func(c *connect.Connection) (err error) {
		if o, err = admin.NewOperatorCommand(cmd.Context(), c, cli.User(), args[0], key); err != nil {
			return err
		}
		return say(c, o)
	})
	if err != nil {
		return err
	}
	if as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), o)
	}
	return nil
}
