package configuration

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/spf13/cobra"
)

func configShowCommand() *cobra.Command {
	file, explain, as := "", false, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the running configuration, or where each value of it comes from",
		Long: `Shows the configuration that every weir on the server follows. Comments give its version, and who applied it
and when. Secrets appear by reference only.

With --explain it shows every value in force, and where it comes from: a line of the configuration, the profile of the
API's vendor with the page and its date, or weir's own default. With -f it explains a file, and needs no server.`,
		Example: "  weir config show > weir.yaml\n  weir config show --json | jq .version\n  weir config show --explain | grep ' anthropic'",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case file != "" && !explain:
				return cli.Usage(errors.New("-f is for --explain: without it the running configuration is shown"))
			case file != "":
				return explainFile(cmd, file, as)
			}
			return connect.With(func(c *connect.Connection) error {
				v, err := admin.CurrentVersion(cmd.Context(), c)
				if err != nil {
					return err
				}
				if explain {
					return explainConfig(cmd.OutOrStdout(), v.Config, as)
				}
				return showConfig(cmd.OutOrStdout(), v.Shown(), as)
			})
		},
	}
	cmd.Flags().BoolVar(&explain, "explain", false, "show each value in force and where it comes from")
	cmd.Flags().StringVarP(&file, "file", "f", "", "with --explain: a file, - for stdin, in place of the running configuration")
	as.Add(cmd.Flags(), "one JSON object, with --explain one per line")
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

// explainFile prints the values that a file would put in force.
func explainFile(cmd *cobra.Command, file string, as cli.Format) error {
	file, text, err := configText(cmd, file)
	if err != nil {
		return err
	}
	c, err := config.Parse(text, config.Options{Name: file})
	if err != nil {
		return err // exit code 1: the command's arguments are right, the file is wrong
	}
	return explainConfig(cmd.OutOrStdout(), c, as)
}

// explainConfig prints the values in force, each with its origin.
func explainConfig(out io.Writer, c *config.Config, as cli.Format) error {
	t := &cli.Table{}
	t.Row("FIELD", "VALUE", "FROM", "DATE", "PAGE")
	for _, v := range c.Explain() {
		if as == cli.AsJSON {
			if err := cli.PrintJSON(out, v); err != nil {
				return err
			}
			continue
		}
		from := "default"
		switch {
		case v.Moved:
			from = "weir shares"
		case v.Vendor != "":
			from = v.Vendor
		case v.Line > 0:
			from = "line " + strconv.Itoa(v.Line)
		}
		t.Row(v.Path, v.Value, from, v.Date, v.Page)
	}
	if as == cli.AsJSON {
		return nil
	}
	return t.Print(out)
}
