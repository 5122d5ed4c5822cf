package main

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
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "weir %s\n", cli.Version())
			if err != nil {
				return fmt.Errorf("write the version: %w", err)
			}
			return nil
		},
	}
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}
