package commands

import (
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/ingest"

	"github.com/spf13/cobra"
)

func pauseCommand() *cobra.Command {
	why, lasting, as := "", "", cli.ForPeople
	cmd := &cobra.Command{
		Use:   "pause API [KEY]",
		Short: "Keep an api, or one key of it, from being called",
		Long: `Keeps an api, or one key of it, from being called until ` + "`weir resume`" + `. Jobs are taken and wait; calls that run
may end. The pause is kept in NATS and survives restarts. The command returns when every dispatching replica has put it in force: no
call starts after that. One that does not answer, because it is stopped or cut off, has its right to call ended, which takes some
seconds; one that keeps that right and does not answer is named, and the command ends with 1.

With --for it ends by itself, also where weir is restarted or another replica takes over meanwhile. Of two pauses of the same, one of
which ends by itself, the later one stands. ` + "`weir status`" + ` lists what is paused.`,
		Example: "  weir pause credit-check --why 'invoice does not add up'\n  weir pause sms tenant.42 --for 2h",
		Args:    cli.Takes("API", "[KEY]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			lasts, err := control.ReadLasting(lasting)
			if err != nil {
				return cli.Usage(fmt.Errorf("--for %w", err))
			}
			return sayToAll(cmd, args, as, func(c *connect.Connection, o *control.OperatorCommand) error {
				return o.Pause(cmd.Context(), c, cmd.ErrOrStderr(), control.Pausing{Why: why, For: lasts})
			})
		},
	}
	cmd.Flags().StringVar(&why, "why", why, "the reason, for other operators")
	cmd.Flags().StringVar(&lasting, "for", lasting, "how long, as in 90s, 2h or 1d; without it until it is resumed")
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

func resumeCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:   "resume API [KEY]",
		Short: "Let a paused api or key be called again, or try an api again that kept failing",
		Long: `Ends a pause. An api whose calls kept failing, so that its breaker is open, or that denied weir (401, 402, 403, 407, a redirect),
is called once at once: when that call is answered the others follow. What holds besides, an answer of the api (Retry-After) or a limit, goes on holding. Keys that were paused one by
one stay paused when their api is resumed.`,
		Example: "  weir resume credit-check\n  weir resume sms tenant.42",
		Args:    cli.Takes("API", "[KEY]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sayToAll(cmd, args, as, func(c *connect.Connection, o *control.OperatorCommand) error {
				return o.Resume(cmd.Context(), c, cmd.ErrOrStderr())
			})
		},
	}
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

// sayToAll sends a command about an api, or one of its keys, to every dispatching replica, and prints the outcome.
func sayToAll(cmd *cobra.Command, args []string, as cli.Format, say func(c *connect.Connection, o *control.OperatorCommand) error) error {
	key := ""
	if len(args) > 1 {
		key = args[1]
		if err := ingest.CheckKey(key); err != nil {
			return cli.Usage(err)
		}
	}
	var o *control.OperatorCommand
	err := aboutAPI(cmd, args[0], func(c *connect.Connection) (err error) {
		if o, err = control.NewOperatorCommand(cmd.Context(), c, cli.User(), args[0], key); err != nil {
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
