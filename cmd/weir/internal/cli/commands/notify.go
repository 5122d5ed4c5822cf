package commands

import (
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/spf13/cobra"
)

func notifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notify",
		Short: "Test the receivers of events and of callbacks",
		Long: `Tests the addresses to which weir posts: events to those under notifications in the configuration, and the ends
of jobs to the callbacks of apis. ` + "`weir help events` and `weir help callbacks`" + `
describe the posts.`,
		Example: "  weir notify test\n  weir notify test chat",
		RunE:    group,
	}
	cmd.AddCommand(notifyTestCommand())
	return cmd
}

func notifyTestCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:   "test [NAME]",
		Short: "Post a test message to all receivers, or to one",
		Long: `Makes a replica post a message to the destination NAME, to the callback of an api, which is API/callback, or to
all of them, each in its format and with its secret. The message names you. It is neither an event nor an end, and is posted once.
The command says what each receiver answered. Exit code 1: a receiver has not accepted the message; 3: there is no such
receiver.`,
		Example: "  weir notify test\n  weir notify test chat --json\n  weir notify test credit-check/callback",
		Args:    cli.Takes("[NAME]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			var all []admin.Notified
			err := connect.With(func(c *connect.Connection) (err error) {
				all, err = admin.Notify(c, name, cli.User())
				return err
			})
			if err != nil {
				return err
			}
			return printNotified(cmd, all, as)
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return offered(receivers, cmd, args, begun)
	}
	as.Add(cmd.Flags(), "one JSON object per destination")
	return cmd
}

func printNotified(cmd *cobra.Command, all []admin.Notified, as cli.Format) error {
	failed := 0
	for _, n := range all {
		said := "accepted the message"
		if n.Error != "" {
			said = n.Error
			failed++
		}
		var err error
		if as == cli.AsJSON {
			err = cli.PrintJSON(cmd.OutOrStdout(), n)
		} else {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", n.Destination, said)
		}
		if err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %s did not accept the message", failed, cli.Count(len(all), "receiver"))
	}
	return nil
}

// receivers returns the names of the configured destinations and callbacks.
func receivers(cmd *cobra.Command, _ []string) (names []cobra.Completion) {
	_ = connect.With(func(c *connect.Connection) error {
		if current, ok := admin.RunningConfig(cmd.Context(), c); ok {
			for _, d := range current.Notifications {
				names = append(names, d.Name)
			}
			for i := range current.APIs {
				if current.APIs[i].Callback != nil {
					names = append(names, admin.CallbackName(current.APIs[i].Name))
				}
			}
		}
		return nil
	})
	return names
}
