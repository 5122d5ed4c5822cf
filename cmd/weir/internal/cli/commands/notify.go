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
		Short: "Test the destinations of events",
		Long: `Tests the addresses under notifications in the configuration, to which weir posts events.
` + "`weir help events`" + ` describes the posts.`,
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
		Short: "Post a test message to all destinations, or to one",
		Long: `Makes a replica post a message to the destination NAME, or to every destination, in its format and with its
secret. The message names you, is no event, and is posted once. The command says what each receiver answered. Exit code
1: a receiver has not accepted the message; 3: there is no such destination.`,
		Example: "  weir notify test\n  weir notify test chat --json",
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
		return offered(destinations, cmd, args, begun)
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
		return fmt.Errorf("%d of %s did not accept the message", failed, cli.Count(len(all), "destination"))
	}
	return nil
}

// destinations returns the names of the configured destinations of events.
func destinations(cmd *cobra.Command, _ []string) (names []cobra.Completion) {
	_ = connect.With(func(c *connect.Connection) error {
		if current, ok := admin.RunningConfig(cmd.Context(), c); ok {
			for _, d := range current.Notifications {
				names = append(names, d.Name)
			}
		}
		return nil
	})
	return names
}
