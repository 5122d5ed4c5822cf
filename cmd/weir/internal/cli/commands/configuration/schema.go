package configuration

import (
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/schema"

	"github.com/spf13/cobra"
)

func configSchemaCommand() *cobra.Command {
	subjects := false
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of weir.yaml, or the AsyncAPI of the subjects",
		Long: `Prints the JSON Schema of weir.yaml, with which editors complete and check the file. It needs no server. An
editor with yaml-language-server reads the schema's name from the first line of weir.yaml:

  # yaml-language-server: $schema=weir.schema.json

weir refuses everything that the schema refuses, and more: ` + "`weir config check`" + ` reports all of it.

With --asyncapi it prints what weir reads and writes on NATS, as AsyncAPI 3.0: subjects, headers, receipts, refusals,
results, dead letters and events.`,
		Example: "  weir config schema > weir.schema.json\n  weir config schema --asyncapi > weir.asyncapi.json",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := schema.Configuration()
			if subjects {
				text = schema.Subjects()
			}
			if _, err := cmd.OutOrStdout().Write(text); err != nil {
				return fmt.Errorf("write the schema: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&subjects, "asyncapi", false, "print the subjects instead, as AsyncAPI 3.0")
	return cmd
}
