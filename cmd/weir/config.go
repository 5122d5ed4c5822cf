package main

import (
	"errors"
	"fmt"
	"io"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/proposal"

	"github.com/spf13/cobra"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Check, compare, apply, show and roll back the configuration",
		Example: "  weir config check -f weir.yaml\n  weir config apply -f weir.yaml\n  weir config rollback",
		RunE:    group,
	}
	cmd.AddCommand(configCheckCommand(), configDiffCommand(), configApplyCommand(), configShowCommand(), configHistoryCommand(), configRollbackCommand(), configSchemaCommand())
	return cmd
}

func configCheckCommand() *cobra.Command {
	file, as := "", cli.ForPeople
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find everything that is wrong with a configuration file",
		Long: `Reads a configuration file as weir serve does and tells every mistake at once, as file:line: field: what is wrong: how to
mend it. Exit code 1 when there is one.

Warnings are what is allowed and probably not meant; also a secret that is missing on this machine, or something this
version does not do yet: weir serve would refuse to start with those.`,
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

// configFileName is the file a command is about: the one it was given, or that of the environment.
func configFileName(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	settings, err := config.ReadSettings()
	if err != nil {
		return "", cli.Usage(err)
	}
	if settings.Config == "" {
		return "", cli.NotFound(errors.New("there is no weir.yaml here: name a file with -f, or in WEIR_CONFIG"))
	}
	return settings.Config, nil
}

// configText is the file a command is about, and what is in it.
func configText(cmd *cobra.Command, given string) (file string, text []byte, err error) {
	if file, err = configFileName(given); err != nil {
		return "", nil, err
	}
	text, err = readConfigText(file, cmd.InOrStdin())
	return file, text, err
}

func readConfigText(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		text, err := cli.ReadAll(stdin, cli.MostConfig)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		return text, nil
	}
	return control.ReadFile(file)
}

// checkConfig tells what is wrong with a file's text: problems and warnings on stderr, as compilers write them.
func checkConfig(cmd *cobra.Command, file string, text []byte, as cli.Format) error {
	found, _, err := proposal.Check(file, text, nil)
	if err != nil {
		return err
	}
	if as == cli.ForPeople {
		talk := cmd.ErrOrStderr()
		for _, p := range found.Problems {
			_, _ = fmt.Fprintln(talk, config.Problem(p).In(file))
		}
		for _, p := range found.Warnings {
			_, _ = fmt.Fprintln(talk, warningLine(file, config.Problem(p)))
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
		return &cli.Exit{Code: cli.ExitFailed} // all is said
	}
	return nil
}

// warningLine is a warning as compilers write it.
func warningLine(file string, p config.Problem) string {
	p.Message = "warning: " + p.Message
	if p.Line == 0 {
		return file + ": " + p.String()
	}
	return p.In(file)
}

func configShowCommand() *cobra.Command {
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the configuration in force",
		Long: `Shows the configuration that every weir on the server follows, with its version, and who put it there and when, as
comments. Secrets stand in it by reference only.`,
		Example: "  weir config show > weir.yaml\n  weir config show --json | jq .version",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return connect.With(func(c *connect.Connection) error {
				v, err := control.CurrentVersion(cmd.Context(), c)
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

func showConfig(out io.Writer, c control.ShownVersion, as cli.Format) error {
	if as == cli.AsJSON {
		return cli.PrintJSON(out, c)
	}
	_, err := fmt.Fprintf(out, "# version %d, applied by %s at %s from %s\n%s", c.Version, cli.Visible(c.Who), cli.ClockTime(c.At), cli.Visible(c.From), c.YAML)
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}
