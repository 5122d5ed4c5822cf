package configuration

import (
	"fmt"
	"io"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/spf13/cobra"
)

func configShowCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the running configuration",
		Long: `Shows the configuration that every weir on the server follows. Comments give its version, and who applied it
and when. Secrets appear by reference only.`,
		Example: "  weir config show > weir.yaml\n  weir config show --json | jq .version",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return connect.With(func(c *connect.Connection) error {
				v, err := admin.CurrentVersion(cmd.Context(), c)
				if err != nil {
					return err
				}
				return showConfig(cmd.OutOrStdout(), v.Shown(), as)
			})
		},
	}
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

func showConfig(out io.Writer, c admin.ShownVersion, as cli.Format) error {
	if as == cli.AsJSON {
		return cli.PrintJSON(out, c)
	}
	_, err := fmt.Fprintf(out, "# version %d, applied by %s at %s from %s\n%s", c.Version, cli.Visible(c.Who), cli.ClockTime(c.At), cli.Visible(c.From), c.YAML)
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}
