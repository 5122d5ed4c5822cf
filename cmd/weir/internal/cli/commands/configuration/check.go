package configuration

import (
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/serve/proposal"

	"github.com/spf13/cobra"
)

func configCheckCommand() *cobra.Command {
	file, as := "", cli.ForPeople
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find everything that is wrong with a configuration file",
		Long: `Reads a configuration file as weir serve does and reports every mistake at once, as file:line: field: what is
wrong: how to fix it. Exit code 1: there is a mistake.

Warnings are about valid values that are probably not meant. They are also about a secret that is missing on this
machine, and about features that this version does not have yet: weir serve would refuse to start with those. Notes are
about valid values with effects that you should know.`,
		Example: "  weir config check\n  weir config check -f deploy/weir.yaml --json",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, text, err := configText(cmd, file)
			if err != nil {
				return err
			}
			return checkConfig(cmd, file, text, as)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the file, - for stdin (default WEIR_CONFIG, or weir.yaml)")
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

// checkConfig reports the problems, warnings and notes about a configuration's text on stderr, in the format of
// compilers.
func checkConfig(cmd *cobra.Command, file string, text []byte, as cli.Format) error {
	found, _, err := proposal.Check(file, text, nil)
	if err != nil {
		return err
	}
	if as == cli.ForPeople {
		talk := cmd.ErrOrStderr()
		for _, p := range found.Problems {
			_, _ = fmt.Fprintln(talk, problem.Problem(p).In(file))
		}
		for _, p := range found.Warnings {
			_, _ = fmt.Fprintln(talk, saidOf(file, "warning", problem.Problem(p)))
		}
		for _, p := range found.Notes {
			_, _ = fmt.Fprintln(talk, saidOf(file, "note", problem.Problem(p)))
		}
	}
	switch {
	case as == cli.AsJSON:
		if err := cli.PrintJSON(cmd.OutOrStdout(), found); err != nil {
			return err
		}
	case found.OK:
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: ok, apis: %d\n", file, found.APIs); err != nil {
			return fmt.Errorf("write the verdict: %w", err)
		}
	}
	if !found.OK {
		return &cli.Exit{Code: cli.ExitFailed} // everything is already printed
	}
	return nil
}

// saidOf formats a warning or a note as compilers do.
func saidOf(file, as string, p problem.Problem) string {
	p.Message = as + ": " + p.Message
	if p.Line == 0 {
		return file + ": " + p.String()
	}
	return p.In(file)
}
