package commands

import (
	"fmt"

	"weir/cmd/weir/internal/cli"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Prints the version of this binary; with --json also the commit and the Go release it was built from.",
		Example: "  weir version\n  weir version --json",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if as == cli.AsJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), cli.ThisBuild())
			}
			return printVersion(cmd)
		},
	}
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

// addVersionFlag adds the flag --version to the root. cobra's own flag would need a template for its text. If
// text/template is in the binary, the linker keeps every exported method: see TestDeadCodeIsLeftOut.
func addVersionFlag(root *cobra.Command) {
	asked := root.Flags().BoolP("version", "v", false, "version for weir")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *asked {
			return printVersion(cmd)
		}
		return cmd.Help() //nolint:wrapcheck // cobra's own, as of a command that does nothing by itself
	}
}

func printVersion(cmd *cobra.Command) error {
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "weir %s\n", cli.Version()); err != nil {
		return fmt.Errorf("write the version: %w", err)
	}
	return nil
}
