// Package configuration has the commands of weir config. Each has a file with its flags, its help and its output.
package configuration

import (
	"errors"
	"fmt"
	"io"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/spf13/cobra"
)

// Command returns the command config with its subcommands.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Check, compare, apply, show and roll back the configuration",
		Example: "  weir config check -f weir.yaml\n  weir config apply -f weir.yaml\n  weir config rollback",
	}
	cmd.AddCommand(configCheckCommand(), configDiffCommand(), configApplyCommand(), configShowCommand(), configHistoryCommand(), configRollbackCommand(), configSchemaCommand())
	return cmd
}

// configFileName returns the file that a flag names, or else the file that the environment names.
func configFileName(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	settings, err := environment.Read()
	if err != nil {
		return "", cli.Usage(err)
	}
	if settings.Config == "" {
		return "", cli.NotFound(errors.New("there is no weir.yaml here: name a file with -f, or in WEIR_CONFIG"))
	}
	return settings.Config, nil
}

// configText returns the name and the text of the file that configFileName returns for given.
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
	return admin.ReadFile(file)
}
